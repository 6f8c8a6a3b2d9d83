/* changes COUNT LOW HIGH: rank 0, alone in its cluster, keeps a message under way to each of the others, and sets its node's rate to LOW and HIGH
 * KB/s by turns, COUNT times, a millisecond apart. Says `seconds`: what each of these calls took, and `processor`: of that, what the thread
 * had of a processor. */
#include "common.h"
#include "gridmpi.h"

/* Before the first change connections are made. */
static const double BEFORE = 0.5, APART = 0.001;

static void send_on(const char *buffer, int size, MPI_Request *requests, double until)
{
    do {
        for (int to = 1; to < size; to++) {
            int is_done;
            MPI_Test(&requests[to], &is_done, MPI_STATUS_IGNORE);
            if (is_done)
                MPI_Isend(buffer, MESSAGE, MPI_BYTE, to, 0, MPI_COMM_WORLD, &requests[to]);
        }
    } while (now() < until);
}

static void change(int rate, double *took, double *processor)
{
    double had = read_clock(CLOCK_THREAD_CPUTIME_ID), begin = now();
    MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, &rate);
    *took = now() - begin;
    *processor = read_clock(CLOCK_THREAD_CPUTIME_ID) - had;
    int *is, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, &is, &flag);
    if (!flag || *is != rate)
        die("the rate is another than was set");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int me, size, count = atoi(argv[1]), rates[] = {atoi(argv[2]), atoi(argv[3])};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *buffer = calloc(MESSAGE, 1);
    double *seconds = calloc(2 * (size_t)count, sizeof *seconds), *processor = seconds + count;
    MPI_Request *requests = malloc((size_t)size * sizeof *requests);
    if (!buffer || !seconds || !requests)
        die("no memory");
    for (int i = 0; i < size; i++)
        requests[i] = MPI_REQUEST_NULL;
    if (me == 0) {
        send_on(buffer, size, requests, now() + BEFORE);
        for (int k = 0; k < count; k++) {
            change(rates[k % 2], &seconds[k], &processor[k]);
            send_on(buffer, size, requests, now() + APART);
        }
        /* What is under way goes as fast as it may. */
        MPI_Comm_delete_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB);
        MPI_Waitall(size, requests, MPI_STATUSES_IGNORE);
        for (int to = 1; to < size; to++)
            MPI_Send(buffer, 1, MPI_BYTE, to, END, MPI_COMM_WORLD);
        say("seconds", seconds, count);
        say("processor", processor, count);
    } else {
        keep_receiving(buffer, 0, 0, 0);
    }
    MPI_Finalize();
    return 0;
}
