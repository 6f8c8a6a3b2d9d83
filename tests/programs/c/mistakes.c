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

int main(int argc, char **argv)
{
    start(&argc, &argv, "mistakes");
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    persistent();
    MPI_Comm_free(&comm);
    return finish();
}
