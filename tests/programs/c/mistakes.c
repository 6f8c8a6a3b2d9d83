/* Mistakes are told at once, to the error handler of the communicator concerned, and nothing is left behind or lost by them. Handlers of all
 * other communicators end the job. */
#include "check.h"

static MPI_Comm comm;
static int next, previous;

/* Is the next rank in another cluster? */
static int next_is_far(void)
{
    int mine = cluster_colour(), theirs;
    MPI_Sendrecv(&mine, 1, MPI_INT, previous, 1, &theirs, 1, MPI_INT, next, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return mine != theirs;
}

static void persistent(void)
{
    int value = 0;
    MPI_Request request;
    SAME(class_of(MPI_Recv_init(&value, -1, MPI_INT, previous, 1, comm, &request)), MPI_ERR_COUNT);
    SAME(class_of(MPI_Recv_init(&value, 1, MPI_INT, previous, -77, comm, &request)), MPI_ERR_TAG);
    SAME(class_of(MPI_Recv_init(&value, 1, MPI_INT, size, 1, comm, &request)), MPI_ERR_RANK);
    SAME(class_of(MPI_Recv_init(&value, 1, MPI_DATATYPE_NULL, MPI_ANY_SOURCE, 1, comm, &request)), MPI_ERR_TYPE);
    SAME(class_of(MPI_Send_init(&value, -1, MPI_INT, next, 1, comm, &request)), MPI_ERR_COUNT);
    SAME(class_of(MPI_Ssend_init(&value, 1, MPI_INT, next, -77, comm, &request)), MPI_ERR_TAG);
    SAME(class_of(MPI_Rsend_init(&value, 1, MPI_INT, size, 1, comm, &request)), MPI_ERR_RANK);
    SAME(class_of(MPI_Bsend_init(&value, 1, MPI_DATATYPE_NULL, next, 1, comm, &request)), MPI_ERR_TYPE);
    if (!next_is_far()) return;
    /* No buffer is attached. */
    SAME(MPI_Bsend_init(&value, 1, MPI_INT, next, 1, comm, &request), MPI_SUCCESS);
    SAME(class_of(MPI_Start(&request)), MPI_ERR_BUFFER);
    SAME(class_of(MPI_Startall(1, &request)), MPI_ERR_BUFFER);
    SAME(MPI_Request_free(&request), MPI_SUCCESS);
}

/* A send half that fails takes no message with it. */
static void exchange_on(MPI_Comm on, int to, int from)
{
    int value = 7, never = -1, got = -1;
    MPI_Status status;
    SAME(class_of(MPI_Sendrecv(&value, 1, MPI_INT, to, -77, &never, 1, MPI_INT, from, 3, on, &status)), MPI_ERR_TAG);
    SAME(class_of(MPI_Sendrecv(&value, -1, MPI_INT, to, 3, &never, 1, MPI_INT, MPI_ANY_SOURCE, 3, on, &status)), MPI_ERR_COUNT);
    SAME(class_of(MPI_Sendrecv(&value, 1, MPI_INT, 4096, 3, &never, 1, MPI_INT, from, MPI_ANY_TAG, on, &status)), MPI_ERR_RANK);
    MPI_Sendrecv(&value, 1, MPI_INT, to, 3, &got, 1, MPI_INT, from, 3, on, &status);
    SAME(got, 7);
    SAME(never, -1);
}

static void exchanges(void)
{
    MPI_Comm near;
    MPI_Request held;
    int me, n, got = -1;
    exchange_on(comm, next, previous);
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &near);
    MPI_Comm_set_errhandler(near, MPI_ERRORS_RETURN);
    MPI_Comm_rank(near, &me);
    MPI_Comm_size(near, &n);
    exchange_on(near, (me + 1) % n, (me + n - 1) % n);
    /* And while a wild receive is to be looked after. */
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &held);
    exchange_on(near, (me + 1) % n, (me + n - 1) % n);
    MPI_Send(&rank, 1, MPI_INT, next, 5, MPI_COMM_WORLD);
    MPI_Wait(&held, MPI_STATUS_IGNORE);
    SAME(got, previous);
    MPI_Comm_free(&near);
}

/* A matched message stays where it is until it is received without a mistake. */
static void matched(void)
{
    for (int way = 0; way < 2; way++) {
        int got = -1;
        MPI_Message message, before;
        MPI_Status status;
        MPI_Request request;
        MPI_Isend(&rank, 1, MPI_INT, next, 6, comm, &request);
        MPI_Mprobe(previous, 6, comm, &message, &status);
        before = message;
        if (way == 0) SAME(class_of(MPI_Mrecv(&got, -1, MPI_INT, &message, &status)), MPI_ERR_COUNT);
        else {
            MPI_Request never;
            SAME(class_of(MPI_Imrecv(&got, -1, MPI_INT, &message, &never)), MPI_ERR_COUNT);
        }
        CHECK(message == before, "a receive that failed took the message");
        MPI_Mrecv(&got, 1, MPI_INT, &message, &status);
        STATUS_IS(status, previous, 6, MPI_INT, 1);
        SAME(got, previous);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "mistakes");
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    persistent();
    exchanges();
    /* These calls name no communicator. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    matched();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&comm);
    return finish();
}
