/* Buffered sends and duplications within one cluster, while wild receives of both sides are to be served: whoever waits in MPI serves his. */
#include "check.h"

enum { LONG = 3 << 20 };

static MPI_Comm near;
static int me, n, next, previous; /* in `near`; the two last on the world */
static char *out, *in;

static void attach(void)
{
    int room = 2 * (LONG + MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(need(room), room);
}

static void detach(void)
{
    void *buffer;
    int room;
    MPI_Buffer_detach(&buffer, &room);
    SAME(room, 2 * (LONG + MPI_BSEND_OVERHEAD));
    free(buffer);
}

static void receive(MPI_Request *request)
{
    memset(in, 0, LONG);
    MPI_Irecv(in, LONG, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, request);
}

static void received(MPI_Request *request)
{
    MPI_Status status;
    MPI_Wait(request, &status);
    STATUS_IS(status, previous, 1, MPI_BYTE, LONG);
    VERIFY(in, LONG, previous);
}

/* Nobody goes on before his message was taken, which the other one does inside MPI_Buffer_detach. */
static void detaching(int held_first, int nonblocking)
{
    MPI_Request request, sent;
    attach();
    if (held_first) receive(&request);
    if (nonblocking) {
        MPI_Ibsend(out, LONG, MPI_BYTE, next, 1, MPI_COMM_WORLD, &sent);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
    } else {
        MPI_Bsend(out, LONG, MPI_BYTE, next, 1, MPI_COMM_WORLD);
    }
    if (!held_first) receive(&request);
    detach();
    received(&request);
    MPI_Barrier(near);
}

/* The same on the communicator of the cluster: one waits for his wild receive's message to be taken, before he takes what is buffered. */
static void on_the_cluster(void)
{
    MPI_Request request;
    if (me == 0) {
        attach();
        MPI_Bsend(out, LONG, MPI_BYTE, 1, 2, near);
        receive(&request);
        detach();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        VERIFY(in, LONG, next);
    } else if (me == 1) {
        int first;
        MPI_Recv(&first, 1, MPI_INT, 0, 3, near, MPI_STATUS_IGNORE);
        MPI_Ssend(out, LONG, MPI_BYTE, first, 1, MPI_COMM_WORLD);
        MPI_Recv(in, LONG, MPI_BYTE, 0, 2, near, MPI_STATUS_IGNORE);
        VERIFY(in, LONG, first);
    }
}

static void duplicating(void)
{
    MPI_Request request;
    MPI_Comm cart, copy;
    int dims[1] = {n}, periods[1] = {1}, kind, all, first = rank;
    MPI_Cart_create(near, 1, dims, periods, 0, &cart);
    MPI_Bcast(&first, 1, MPI_INT, 0, near);
    if (me == 0) MPI_Irecv(in, LONG, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request);
    if (me == 1) MPI_Ssend(out, LONG, MPI_BYTE, first, 1, MPI_COMM_WORLD);
    MPI_Comm_dup(cart, &copy);
    if (me == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        VERIFY(in, LONG, next);
    }
    MPI_Topo_test(copy, &kind);
    SAME(kind, MPI_CART);
    MPI_Comm_size(copy, &all);
    SAME(all, n);
    MPI_Cart_shift(copy, 0, 1, &kind, &all);
    SAME(all, (me + 1) % n);
    MPI_Comm_free(&copy);
    MPI_Comm_dup_with_info(near, MPI_INFO_NULL, &copy);
    MPI_Allreduce(MPI_IN_PLACE, &me, 1, MPI_INT, MPI_MAX, copy);
    SAME(me, n - 1);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&cart);
}

int main(int argc, char **argv)
{
    int ranks[256];
    start(&argc, &argv, "bsend_held");
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &near);
    MPI_Comm_rank(near, &me);
    MPI_Comm_size(near, &n);
    CHECK(n >= 2 && n <= 256, "%d ranks in a cluster", n);
    MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, near);
    next = ranks[(me + 1) % n], previous = ranks[(me + n - 1) % n];
    out = need(LONG), in = need(LONG);
    fill(out, LONG, rank);
    for (int way = 0; way < 4; way++) detaching(way & 1, way >> 1);
    /* Tells rank 1 where to send what rank 0 waits for. */
    if (me == 0) MPI_Send(&rank, 1, MPI_INT, 1, 3, near);
    on_the_cluster();
    MPI_Barrier(near);
    duplicating();
    free(out);
    free(in);
    MPI_Comm_free(&near);
    return finish();
}
