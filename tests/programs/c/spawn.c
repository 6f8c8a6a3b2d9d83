/* A rank spawns a process on a communicator of one cluster: it is the vendor's, with a world of its own. */
#include "check.h"

static void child(MPI_Comm parent)
{
    int value, size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Recv(&value, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE);
    value = size == 1 ? value + 1 : -1;
    MPI_Send(&value, 1, MPI_INT, 0, 0, parent);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    MPI_Comm parent, other;
    int error, value = 41;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        child(parent);
        return 0;
    }
    setup("spawn");
    if (rank == 0 || rank == size - 1) {
        SAME(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other, &error), MPI_SUCCESS);
        MPI_Send(&value, 1, MPI_INT, 0, 0, other);
        MPI_Recv(&value, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
        SAME(value, 42);
        MPI_Comm_disconnect(&other);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return finish();
}
