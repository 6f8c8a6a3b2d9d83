/* across BYTES COUNT PAIRS REPEAT: the first half of the ranks sends to the second. PAIRS of them send COUNT messages of BYTES each to their partner,
 * two at a time; PAIRS 0: COUNT times all ranks, to all, BYTES each (MPI_Alltoall). Says `seconds` REPEAT times, after one that does not count: from
 * the first send to the last receive. */
#include "common.h"

static void check(const char *buffer, size_t bytes, char value)
{
    if (buffer[0] != value || buffer[bytes - 1] != value)
        die("wrong data");
}

static void pairs(char *buffer, int bytes, int count, int me, int half)
{
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    for (int i = 0; i < count; i++)
        if (me < half) {
            MPI_Wait(&requests[i % 2], MPI_STATUS_IGNORE);
            MPI_Isend(buffer, bytes, MPI_BYTE, me + half, 0, MPI_COMM_WORLD, &requests[i % 2]);
        } else
            MPI_Recv(buffer, bytes, MPI_BYTE, me - half, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check(buffer, (size_t)bytes, (char)(me % half + 1));
}

int main(int argc, char **argv)
{
    enum { MOST = 100 };
    double seconds[MOST];
    int me, size;
    if (argc != 5)
        return 2;
    int bytes = atoi(argv[1]), count = atoi(argv[2]), active = atoi(argv[3]), repeat = atoi(argv[4]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int half = size / 2;
    if (bytes < 1 || repeat < 1 || repeat > MOST || active > half)
        die("wrong arguments");
    size_t all = (size_t)bytes * (size_t)size;
    char *buffer = malloc(all), *target = malloc(all);
    if (!buffer || !target)
        die("no memory");
    memset(buffer, me % half + 1, all);
    for (int i = -1; i < repeat; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double from = now(), took, longest;
        if (active && me % half < active)
            pairs(buffer, bytes, count, me, half);
        for (int j = 0; j < count && !active; j++) {
            MPI_Alltoall(buffer, bytes, MPI_BYTE, target, bytes, MPI_BYTE, MPI_COMM_WORLD);
            check(target + (size_t)bytes * (size_t)(size - 1), (size_t)bytes, (char)half);
        }
        took = now() - from;
        MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (i >= 0)
            seconds[i] = longest;
    }
    if (me == 0)
        say("seconds", seconds, repeat);
    MPI_Finalize();
    return 0;
}
