/* One-sided calls on a communicator that lies in one cluster. (Debian's MPICH 4.0.2 alone puts to the wrong rank.) */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Comm comm;
    int me, n;
    start(&argc, &argv, "onesided");
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &comm);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    MPI_Win window;
    int *base, got = -1, value = me + 100;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &base, &window);
    *base = -1;
    MPI_Win_fence(0, window);
    MPI_Put(&value, 1, MPI_INT, (me + 1) % n, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    SAME(*base, (me + n - 1) % n + 100);
    MPI_Get(&got, 1, MPI_INT, (me + 1) % n, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    SAME(got, value);
    MPI_Win_free(&window);
    MPI_Comm_free(&comm);
    return finish();
}
