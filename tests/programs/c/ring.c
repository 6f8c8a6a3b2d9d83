/* A token around all ranks, several laps: the smallest program that needs every pair of neighbours. */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv, "ring");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int lap = 0; lap < 10; lap++) {
        int token = lap * 1000;
        MPI_Status status;
        if (rank == 0) {
            MPI_Send(&token, 1, MPI_INT, next, lap, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, previous, lap, MPI_COMM_WORLD, &status);
            SAME(token, lap * 1000 + size - 1);
        } else {
            MPI_Recv(&token, 1, MPI_INT, previous, lap, MPI_COMM_WORLD, &status);
            SAME(token, lap * 1000 + rank - 1);
            token++;
            MPI_Send(&token, 1, MPI_INT, next, lap, MPI_COMM_WORLD);
        }
        STATUS_IS(status, previous, lap, MPI_INT, 1);
    }
    return finish();
}
