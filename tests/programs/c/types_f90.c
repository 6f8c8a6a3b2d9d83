/* Types of Fortran's kinds, which nobody may free, alone and inside derived types. */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Datatype real, whole, type, mixed;
    double out[6], in[6];
    struct both { double real; int whole; } here, there = {-1, -1};
    MPI_Aint at[2] = {0, (char *)&here.whole - (char *)&here};
    int lengths[2] = {1, 1}, next, previous, ends;
    start(&argc, &argv, "types_f90");
    next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Type_create_f90_real(15, 307, &real);
    MPI_Type_create_f90_integer(9, &whole);
    MPI_Type_vector(3, 1, 2, real, &type);
    MPI_Type_commit(&type);
    MPI_Type_create_struct(2, lengths, at, (MPI_Datatype[]){real, whole}, &mixed);
    MPI_Type_commit(&mixed);
    for (int round = 0; round < 3; round++) { /* a type that was freed would be gone in the next one */
        for (int i = 0; i < 6; i++) out[i] = rank * 10 + i, in[i] = -1;
        MPI_Sendrecv(out, 1, type, next, 1, in, 1, type, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 6; i++) SAME(in[i], i < 5 && i % 2 == 0 ? previous * 10 + i : -1);
        here = (struct both){rank, rank * 2};
        MPI_Sendrecv(&here, 1, mixed, next, 2, &there, 1, mixed, previous, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        SAME(there.real, previous);
        SAME(there.whole, previous * 2);
        MPI_Sendrecv(out, 6, real, next, 3, in, 6, real, previous, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 6; i++) SAME(in[i], previous * 10 + i);
        MPI_Type_free(&mixed);
        MPI_Type_create_struct(2, lengths, at, (MPI_Datatype[]){real, whole}, &mixed);
        MPI_Type_commit(&mixed);
    }
    MPI_Type_size(real, &ends);
    SAME(ends, 8);
    MPI_Type_free(&mixed);
    MPI_Type_free(&type);
    return finish();
}
