/* Every send mode, blocking and nonblocking, between every ordered pair of ranks, at sizes around the protocol's limits. */
#include "check.h"

enum mode { STANDARD, SYNCHRONOUS, BUFFERED, READY, MODES };

static const int sizes[] = {0, 1, 17, 1000, 65536, 65537, 300001};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void send_blocking(enum mode mode, void *data, int bytes, int to, int tag)
{
    switch (mode) {
    case STANDARD: MPI_Send(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD); break;
    case SYNCHRONOUS: MPI_Ssend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD); break;
    case BUFFERED: MPI_Bsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD); break;
    default: MPI_Rsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD); break;
    }
}

static void send_nonblocking(enum mode mode, void *data, int bytes, int to, int tag)
{
    MPI_Request request;
    switch (mode) {
    case STANDARD: MPI_Isend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request); break;
    case SYNCHRONOUS: MPI_Issend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request); break;
    case BUFFERED: MPI_Ibsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request); break;
    default: MPI_Irsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request); break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(request == MPI_REQUEST_NULL, "a completed request is still there");
}

/* One message of every size from one rank to another. The receiver posts first and says so: ready mode needs it. */
static void sender(enum mode mode, int nonblocking, int to)
{
    for (int s = 0; s < SIZES; s++) {
        char *data = need(sizes[s]);
        fill(data, sizes[s], rank * 100 + s);
        MPI_Recv(NULL, 0, MPI_BYTE, to, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        (nonblocking ? send_nonblocking : send_blocking)(mode, data, sizes[s], to, s);
        memset(data, 0, sizes[s]); /* the buffer is ours again */
        free(data);
    }
}

static void receiver(int from)
{
    for (int s = 0; s < SIZES; s++) {
        char *data = need(sizes[s]);
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(data, sizes[s], MPI_BYTE, from, s, MPI_COMM_WORLD, &request);
        MPI_Send(NULL, 0, MPI_BYTE, from, 99, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        STATUS_IS(status, from, s, MPI_BYTE, sizes[s]);
        VERIFY(data, sizes[s], from * 100 + s);
        free(data);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "modes");
    int room = 400000 + MPI_BSEND_OVERHEAD, detached_size;
    void *buffer = need(room), *detached;
    MPI_Buffer_attach(buffer, room);
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            for (int form = 0; from != to && form < 2 * MODES; form++) {
                if (rank == from) sender(form / 2, form % 2, to);
                if (rank == to) receiver(from);
            }
    MPI_Buffer_detach(&detached, &detached_size);
    CHECK(detached == buffer, "another buffer came back");
    SAME(detached_size, room);
    free(buffer);
    return finish();
}
