/* collectives LONE_BYTES LONES ALL_BYTES ROUNDS PAUSE: in each round LONES reductions of LONE_BYTES, in which one rank of each cluster
 * sends to the other, and then one all-to-all of ALL_BYTES a pair, in which all do; PAUSE seconds between calls. Says `lone` and
 * `all`: from the common start of a call to its last end, and `begin`, when those of `all` were. */
#include "common.h"

/* The longest of everybody's time since then. */
static double longest(double from)
{
    double took = now() - from, most;
    MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    int me, size, elements = atoi(argv[1]) / (int)sizeof(double), lones = atoi(argv[2]), bytes = atoi(argv[3]), rounds = atoi(argv[4]);
    double pause = atof(argv[5]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t room = (size_t)size * (size_t)bytes;
    double *mine = malloc((size_t)elements * sizeof *mine), *sum = malloc((size_t)elements * sizeof *sum);
    double *lone = malloc((size_t)(rounds * lones) * sizeof *lone), *all = malloc(2 * (size_t)rounds * sizeof *all), *begin = all + rounds;
    char *out = malloc(room), *in = malloc(room);
    if (!mine || !sum || !lone || !all || !out || !in)
        die("no memory");
    for (int i = 0; i < elements; i++)
        mine[i] = me + i;
    for (size_t i = 0; i < room; i++)
        out[i] = (char)(me + (int)(i / (size_t)bytes));
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < lones; k++) {
            double from = start(me, pause);
            MPI_Allreduce(mine, sum, elements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            lone[round * lones + k] = longest(from);
        }
        begin[round] = start(me, pause);
        MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
        all[round] = longest(begin[round]);
    }
    for (int i = 0; i < elements; i++)
        if (sum[i] != (double)size * i + (double)size * (size - 1) / 2)
            die("a wrong sum");
    for (size_t i = 0; i < room; i++)
        if (in[i] != (char)((int)(i / (size_t)bytes) + me))
            die("wrong data");
    if (me == 0) {
        say("lone", lone, rounds * lones);
        say("all", all, rounds);
        say("begin", begin, rounds);
    }
    MPI_Finalize();
    return 0;
}
