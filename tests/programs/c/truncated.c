/* A message longer than its receive buffer: MPI_ERR_TRUNCATE at the receiver, the rest goes on.
 *
 * Nothing may be written past the buffer. Open MPI alone does so with messages past its eager limit, so that much is
 * asked only of messages from other clusters. */
#include "check.h"

static char in[300001];

static void class_is(int code, int class, const char *what, int far)
{
    CHECK(class_of(code) == class, "%s from %s cluster: class %d, not %d", what, far ? "another" : "the same", class_of(code), class);
}

static void expect_truncation(int from, int bytes, int far)
{
    MPI_Status status;
    memset(in, 0x55, sizeof in);
    int code = MPI_Recv(in, 16, MPI_BYTE, from, 1, MPI_COMM_WORLD, &status);
    class_is(code, MPI_ERR_TRUNCATE, "MPI_Recv", far);
    for (int i = 16; far && i < (int)sizeof in; i++) SAME(in[i], 0x55);
    SAME(status.MPI_SOURCE, from);

    MPI_Request request[2];
    MPI_Status both[2];
    int fine = -1;
    MPI_Irecv(in, 16, MPI_BYTE, from, 1, MPI_COMM_WORLD, &request[0]);
    MPI_Irecv(&fine, 1, MPI_INT, from, 2, MPI_COMM_WORLD, &request[1]);
    code = MPI_Waitall(2, request, both);
    class_is(code, MPI_ERR_IN_STATUS, "MPI_Waitall", far);
    class_is(both[0].MPI_ERROR, MPI_ERR_TRUNCATE, "its status", far);
    while (class_of(both[1].MPI_ERROR) == MPI_ERR_PENDING) { /* allowed: not yet done */
        SAME(MPI_Wait(&request[1], &both[1]), MPI_SUCCESS);
        both[1].MPI_ERROR = MPI_SUCCESS;
    }
    SAME(both[1].MPI_ERROR, MPI_SUCCESS);
    SAME(fine, bytes);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {17, 5000, 300000};
    start(&argc, &argv, "truncated");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int colours[size], mine = cluster_colour();
    MPI_Allgather(&mine, 1, MPI_INT, colours, 1, MPI_INT, MPI_COMM_WORLD);
    for (int s = 0; s < 3; s++) {
        char *out = need(sizes[s]);
        MPI_Request request[3];
        memset(out, 0x11, sizes[s]);
        MPI_Isend(out, sizes[s], MPI_BYTE, next, 1, MPI_COMM_WORLD, &request[0]);
        MPI_Isend(out, sizes[s], MPI_BYTE, next, 1, MPI_COMM_WORLD, &request[1]);
        MPI_Isend(&sizes[s], 1, MPI_INT, next, 2, MPI_COMM_WORLD, &request[2]);
        expect_truncation(previous, sizes[s], colours[previous] != mine);
        MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
        free(out);
    }
    return finish();
}
