/* Collectives whose sides use different datatypes of one signature. (Intel MPI 2021.18 alone gets the allgather wrong.) */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv, "types_collective");
    MPI_Datatype column;
    int matrix[5][7], flat[5], all[64 * 5];
    CHECK(size <= 64, "the table holds 64 ranks");
    MPI_Type_vector(5, 1, 7, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 35; i++) ((int *)matrix)[i] = rank == size - 1 ? i : -1;
    if (rank == size - 1) MPI_Bcast(&matrix[0][3], 1, column, size - 1, MPI_COMM_WORLD);
    else MPI_Bcast(flat, 5, MPI_INT, size - 1, MPI_COMM_WORLD);
    for (int i = 0; i < 5 && rank != size - 1; i++) SAME(flat[i], i * 7 + 3);
    for (int i = 0; i < 35; i++) ((int *)matrix)[i] = rank * 100 + i;
    MPI_Allgather(&matrix[0][2], 1, column, all, 5, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 5; i++) SAME(all[r * 5 + i], r * 100 + i * 7 + 2);
    MPI_Type_free(&column);
    return finish();
}

