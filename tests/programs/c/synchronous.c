/* A synchronous send completes only after the matching receive has started (MPI 4.1 §3.4). */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv, "synchronous");
    for (int peer = 1; peer < size; peer++) {
        if (rank == 0) {
            MPI_Request request;
            int done, value = peer;
            MPI_Issend(&value, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &request);
            /* The peer receives this first, and does not receive the other before its answer. */
            MPI_Sendrecv(NULL, 0, MPI_INT, peer, 2, NULL, 0, MPI_INT, peer, 2, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            for (int i = 0; i < 100; i++) {
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
                CHECK(!done, "the send completed before any receive was posted");
            }
            MPI_Send(NULL, 0, MPI_INT, peer, 3, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (rank == peer) {
            int value = -1;
            MPI_Sendrecv(NULL, 0, MPI_INT, 0, 2, NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            MPI_Recv(NULL, 0, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            SAME(value, peer);
        }
    }
    return finish();
}
