/* A communicator that is given back while messages are under way on it goes when the last of them has ended, in MPI_Finalize at the
 * latest: its attributes are deleted then. */
#include "check.h"

static int deleted;

static int delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deleted++;
    return MPI_SUCCESS;
}

static int failed;

static void note(MPI_Comm *comm, int *code, ...)
{
    int n;
    MPI_Comm_size(*comm, &n);
    SAME(n, size);
    failed = class_of(*code);
}

static MPI_Comm marked(int key)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_attr(comm, key, &deleted);
    return comm;
}

/* Its last receive fails, and so by the communicator's own handler. MPICH forgets that of a message of its own. */
static void fails(int key)
{
    int in, out[4] = {1, 2, 3, 4}, before = deleted;
    MPI_Comm comm = marked(key);
    MPI_Request request;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(note, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    if (rank == 0) MPI_Irecv(&in, 1, MPI_INT, size - 1, 1, comm, &request);
    MPI_Barrier(comm);
    if (rank == size - 1) MPI_Send(out, 4, MPI_INT, 0, 1, comm);
    MPI_Comm_free(&comm);
    if (rank == 0) {
        SAME(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_TRUNCATE);
        SAME(failed, MPI_ERR_TRUNCATE);
    }
    SAME(deleted - before, 1);
}

int main(int argc, char **argv)
{
    int key, in[3], kept;
    MPI_Request request[4];
    MPI_Comm comm;
    start(&argc, &argv, "freed");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &key, NULL);

    comm = marked(key);
    MPI_Irecv(&in[0], 1, MPI_INT, previous, 1, comm, &request[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, MPI_ANY_SOURCE, 2, comm, &request[1]);
    MPI_Recv_init(&in[2], 1, MPI_INT, previous, 3, comm, &request[2]);
    MPI_Start(&request[2]);
    for (int tag = 1; tag <= 3; tag++) MPI_Send(&rank, 1, MPI_INT, next, tag, comm);
    MPI_Comm_free(&comm);
    CHECK(comm == MPI_COMM_NULL, "a communicator that was freed is still there");
    MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3; i++) SAME(in[i], previous);
    MPI_Request_free(&request[2]);
    SAME(deleted, 1);

    deleted = 0;
    if (is_spanning(MPI_COMM_WORLD)) fails(key);
    deleted = 1;

    /* Nobody asks for the end of these. */
    comm = marked(key);
    MPI_Irecv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &request[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, previous, 2, comm, &request[1]);
    for (int tag = 1; tag <= 2; tag++) MPI_Isend(&rank, 1, MPI_INT, next, tag, comm, &request[1 + tag]);
    MPI_Comm_free(&comm);
    for (int i = 0; i < 4; i++) MPI_Request_free(&request[i]);
    MPI_Comm_free_keyval(&key);
    /* What follows them on the same way has come: so have they. A barrier may go another way. */
    MPI_Sendrecv(&rank, 1, MPI_INT, next, 4, &in[2], 1, MPI_INT, previous, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    kept = 2 - deleted;
    if (kept != 0) printf("FAIL freed: rank %d: %d communicators were never freed\n", rank, kept);
    else if (rank == 0) printf("ok freed on %d ranks\n", size);
    return kept != 0;
}
