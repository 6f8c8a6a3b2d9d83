/* Collectives within one cluster, while one member alone holds a wild receive on the world: all members must come to the vendor by the same
 * procedure, and the receive is served meanwhile. */
#include "check.h"

static MPI_Comm comm;
static int me, n;
static int *all, *from, *ones, *places, *into;
static MPI_Datatype *types;

static int sum(int of) { return of * (of - 1) / 2; }

static void barrier(void) { MPI_Barrier(comm); }

static void bcast(void)
{
    int value = me == n - 1 ? 77 : 0;
    MPI_Bcast(&value, 1, MPI_INT, n - 1, comm);
    SAME(value, 77);
}

static void check_all(void)
{
    for (int r = 0; r < n; r++) SAME(all[r], r + 10);
}

static void gather(void)
{
    int mine = me + 10;
    MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, n - 1, comm);
    if (me == n - 1) check_all();
}

static void gatherv(void)
{
    int mine = me + 10;
    MPI_Gatherv(&mine, 1, MPI_INT, all, ones, places, MPI_INT, 0, comm);
    if (me == 0) check_all();
}

static void scatter(void)
{
    int mine = -1;
    MPI_Scatter(from, 1, MPI_INT, &mine, 1, MPI_INT, 0, comm);
    SAME(mine, me * 3);
}

static void scatterv(void)
{
    int mine = -1;
    MPI_Scatterv(from, ones, places, MPI_INT, &mine, 1, MPI_INT, n - 1, comm);
    SAME(mine, me * 3);
}

static void allgather(void)
{
    int mine = me + 10;
    MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm);
    check_all();
}

static void allgatherv(void)
{
    int mine = me + 10;
    MPI_Allgatherv(&mine, 1, MPI_INT, all, ones, places, MPI_INT, comm);
    check_all();
}

static void check_exchanged(void)
{
    for (int r = 0; r < n; r++) SAME(into[r], me * 3);
}

static void alltoall(void)
{
    MPI_Alltoall(from, 1, MPI_INT, into, 1, MPI_INT, comm);
    check_exchanged();
}

static void alltoallv(void)
{
    MPI_Alltoallv(from, ones, places, MPI_INT, into, ones, places, MPI_INT, comm);
    check_exchanged();
}

static void alltoallw(void)
{
    int bytes[n];
    for (int r = 0; r < n; r++) bytes[r] = r * (int)sizeof(int);
    MPI_Alltoallw(from, ones, bytes, types, into, ones, bytes, types, comm);
    check_exchanged();
}

static void reduce(void)
{
    int total = -1;
    MPI_Reduce(&me, &total, 1, MPI_INT, MPI_SUM, n - 1, comm);
    if (me == n - 1) SAME(total, sum(n));
}

static void allreduce(void)
{
    int total = me;
    MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_INT, MPI_SUM, comm);
    SAME(total, sum(n));
}

static void reduce_scatter(void)
{
    int mine = -1;
    MPI_Reduce_scatter(from, &mine, ones, MPI_INT, MPI_SUM, comm);
    SAME(mine, me * 3 * n);
}

static void reduce_scatter_block(void)
{
    int mine = -1;
    MPI_Reduce_scatter_block(from, &mine, 1, MPI_INT, MPI_SUM, comm);
    SAME(mine, me * 3 * n);
}

static void scan(void)
{
    int total = -1;
    MPI_Scan(&me, &total, 1, MPI_INT, MPI_SUM, comm);
    SAME(total, sum(me + 1));
}

static void exscan(void)
{
    int total = 0;
    MPI_Exscan(&me, &total, 1, MPI_INT, MPI_SUM, comm);
    if (me > 0) SAME(total, sum(me));
}

static void (*const collectives[])(void) = {
    barrier,  bcast,     gather,    gatherv,   scatter, scatterv,  allgather,      allgatherv,           alltoall,
    alltoallv, alltoallw, reduce,    allreduce, scan,    exscan,    reduce_scatter, reduce_scatter_block,
};

static void prepare(void)
{
    all = need(n * sizeof *all);
    from = need(n * sizeof *from);
    into = need(n * sizeof *into);
    ones = need(n * sizeof *ones);
    places = need(n * sizeof *places);
    types = need(n * sizeof *types);
    for (int r = 0; r < n; r++) {
        from[r] = r * 3;
        ones[r] = 1;
        places[r] = r;
        types[r] = MPI_INT;
    }
}

/* One member holds a receive over the collective, and the one after it sends only when it is through. */
static void one_holds(int holder, int which)
{
    int sender = (holder + 1) % n, at = rank, got = -1;
    MPI_Request request;
    MPI_Status status;
    MPI_Bcast(&at, 1, MPI_INT, holder, comm);
    for (int r = 0; r < n; r++) all[r] = into[r] = -1;
    if (me == holder) MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 100 + which, MPI_COMM_WORLD, &request);
    collectives[which]();
    if (me == sender) MPI_Send(&which, 1, MPI_INT, at, 100 + which, MPI_COMM_WORLD);
    if (me == holder) {
        MPI_Wait(&request, &status);
        SAME(got, which);
    }
}

/* The receive is served although its owner is inside a collective until somebody has sent to it. */
static void served_inside(void)
{
    enum { LONG = 1 << 20 };
    int first = rank;
    char *data = need(LONG);
    MPI_Request request;
    MPI_Bcast(&first, 1, MPI_INT, 0, comm);
    if (me == 0) MPI_Irecv(data, LONG, MPI_BYTE, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &request);
    if (me == n - 1) {
        fill(data, LONG, 5);
        if (me != 0) MPI_Ssend(data, LONG, MPI_BYTE, first, 99, MPI_COMM_WORLD);
        else MPI_Send(data, LONG, MPI_BYTE, first, 99, MPI_COMM_WORLD);
    }
    MPI_Barrier(comm);
    if (me == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        VERIFY(data, LONG, 5);
    }
    free(data);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "within");
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &comm);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    prepare();
    for (int which = 0; which < (int)(sizeof collectives / sizeof *collectives); which++)
        for (int holder = 0; n > 1 && holder < n; holder++) one_holds(holder, which);
    if (n > 1) served_inside();
    MPI_Comm_free(&comm);
    return finish();
}
