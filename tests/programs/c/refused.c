/* What is not served on a communicator that spans clusters is refused by name, and works on one that does not.
 *
 * Each case runs twice: on a communicator of one cluster, where it must succeed, and on the world. If the world spans
 * clusters, the procedure must return MPI_ERR_UNSUPPORTED_OPERATION; if not, it must succeed there too.
 * A refusal is decided alike on every rank, so no rank waits for another in it. */
#include "check.h"

static int me, n, buffer[4096], out[4096], counts[64], places[64], next[1], previous[1];

/* Complete a request if the call that made it succeeded. */
static int after(int code, MPI_Request *request)
{
    if (code == MPI_SUCCESS) MPI_Wait(request, MPI_STATUS_IGNORE);
    return code;
}

static MPI_Comm ring(MPI_Comm comm)
{
    MPI_Comm topology = MPI_COMM_NULL;
    next[0] = (me + 1) % n;
    previous[0] = (me + n - 1) % n;
    MPI_Dist_graph_create_adjacent(comm, 1, previous, MPI_UNWEIGHTED, 1, next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &topology);
    MPI_Comm_set_errhandler(topology, MPI_ERRORS_RETURN);
    return topology;
}

#define REQUEST_CASE(name, call)                                                                  \
    static int name(MPI_Comm comm)                                                                \
    {                                                                                             \
        MPI_Request request = MPI_REQUEST_NULL;                                                   \
        return after(call, &request);                                                             \
    }

REQUEST_CASE(ibarrier, MPI_Ibarrier(comm, &request))
REQUEST_CASE(ibcast, MPI_Ibcast(buffer, 4, MPI_INT, 0, comm, &request))
REQUEST_CASE(igather, MPI_Igather(out, 1, MPI_INT, buffer, 1, MPI_INT, 0, comm, &request))
REQUEST_CASE(igatherv, MPI_Igatherv(out, 1, MPI_INT, buffer, counts, places, MPI_INT, 0, comm, &request))
REQUEST_CASE(iscatter, MPI_Iscatter(out, 1, MPI_INT, buffer, 1, MPI_INT, 0, comm, &request))
REQUEST_CASE(iscatterv, MPI_Iscatterv(out, counts, places, MPI_INT, buffer, 1, MPI_INT, 0, comm, &request))
REQUEST_CASE(iallgather, MPI_Iallgather(out, 1, MPI_INT, buffer, 1, MPI_INT, comm, &request))
REQUEST_CASE(iallgatherv, MPI_Iallgatherv(out, 1, MPI_INT, buffer, counts, places, MPI_INT, comm, &request))
REQUEST_CASE(ialltoall, MPI_Ialltoall(out, 1, MPI_INT, buffer, 1, MPI_INT, comm, &request))
REQUEST_CASE(ialltoallv, MPI_Ialltoallv(out, counts, places, MPI_INT, buffer, counts, places, MPI_INT, comm, &request))
REQUEST_CASE(ireduce, MPI_Ireduce(out, buffer, 1, MPI_INT, MPI_SUM, 0, comm, &request))
REQUEST_CASE(iallreduce, MPI_Iallreduce(out, buffer, 1, MPI_INT, MPI_SUM, comm, &request))
REQUEST_CASE(ireduce_scatter, MPI_Ireduce_scatter(out, buffer, counts, MPI_INT, MPI_SUM, comm, &request))
REQUEST_CASE(ireduce_scatter_block, MPI_Ireduce_scatter_block(out, buffer, 1, MPI_INT, MPI_SUM, comm, &request))
REQUEST_CASE(iscan, MPI_Iscan(out, buffer, 1, MPI_INT, MPI_SUM, comm, &request))
REQUEST_CASE(iexscan, MPI_Iexscan(out, buffer, 1, MPI_INT, MPI_SUM, comm, &request))

