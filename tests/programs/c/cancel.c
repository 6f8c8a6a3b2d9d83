/* Cancelled receives take nothing; freed requests still complete; Request_get_status looks without completing. */
#include "check.h"

static void cancel_unmatched(int from)
{
    int value = -1, cancelled;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, from, 1, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled, "nobody sends before the barrier, so the receive from %d must be cancelled", from);
    CHECK(request == MPI_REQUEST_NULL, "the cancelled request is still there");
    SAME(value, -1);
}

/* A receive that has its message can no longer be cancelled: exactly one of the two happens. */
static void cancel_matched(int from)
{
    int value = -1, cancelled, found = 0;
    MPI_Request request;
    MPI_Status status;
    while (!found) MPI_Iprobe(from, 2, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    MPI_Irecv(&value, 1, MPI_INT, from, 2, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    if (cancelled) MPI_Recv(&value, 1, MPI_INT, from, 2, MPI_COMM_WORLD, &status);
    STATUS_IS(status, from, 2, MPI_INT, 1);
    SAME(value, from * 10);
}

static void look_without_completing(int from)
{
    int value = -1, done = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &request);
    while (!done) MPI_Request_get_status(request, &done, &status);
    STATUS_IS(status, from, 3, MPI_INT, 1);
    CHECK(request != MPI_REQUEST_NULL, "looking at the request completed it");
    MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    SAME(done, 1);
    MPI_Wait(&request, &status);
    STATUS_IS(status, from, 3, MPI_INT, 1);
    SAME(value, from * 10);
    done = 0;
    MPI_Request_get_status(MPI_REQUEST_NULL, &done, &status);
    SAME(done, 1);
    SAME(status.MPI_SOURCE, MPI_ANY_SOURCE);
}

/* Freed while in flight: the transfers still take place. */
static void freed_in_flight(int peer)
{
    static int out[20000], in[20000];
    MPI_Request request;
    for (int i = 0; i < 20000; i++) out[i] = rank + i, in[i] = -1;
    MPI_Irecv(in, 20000, MPI_INT, peer, 4, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    CHECK(request == MPI_REQUEST_NULL, "a freed request is still there");
    MPI_Isend(out, 20000, MPI_INT, peer, 4, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    /* What follows on the same path tells when it has arrived. */
    MPI_Sendrecv(NULL, 0, MPI_INT, peer, 5, NULL, 0, MPI_INT, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    volatile int *last = &in[19999];
    double limit = MPI_Wtime() + 20;
    while (*last != peer + 19999 && MPI_Wtime() < limit) {
        int flag;
        MPI_Iprobe(peer, 6, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 20000; i++) SAME(in[i], peer + i);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "cancel");
    for (int peer = 0; peer < size; peer++)
        if (peer != rank) cancel_unmatched(peer);
    cancel_unmatched(MPI_ANY_SOURCE);
    MPI_Barrier(MPI_COMM_WORLD);

    int next = (rank + 1) % size, previous = (rank + size - 1) % size, value = rank * 10;
    MPI_Request request[3];
    for (int i = 0; i < 3; i++) MPI_Isend(&value, 1, MPI_INT, next, 1 + i, MPI_COMM_WORLD, &request[i]);
    int got = -1;
    MPI_Recv(&got, 1, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SAME(got, previous * 10); /* what the cancelled receives did not take */
    cancel_matched(previous);
    look_without_completing(previous);
    MPI_Waitall(3, request, MPI_STATUSES_IGNORE);

    for (int distance = 1; distance < size; distance++) {
        int peer = (distance - rank + size) % size; /* a pairing that is its own inverse */
        if (peer != rank) freed_in_flight(peer);
        else MPI_Barrier(MPI_COMM_WORLD);
    }
    return finish();
}
