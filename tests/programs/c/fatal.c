/* `fatal rank|refused|read-only`: rank 1 makes a mistake that no vendor tells of, under the error handler that programs have by default, while
 * all others wait for it. What is said of it is all that a person learns: it must arrive. */
#include "check.h"
#include "../../../include/gridmpi.h"

static void make(const char *mistake)
{
    int value = 1;
    MPI_Request request;
    if (strcmp(mistake, "rank") == 0) MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    if (strcmp(mistake, "refused") == 0) MPI_Ibarrier(MPI_COMM_WORLD, &request);
    if (strcmp(mistake, "read-only") == 0) MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, &value);
    CHECK(0, "%s was no mistake", mistake);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "fatal");
    int value;
    if (rank == 1) make(argc > 1 ? argv[1] : "rank");
    MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0; /* never reached */
}