static int ialltoallw(MPI_Comm comm)
{
    MPI_Datatype types[64];
    MPI_Request request = MPI_REQUEST_NULL;
    int bytes[64];
    for (int r = 0; r < n; r++) types[r] = MPI_INT, bytes[r] = r * (int)sizeof(int);
    return after(MPI_Ialltoallw(out, counts, bytes, types, buffer, counts, bytes, types, comm, &request), &request);
}

static int idup(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm dup = MPI_COMM_NULL;
    int code = after(MPI_Comm_idup(comm, &dup, &request), &request);
    if (code == MPI_SUCCESS) MPI_Comm_free(&dup);
    return code;
}

#define NEIGHBOR_CASE(name, call)                                                                 \
    static int name(MPI_Comm comm)                                                                \
    {                                                                                             \
        MPI_Comm topology = ring(comm);                                                           \
        int code = call;                                                                          \
        MPI_Comm_free(&topology);                                                                 \
        return code;                                                                              \
    }

NEIGHBOR_CASE(neighbor_allgather, MPI_Neighbor_allgather(out, 1, MPI_INT, buffer, 1, MPI_INT, topology))
NEIGHBOR_CASE(neighbor_allgatherv, MPI_Neighbor_allgatherv(out, 1, MPI_INT, buffer, counts, places, MPI_INT, topology))
NEIGHBOR_CASE(neighbor_alltoall, MPI_Neighbor_alltoall(out, 1, MPI_INT, buffer, 1, MPI_INT, topology))
NEIGHBOR_CASE(neighbor_alltoallv, MPI_Neighbor_alltoallv(out, counts, places, MPI_INT, buffer, counts, places, MPI_INT, topology))

static int ineighbor_allgather(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm topology = ring(comm);
    int code = after(MPI_Ineighbor_allgather(out, 1, MPI_INT, buffer, 1, MPI_INT, topology, &request), &request);
    MPI_Comm_free(&topology);
    return code;
}

#define WINDOW_CASE(name, call)                                                                   \
    static int name(MPI_Comm comm)                                                                \
    {                                                                                             \
        MPI_Win window = MPI_WIN_NULL;                                                            \
        void *base = buffer;                                                                      \
        int code = call;                                                                          \
        (void)base;                                                                               \
        if (code == MPI_SUCCESS) MPI_Win_free(&window);                                           \
        return code;                                                                              \
    }

WINDOW_CASE(win_create, MPI_Win_create(base, sizeof buffer, 4, MPI_INFO_NULL, comm, &window))
WINDOW_CASE(win_allocate, MPI_Win_allocate(4096, 4, MPI_INFO_NULL, comm, &base, &window))
WINDOW_CASE(win_create_dynamic, MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window))
WINDOW_CASE(win_allocate_shared, MPI_Win_allocate_shared(4096, 4, MPI_INFO_NULL, comm, &base, &window))

static int file_open(MPI_Comm comm)
{
    MPI_File file;
    char name[64];
    int colour = cluster_colour();
    snprintf(name, sizeof name, "/tmp/gridmpi-test-%d-%d", colour, (int)(comm == MPI_COMM_WORLD));
    int code = MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    if (code == MPI_SUCCESS) MPI_File_close(&file);
    return code;
}

/* Both halves of the communicator, joined by leaders on it. */
static int intercomm_create(MPI_Comm comm)
{
    if (n < 2) return MPI_SUCCESS;
    MPI_Comm half, inter, merged;
    int low = me < n / 2;
    MPI_Comm_split(comm, low, me, &half);
    MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
    int code = MPI_Intercomm_create(half, 0, comm, low ? n / 2 : 0, 5, &inter);
    if (code == MPI_SUCCESS) {
        MPI_Intercomm_merge(inter, low, &merged);
        MPI_Comm_free(&merged);
        MPI_Comm_free(&inter);
    }
    MPI_Comm_free(&half);
    return code;
}

struct test {
    const char *name;
    int (*call)(MPI_Comm);
};

