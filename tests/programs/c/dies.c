/* `dies before|in|after|finalize RANK`: one rank is killed (SIGKILL) before, in or after MPI_Init, or leaves without
 * MPI_Finalize, while all others wait. The rank is known before MPI_Init by the launcher's environment. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* This process's place in its own cluster, from whichever launcher started it; -1 where none says. */
static int local_place(void)
{
    static const char *const names[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return -1;
}

/* Without GridMPI there is one cluster without a name; with it, the victim is in the cluster that DIES_IN names. */
static int is_victim(int place)
{
    const char *cluster = getenv("GRIDMPI_CLUSTER"), *wanted = getenv("DIES_IN");
    return local_place() == place && (!cluster || !wanted || strcmp(cluster, wanted) == 0);
}

static void *kill_soon(void *unused)
{
    struct timespec moment = {.tv_nsec = 3000000};
    nanosleep(&moment, NULL);
    raise(SIGKILL);
    return unused;
}

int main(int argc, char **argv)
{
    const char *when = argc > 1 ? argv[1] : "after";
    int place = argc > 2 ? atoi(argv[2]) : 1, value;
    pthread_t thread;
    if (is_victim(place)) {
        if (strcmp(when, "before") == 0) raise(SIGKILL);
        if (strcmp(when, "in") == 0) pthread_create(&thread, NULL, kill_soon, NULL);
    }
    start(&argc, &argv, "dies");
    if (is_victim(place)) {
        if (strcmp(when, "in") == 0) pause();
        if (strcmp(when, "after") == 0) raise(SIGKILL);
        _exit(0); /* without MPI_Finalize */
    }
    MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 12345, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0; /* never reached */
}
