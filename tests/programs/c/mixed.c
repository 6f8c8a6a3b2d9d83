/* Point-to-point messages in flight across collectives: neither disturbs the other, progress goes on inside both. */
#include "check.h"

enum { ROUNDS = 20, BYTES = 50000 };

int main(int argc, char **argv)
{
    start(&argc, &argv, "mixed");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *out = need(BYTES * ROUNDS), *in = need(BYTES * ROUNDS);
    MPI_Request request[2 * ROUNDS];
    fill(out, BYTES * ROUNDS, rank);
    for (int r = 0; r < ROUNDS; r++) {
        int source = r % 3 ? previous : MPI_ANY_SOURCE;
        MPI_Irecv(in + r * BYTES, BYTES, MPI_BYTE, source, 0, MPI_COMM_WORLD, &request[2 * r]);
        if (r % 2) MPI_Issend(out + r * BYTES, BYTES, MPI_BYTE, next, 0, MPI_COMM_WORLD, &request[2 * r + 1]);
        else MPI_Isend(out + r * BYTES, BYTES, MPI_BYTE, next, 0, MPI_COMM_WORLD, &request[2 * r + 1]);
        int sum, value = r % size == rank ? r : -1;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        SAME(sum, size * (size - 1) / 2);
        MPI_Bcast(&value, 1, MPI_INT, r % size, MPI_COMM_WORLD);
        SAME(value, r);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Waitall(2 * ROUNDS, request, MPI_STATUSES_IGNORE);
    VERIFY(in, BYTES * ROUNDS, previous);
    free(out);
    free(in);
    return finish();
}
