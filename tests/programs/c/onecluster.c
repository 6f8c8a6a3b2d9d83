/* A communicator that lies in one cluster is the vendor's own: files, neighbours, nonblocking collectives and the rest work there. */
#include "check.h"

static MPI_Comm comm;
static int me, n;

static void file(void)
{
    MPI_File handle;
    char name[64];
    int value = me * 3, got = -1;
    snprintf(name, sizeof name, "/tmp/gridmpi-onecluster-%d", cluster_colour());
    MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &handle);
    MPI_File_write_at_all(handle, me * (MPI_Offset)sizeof value, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(handle);
    MPI_Barrier(comm);
    MPI_File_sync(handle);
    MPI_File_read_at_all(handle, (me + 1) % n * (MPI_Offset)sizeof value, &got, 1, MPI_INT, MPI_STATUS_IGNORE);
    SAME(got, (me + 1) % n * 3);
    MPI_File_close(&handle);
}

static void nonblocking_and_neighbours(void)
{
    int sum, dims[1] = {n}, periods[1] = {1}, around[2];
    MPI_Request request[2];
    MPI_Comm cart;
    MPI_Iallreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm, &request[0]);
    MPI_Ibarrier(comm, &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    SAME(sum, n * (n - 1) / 2);
    MPI_Cart_create(comm, 1, dims, periods, 0, &cart);
    MPI_Neighbor_allgather(&me, 1, MPI_INT, around, 1, MPI_INT, cart);
    SAME(around[0], (me + n - 1) % n);
    SAME(around[1], (me + 1) % n);
    MPI_Comm_free(&cart);
}

/* Requests of the cluster and of the world in one array. */
static void together(void)
{
    MPI_Request request[3];
    int near = -1, far = -1, sum;
    MPI_Irecv(&near, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &request[0]);
    MPI_Irecv(&far, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request[1]);
    MPI_Iallreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm, &request[2]);
    MPI_Send(&me, 1, MPI_INT, (me + 1) % n, 1, comm);
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
    MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
    SAME(near, (me + n - 1) % n);
    SAME(far, (rank + size - 1) % size);
    SAME(sum, n * (n - 1) / 2);
}

static void self(void)
{
    MPI_Request request;
    MPI_Win window;
    int *base;
    MPI_Ibarrier(MPI_COMM_SELF, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_SELF, &base, &window);
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "onecluster");
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &comm);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    file();
    nonblocking_and_neighbours();
    together();
    self();
    MPI_Comm_free(&comm);
    return finish();
}
