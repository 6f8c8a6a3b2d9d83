/* overlap BYTES REPETITIONS: a second of computing alone, and with BYTES on their way from rank 0 to rank 1 behind it, by turns.
 * Says for each rank `alone.R`, `behind.R` (computing and the wait) and `wait.R` (the wait alone). */
#include "common.h"

enum { MOST = 100 };

static volatile double sink = 0.5;

static void compute(long rounds)
{
    double x = sink; /* unknown to the compiler, or it sees through the loop */
    for (long i = 0; i < rounds; i++)
        x = x * 0.999999 + 1e-6;
    sink = x;
}

/* Rounds that take a second here when nothing else runs: from the shortest of some tries. */
static long a_second(void)
{
    double best = 1e9;
    for (int i = 0; i < 30; i++) {
        double start = now();
        compute(1000000);
        double took = now() - start;
        best = took < best ? took : best;
    }
    return (long)(1e6 / best);
}

int main(int argc, char **argv)
{
    static double alone[MOST], behind[MOST], waited[MOST];
    if (argc != 3)
        return 2;
    int me, bytes = atoi(argv[1]), repetitions = atoi(argv[2]);
    if (repetitions < 1 || repetitions > MOST)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    char *buffer = malloc((size_t)bytes);
    if (!buffer)
        die("no memory");
    memset(buffer, 0, (size_t)bytes);
    pin(me);
    MPI_Barrier(MPI_COMM_WORLD);
    long rounds = a_second();
    for (int i = 0; i < repetitions; i++) {
        MPI_Request request;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now();
        compute(rounds);
        alone[i] = now() - start;
        if (me == 0)
            memset(buffer, i + 1, (size_t)bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        start = now();
        if (me == 0)
            MPI_Isend(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
        else
            MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
        compute(rounds);
        double wait = now();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        behind[i] = now() - start;
        waited[i] = now() - wait;
        if (buffer[0] != i + 1 || buffer[bytes - 1] != i + 1)
            die("wrong data");
    }
    for (int rank = 0; rank < 2; rank++) {
        char name[16];
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != me)
            continue;
        snprintf(name, sizeof name, "alone.%d", me);
        say(name, alone, repetitions);
        snprintf(name, sizeof name, "behind.%d", me);
        say(name, behind, repetitions);
        snprintf(name, sizeof name, "wait.%d", me);
        say(name, waited, repetitions);
    }
    MPI_Finalize();
    return 0;
}
