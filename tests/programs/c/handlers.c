/* Functions of the program's that MPI calls back ask MPI: they are answered as the program is, and nothing of ours is locked meanwhile. */
#include "check.h"

static MPI_Request request;
static int calls, class;

static void ask(MPI_Comm *comm, int *code, ...)
{
    int flag, n, me;
    MPI_Status status;
    calls++;
    class = class_of(*code);
    MPI_Comm_size(*comm, &n);
    MPI_Comm_rank(*comm, &me);
    /* MPICH forgets the communicator of a truncated receive, and takes another one's handler. */
    SAME(n, *comm == MPI_COMM_SELF ? 1 : size);
    SAME(me, *comm == MPI_COMM_SELF ? 0 : rank);
    MPI_Request_get_status(request, &flag, &status);
}

/* A persistent receive gets more than it has room for. */
static void truncated(MPI_Comm comm, int from)
{
    int small[2] = {0, 0}, large[64] = {0}, flag = 0;
    for (int round = 0; round < 2; round++) {
        MPI_Status status;
        if (round == 0) MPI_Recv_init(small, 2, MPI_INT, from, 5, comm, &request);
        MPI_Start(&request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 4, &flag, 1, MPI_INT, (rank + size - 1) % size, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(large, 64, MPI_INT, (rank + 1) % size, 5, comm);
        calls = 0;
        MPI_Wait(&request, &status);
        CHECK(calls > 0, "no error handler ran");
        SAME(class, MPI_ERR_TRUNCATE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Request_free(&request);
}

static int right, wrong;

static void count_right(MPI_Comm *comm, int *code, ...) { (void)comm, right++, class = class_of(*code); }
static void count_wrong(MPI_Comm *comm, int *code, ...) { (void)comm, (void)code, wrong++; }

/* The code does not matter: MPICH 5 returns MPI_SUCCESS once a function of the program's has seen the error. */
static void is_right(int code, int expected)
{
    (void)code;
    SAME(wrong, 0);
    SAME(right, expected);
    SAME(class, MPI_ERR_TRUNCATE);
}

/* Blocking calls get more than they have room for, from another member of the cluster. */
static void truncated_by_a_neighbour(MPI_Comm comm, int peer, int far)
{
    int small[2], large[64] = {0};
    MPI_Status status;
    MPI_Request sent;
    right = wrong = 0;
    is_right(MPI_Sendrecv(large, 64, MPI_INT, peer, 6, small, 2, MPI_INT, peer, 6, comm, &status), 1);
    is_right(MPI_Sendrecv(large, 64, MPI_INT, peer, 6, small, 2, MPI_INT, peer, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE), 2);
    MPI_Isend(large, 64, MPI_INT, peer, 7, comm, &sent);
    is_right(MPI_Recv(small, 2, MPI_INT, peer, 7, comm, &status), 3);
    SAME(status.MPI_SOURCE, peer);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    if (far == MPI_PROC_NULL) return;
    /* The other half goes to another cluster. */
    MPI_Isend(large, 64, MPI_INT, peer, 8, comm, &sent);
    is_right(MPI_Sendrecv(&rank, 1, MPI_INT, far, 8, small, 2, MPI_INT, peer, 8, comm, &status), 4);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Recv(&far, 1, MPI_INT, far, 8, comm, MPI_STATUS_IGNORE);
}

static void blocking(void)
{
    int n, me;
    MPI_Comm all, near;
    MPI_Request wild;
    MPI_Errhandler handler[2];
    MPI_Comm_create_errhandler(count_right, &handler[0]);
    MPI_Comm_create_errhandler(count_wrong, &handler[1]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler[1]);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler[1]);
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &near);
    MPI_Comm_set_errhandler(all, handler[0]);
    MPI_Comm_set_errhandler(near, handler[0]);
    MPI_Comm_size(near, &n);
    MPI_Comm_rank(near, &me);
    int ranks[n];
    MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, near);
    int other = 2 * n == size ? (rank + n) % size : MPI_PROC_NULL;
    for (int held = 0; held < 2; held++) {
        if (held) MPI_Irecv(NULL, 0, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &wild);
        if ((me ^ 1) < n) {
            truncated_by_a_neighbour(all, ranks[me ^ 1], other);
            truncated_by_a_neighbour(near, me ^ 1, MPI_PROC_NULL);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (!held) continue;
        MPI_Send(NULL, 0, MPI_INT, (rank + 1) % size, 9, MPI_COMM_WORLD);
        MPI_Wait(&wild, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 2; i++) MPI_Errhandler_free(&handler[i]);
    MPI_Comm_free(&near);
    MPI_Comm_free(&all);
}

/* An operation may ask about its communicator, wherever it runs. */
static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int n = -1, me = -1, *from = in, *into = inout;
    (void)type;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    SAME(n, size);
    SAME(me, rank);
    for (int i = 0; i < *count; i++) into[i] += from[i];
}

static void operations(MPI_Comm comm)
{
    int n, me;
    MPI_Op op;
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &me);
    for (int commutative = 0; commutative < 2; commutative++)
        for (int count = 1; count <= 10000; count *= 100) {
            int *in = need(count * sizeof *in), *out = need(count * sizeof *out);
            MPI_Op_create(add, commutative, &op);
            for (int i = 0; i < count; i++) in[i] = me + 1;
            MPI_Allreduce(in, out, count, MPI_INT, op, comm);
            SAME(out[count - 1], n * (n + 1) / 2);
            MPI_Reduce(in, out, count, MPI_INT, op, n - 1, comm);
            MPI_Scan(in, out, count, MPI_INT, op, comm);
            SAME(out[count - 1], (me + 1) * (me + 2) / 2);
            MPI_Op_free(&op);
            free(in);
            free(out);
        }
}

int main(int argc, char **argv)
{
    MPI_Comm comm, near;
    MPI_Errhandler handler;
    start(&argc, &argv, "handlers");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(ask, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    truncated(comm, (rank + size - 1) % size);
    blocking();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    operations(comm);
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &near);
    operations(near);
    MPI_Comm_free(&near);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    return finish();
}
