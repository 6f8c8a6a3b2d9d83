/* The probe family: Probe, Iprobe, Mprobe, Improbe with Mrecv and Imrecv, with concrete and wild sources and tags. */
#include "check.h"

enum { TAG = 11, ROUNDS = 6 };

static int bytes_from(int from, int round) { return from * 7 + round * 1000 + (round == 5 ? 200000 : 0); }

static void *received(const MPI_Status *status, int *from, int *bytes)
{
    *from = status->MPI_SOURCE;
    MPI_Get_count(status, MPI_BYTE, bytes);
    return need(*bytes);
}

static void checked(void *data, int from, int bytes, int round, const MPI_Status *status)
{
    STATUS_IS(*status, from, TAG + round, MPI_BYTE, bytes_from(from, round));
    VERIFY(data, bytes, from);
    free(data);
}

static void probe_then_receive(int source, int round)
{
    MPI_Status status;
    int from, bytes, found = 0;
    if (round % 2 == 0)
        MPI_Probe(source, TAG + round, MPI_COMM_WORLD, &status);
    else
        while (!found) MPI_Iprobe(source, TAG + round, MPI_COMM_WORLD, &found, &status);
    void *data = received(&status, &from, &bytes);
    MPI_Recv(data, bytes, MPI_BYTE, from, status.MPI_TAG, MPI_COMM_WORLD, &status);
    checked(data, from, bytes, round, &status);
}

static void matched_receive(int source, int round)
{
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    int from, bytes, found = 0;
    if (round % 2 == 0)
        MPI_Mprobe(source, TAG + round, MPI_COMM_WORLD, &message, &status);
    else
        while (!found) MPI_Improbe(source, TAG + round, MPI_COMM_WORLD, &found, &message, &status);
    void *data = received(&status, &from, &bytes);
    if (from % 2 == 0) {
        MPI_Mrecv(data, bytes, MPI_BYTE, &message, &status);
    } else {
        MPI_Imrecv(data, bytes, MPI_BYTE, &message, &request);
        MPI_Wait(&request, &status);
    }
    CHECK(message == MPI_MESSAGE_NULL, "a received message is still there");
    checked(data, from, bytes, round, &status);
}

static void send_rounds(int to)
{
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = bytes_from(rank, round);
        char *data = need(bytes);
        fill(data, bytes, rank);
        MPI_Send(data, bytes, MPI_BYTE, to, TAG + round, MPI_COMM_WORLD);
        free(data);
    }
}

/* A matched message can no longer be received by anybody else. */
static void matched_is_taken(void)
{
    int value = rank, found;
    if (rank != 0) {
        MPI_Send(&value, 1, MPI_INT, 0, 77, MPI_COMM_WORLD);
        return;
    }
    for (int peer = 1; peer < size; peer++) {
        MPI_Message message;
        MPI_Status status;
        MPI_Mprobe(peer, 77, MPI_COMM_WORLD, &message, &status);
        MPI_Iprobe(peer, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        CHECK(!found, "rank %d's matched message was probed again", peer);
        MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        SAME(value, peer);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "probe");
    for (int sink = 0; sink < size; sink++) {
        if (rank != sink) send_rounds(sink);
        if (rank == sink)
            for (int round = 0; round < ROUNDS; round++)
                for (int peer = 0; peer < size; peer++) {
                    int source = round < 3 ? peer : MPI_ANY_SOURCE;
                    if (peer == rank) continue;
                    (sink % 2 ? matched_receive : probe_then_receive)(source, round);
                }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int found;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    SAME(found, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    matched_is_taken();
    return finish();
}
