/* bulk BYTES COUNT: rank 0 sends COUNT messages of BYTES to rank 1 over a connection that has carried next to nothing.
 * Says `seconds` (first send to last receive), `cpu` (both processes, from before the first to after the last). */
#include "common.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int me, bytes = atoi(argv[1]), count = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    char *buffer = malloc((size_t)bytes);
    if (!buffer)
        die("no memory");
    memset(buffer, me + 1, (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double mine[2], its[2], before = cpu();
    mine[0] = now();
    for (int i = 0; i < count; i++)
        if (me == 0)
            MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (me == 1) {
        mine[0] = now();
        if (buffer[0] != 1 || buffer[bytes - 1] != 1)
            die("wrong data");
        mine[1] = cpu() - before;
        MPI_Send(mine, 2, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv(its, 2, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double sender = cpu() - before, seconds = its[0] - mine[0], both = sender + its[1];
        say("seconds", &seconds, 1);
        say("cpu", &both, 1);
        say("cpu.sender", &sender, 1);
        say("cpu.receiver", &its[1], 1);
    }
    MPI_Finalize();
    return 0;
}
