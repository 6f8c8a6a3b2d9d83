/* Wild receives with senders of this cluster and of others racing: nothing lost, nothing twice, order of each sender kept. */
#include "check.h"

enum { MESSAGES = 200, WINDOW = 16 };

struct message {
    int from, number;
};

static int expected[4096];

static void account(const struct message *m, const MPI_Status *status)
{
    STATUS_IS(*status, m->from, m->number % 5, MPI_BYTE, (int)sizeof *m);
    SAME(m->number, expected[m->from]);
    expected[m->from]++;
}

static void send_all(int to)
{
    for (int i = 0; i < MESSAGES; i++) {
        struct message m = {rank, i};
        MPI_Send(&m, sizeof m, MPI_BYTE, to, i % 5, MPI_COMM_WORLD);
    }
}

static void blocking_wild(void)
{
    for (int i = 0; i < MESSAGES * (size - 1); i++) {
        struct message m;
        MPI_Status status;
        MPI_Recv(&m, sizeof m, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        account(&m, &status);
    }
}

/* A window of wild receives posted ahead. They match in posting order, so they are looked at in that order. */
static void window_wild(void)
{
    struct message m[WINDOW];
    MPI_Request request[WINDOW];
    int total = MESSAGES * (size - 1), posted = 0;
    for (; posted < WINDOW && posted < total; posted++)
        MPI_Irecv(&m[posted], sizeof *m, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request[posted]);
    for (int i = 0; i < total; i++) {
        MPI_Status status;
        int slot = i % WINDOW;
        MPI_Wait(&request[slot], &status);
        account(&m[slot], &status);
        if (posted < total) {
            MPI_Irecv(&m[slot], sizeof *m, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request[slot]);
            posted++;
        }
    }
}

/* Concrete receives stand behind wild ones that could take the same messages: they get what the wild ones left. */
static void concrete_behind_wild(void)
{
    for (int round = 0; round < MESSAGES; round++) {
        int peers = size - 1, at = 0;
        struct message *m = need(peers * sizeof *m);
        MPI_Request *request = need(peers * sizeof *request);
        MPI_Status *status = need(peers * sizeof *status);
        MPI_Irecv(&m[at], sizeof *m, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request[at]);
        at++;
        MPI_Wait(&request[0], &status[0]); /* somebody's message number `round` */
        account(&m[0], &status[0]);
        for (int peer = 0; peer < size; peer++) {
            if (peer == rank || peer == status[0].MPI_SOURCE) continue;
            int tag = round % 2 ? MPI_ANY_TAG : round % 5;
            MPI_Irecv(&m[at], sizeof *m, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request[at]);
            at++;
        }
        MPI_Waitall(at - 1, request + 1, status + 1);
        for (int i = 1; i < at; i++) account(&m[i], &status[i]);
        free(m);
        free(request);
        free(status);
    }
}

/* The wild receive is posted first and takes the sender's first message; the concrete one gets the second. */
static void wild_then_concrete(void)
{
    int pair[2];
    for (int peer = 0; peer < size; peer++) {
        MPI_Request request[2];
        MPI_Status status[2];
        if (peer == rank) continue;
        MPI_Irecv(&pair[0], 1, MPI_INT, MPI_ANY_SOURCE, 50 + peer, MPI_COMM_WORLD, &request[0]);
        MPI_Irecv(&pair[1], 1, MPI_INT, peer, 50 + peer, MPI_COMM_WORLD, &request[1]);
        MPI_Send(NULL, 0, MPI_INT, peer, 40, MPI_COMM_WORLD); /* go */
        MPI_Waitall(2, request, status);
        SAME(pair[0], 1);
        SAME(pair[1], 2);
        SAME(status[0].MPI_SOURCE, peer);
    }
}

static void answer_wild_then_concrete(int sink)
{
    int first = 1, second = 2;
    MPI_Recv(NULL, 0, MPI_INT, sink, 40, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&first, 1, MPI_INT, sink, 50 + rank, MPI_COMM_WORLD);
    MPI_Send(&second, 1, MPI_INT, sink, 50 + rank, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static void (*const sinks[])(void) = {blocking_wild, window_wild, concrete_behind_wild};
    start(&argc, &argv, "wildcard");
    CHECK(size <= 4096, "the table holds 4096 ranks");
    for (int sink = 0; sink < size; sink++) {
        for (int way = 0; way < 3; way++) {
            memset(expected, 0, sizeof expected);
            if (rank == sink) sinks[way]();
            else send_all(sink);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        if (rank == sink) wild_then_concrete();
        else answer_wild_then_concrete(sink);
    }
    return finish();
}
