/* Messages to oneself, on the world and on MPI_COMM_SELF, wild receives among them. */
#include "check.h"

static void on(MPI_Comm comm)
{
    int me, out = 5 + rank, in = -1;
    MPI_Request request[2];
    MPI_Status status;
    MPI_Comm_rank(comm, &me);
    MPI_Sendrecv(&out, 1, MPI_INT, me, 1, &in, 1, MPI_INT, me, 1, comm, &status);
    STATUS_IS(status, me, 1, MPI_INT, 1);
    SAME(in, out);
    in = -1;
    MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &request[0]);
    MPI_Isend(&out, 1, MPI_INT, me, 2, comm, &request[1]);
    MPI_Wait(&request[0], &status);
    MPI_Wait(&request[1], MPI_STATUS_IGNORE);
    STATUS_IS(status, me, 2, MPI_INT, 1);
    SAME(in, out);
    MPI_Isend(&out, 1, MPI_INT, me, 3, comm, &request[0]);
    MPI_Probe(MPI_ANY_SOURCE, 3, comm, &status);
    MPI_Recv(&in, 1, MPI_INT, me, 3, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    SAME(status.MPI_SOURCE, me);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "self");
    on(MPI_COMM_WORLD);
    on(MPI_COMM_SELF);
    int sum = 0, n;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    SAME(sum, rank);
    MPI_Comm_size(MPI_COMM_SELF, &n);
    SAME(n, 1);
    return finish();
}
