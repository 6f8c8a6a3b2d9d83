/* pipeline BYTES COUNT: each rank waits for a block of BYTES from the one before it, adds to it and passes it on, COUNT blocks, there and then back, as
 * the sweeps of an LU solver do: between clusters one sends at a time. Says `seconds`. */
#include "common.h"

static void sweep(unsigned *block, int words, int count, int from, int to, unsigned mine)
{
    int bytes = words * (int)sizeof *block;
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < words && from == MPI_PROC_NULL; i++)
            block[i] = (unsigned)(k + i);
        MPI_Recv(block, bytes, MPI_BYTE, from, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < words; i++)
            block[i] += mine;
        MPI_Send(block, bytes, MPI_BYTE, to, k, MPI_COMM_WORLD);
    }
}

static void check(const unsigned *block, int words, int count, int size)
{
    unsigned all = (unsigned)(size * (size + 1) / 2);
    for (int i = 0; i < words; i++)
        if (block[i] != (unsigned)(count - 1 + i) + all)
            die("wrong data");
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int me, size, words = atoi(argv[1]) / (int)sizeof(unsigned), count = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned *block = calloc((size_t)words, sizeof *block);
    if (!block)
        die("no memory");
    int before = me ? me - 1 : MPI_PROC_NULL, behind = me + 1 < size ? me + 1 : MPI_PROC_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    double from = now();
    sweep(block, words, count, before, behind, (unsigned)(me + 1));
    if (behind == MPI_PROC_NULL)
        check(block, words, count, size);
    sweep(block, words, count, behind, before, (unsigned)(me + 1));
    if (before == MPI_PROC_NULL)
        check(block, words, count, size);
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = now() - from;
    if (me == 0)
        say("seconds", &seconds, 1);
    MPI_Finalize();
    return 0;
}
