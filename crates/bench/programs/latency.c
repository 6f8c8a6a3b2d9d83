/* latency INTERFACE BLOCKS: 8-byte ping-pong between two ranks by MPI, and by blocking TCP sockets between the same processes
 * on the same path, by turns. Samples: seconds one way, the mean of a block. */
#include "common.h"
#include "socket.h"

enum { ROUNDS = 100, MOST = 4000 };

int main(int argc, char **argv)
{
    static double mpi[MOST], raw[MOST];
    int me, blocks = argc > 2 ? atoi(argv[2]) : 100;
    if (argc < 2 || blocks < 1 || blocks > MOST)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int s = connection(me, argv[1]);
    pin(me);
    for (int i = -2; i < blocks; i++) {
        double socket_took = trip_by_socket(s, me == 0, ROUNDS) / 2, mpi_took = trip_by_mpi(me, ROUNDS) / 2;
        if (i >= 0)
            raw[i] = socket_took, mpi[i] = mpi_took;
    }
    close(s);
    if (me == 0) {
        say("mpi", mpi, blocks);
        say("raw", raw, blocks);
    }
    MPI_Finalize();
    return 0;
}
