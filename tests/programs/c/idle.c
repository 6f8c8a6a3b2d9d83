/* Silence: everybody talks to everybody, computes for so many seconds without a call of MPI, and talks again. What is said then must
 * arrive soon: connections that were lost meanwhile would first have to be missed, which takes longer. Arguments: seconds of silence. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <errno.h>
#include <time.h>

enum { LENGTH = 3000 };

/* Seconds that it takes to send each rank something and to get something from each. */
static double everybody(int round)
{
    unsigned char *out = need(LENGTH), *in = need((size_t)size * LENGTH);
    MPI_Request *requests = need(2 * (size_t)size * sizeof *requests);
    fill(out, LENGTH, (uint64_t)(round * 1000 + rank));
    double began = MPI_Wtime();
    for (int other = 0; other < size; other++) {
        MPI_Irecv(in + (size_t)other * LENGTH, LENGTH, MPI_BYTE, other, round, MPI_COMM_WORLD, &requests[other]);
        MPI_Isend(out, LENGTH, MPI_BYTE, other, round, MPI_COMM_WORLD, &requests[size + other]);
    }
    MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    double took = MPI_Wtime() - began;
    for (int other = 0; other < size; other++)
        VERIFY(in + (size_t)other * LENGTH, LENGTH, (uint64_t)(round * 1000 + other));
    free(out);
    free(in);
    free(requests);
    return took;
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "idle");
    CHECK(argc == 2, "which seconds?");
    everybody(0);
    MPI_Barrier(MPI_COMM_WORLD);
    struct timespec left = {.tv_sec = atoi(argv[1])};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
    double most = 0, took = everybody(1);
    MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("after %s s of silence: %.3f s\n", argv[1], most);
    return finish();
}
