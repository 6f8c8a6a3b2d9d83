/* `abort RANK CODE`: one rank aborts while all others wait for it. Nothing may be left running. */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv, "abort");
    int who = argc > 1 ? atoi(argv[1]) : size - 1, code = argc > 2 ? atoi(argv[2]) : 7, value;
    if (rank == who % size) {
        printf("rank %d aborts with %d\n", rank, code);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    MPI_Recv(&value, 1, MPI_INT, who % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0; /* never reached */
}