static const struct test tests[] = {
    {"MPI_Ibarrier", ibarrier}, {"MPI_Ibcast", ibcast}, {"MPI_Igather", igather}, {"MPI_Igatherv", igatherv},
    {"MPI_Iscatter", iscatter}, {"MPI_Iscatterv", iscatterv}, {"MPI_Iallgather", iallgather}, {"MPI_Iallgatherv", iallgatherv},
    {"MPI_Ialltoall", ialltoall}, {"MPI_Ialltoallv", ialltoallv}, {"MPI_Ialltoallw", ialltoallw}, {"MPI_Ireduce", ireduce},
    {"MPI_Iallreduce", iallreduce}, {"MPI_Ireduce_scatter", ireduce_scatter}, {"MPI_Ireduce_scatter_block", ireduce_scatter_block},
    {"MPI_Iscan", iscan}, {"MPI_Iexscan", iexscan}, {"MPI_Comm_idup", idup},
    {"MPI_Neighbor_allgather", neighbor_allgather}, {"MPI_Neighbor_allgatherv", neighbor_allgatherv},
    {"MPI_Neighbor_alltoall", neighbor_alltoall}, {"MPI_Neighbor_alltoallv", neighbor_alltoallv},
    {"MPI_Ineighbor_allgather", ineighbor_allgather},
    {"MPI_Win_create", win_create}, {"MPI_Win_allocate", win_allocate}, {"MPI_Win_create_dynamic", win_create_dynamic},
    {"MPI_Win_allocate_shared", win_allocate_shared}, {"MPI_File_open", file_open}, {"MPI_Intercomm_create", intercomm_create},
};

static void prepare(MPI_Comm comm)
{
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    CHECK(n <= 64, "the tables hold 64 ranks");
    for (int r = 0; r < n; r++) counts[r] = 1, places[r] = r;
}

static void run(const struct test *test, MPI_Comm comm, int refused)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    prepare(comm);
    int code = test->call(comm);
    MPI_Error_string(code, text, &length);
    if (refused)
        CHECK(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION, "%s across clusters: %s", test->name, text);
    else
        CHECK(code == MPI_SUCCESS, "%s: %s", test->name, text);
    if (refused && rank == 0) printf("refused %s\n", test->name);
}

/* Calls that end in a process of another job, or need one: refused where GridMPI is at work across clusters. */
static void spawn(int refused)
{
    if (!refused) return; /* whether a vendor can spawn here is not our question */
    MPI_Comm inter;
    char port[MPI_MAX_PORT_NAME] = "";
    int code = MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    CHECK(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Comm_spawn returned %d", code);
    code = MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    CHECK(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Comm_accept returned %d", code);
    code = MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    CHECK(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Comm_connect returned %d", code);
    if (rank == 0) printf("refused MPI_Comm_spawn\nrefused MPI_Comm_accept\nrefused MPI_Comm_connect\n");
}

#if MPI_VERSION >= 4
static void four(int refused)
{
    if (!refused) return;
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = (rank + 1) % size, code;
    code = MPI_Psend_init(out, 1, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    CHECK(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Psend_init returned %d", code);
    code = MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    CHECK(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Barrier_init returned %d", code);
    if (rank == 0) printf("refused MPI_Psend_init\nrefused MPI_Barrier_init\n");
}
#endif

int main(int argc, char **argv)
{
    start(&argc, &argv, "refused");
    MPI_Comm cluster, shared;
    int spanning = is_spanning(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &cluster);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    for (unsigned t = 0; t < sizeof tests / sizeof *tests; t++) {
        int needs_shared = tests[t].call == win_allocate_shared;
        if (argc > 1 && strcmp(argv[1], tests[t].name) != 0) continue;
        run(&tests[t], needs_shared ? shared : cluster, 0);
        if (spanning || !needs_shared) run(&tests[t], MPI_COMM_WORLD, spanning);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    spawn(spanning);
#if MPI_VERSION >= 4
    four(spanning);
#endif
    MPI_Comm_free(&cluster);
    MPI_Comm_free(&shared);
    return finish();
}
