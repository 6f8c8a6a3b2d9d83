/* A persistent request keeps its datatype: the program may free its own as soon as the request is made, and the handle may then stand for
 * another type. */
#include "check.h"

enum { BLOCKS = 50, ROUNDS = 4 };

static int out[2 * BLOCKS], in[2][2 * BLOCKS];

static MPI_Datatype every_second(void)
{
    MPI_Datatype type;
    MPI_Type_vector(BLOCKS, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "persistent_types");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Datatype type = every_second(), other[8];
    MPI_Request request[4];
    MPI_Recv_init(in[0], 1, type, previous, 1, MPI_COMM_WORLD, &request[0]);
    MPI_Recv_init(in[1], 1, type, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &request[1]);
    MPI_Send_init(out, 1, type, next, 1, MPI_COMM_WORLD, &request[2]);
    MPI_Ssend_init(out, 1, type, next, 2, MPI_COMM_WORLD, &request[3]);
    MPI_Type_free(&type);
    /* Whoever takes the freed handle for the type now sees one of these. */
    for (int i = 0; i < 8; i++) {
        MPI_Type_contiguous(3 + i, MPI_CHAR, &other[i]);
        MPI_Type_commit(&other[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2 * BLOCKS; i++) {
            out[i] = rank * 10000 + round * 1000 + i;
            in[0][i] = in[1][i] = -1;
        }
        MPI_Startall(4, request);
        MPI_Waitall(4, request, MPI_STATUSES_IGNORE);
        for (int which = 0; which < 2; which++)
            for (int i = 0; i < 2 * BLOCKS; i++)
                SAME(in[which][i], i % 2 ? -1 : previous * 10000 + round * 1000 + i);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < 4; i++) MPI_Request_free(&request[i]);
    for (int i = 0; i < 8; i++) MPI_Type_free(&other[i]);
    return finish();
}
