/* Wait and Test for any, some and all, over arrays that mix receives from every rank, sends, inactive and null requests. */
#include "check.h"

enum { PER_PEER = 6 };

static int total;          /* receives: PER_PEER from every other rank */
static int *values;        /* what they received */
static MPI_Request *both;  /* receives, then sends, then two nulls */
static MPI_Status *statuses;
static int *indices, *outgoing;

static int slots(void) { return 2 * total + 2; }
static int peer_of(int slot) { int p = slot / PER_PEER; return p < rank ? p : p + 1; }

static void post(void)
{
    for (int s = 0; s < total; s++) {
        values[s] = -1;
        MPI_Irecv(&values[s], 1, MPI_INT, peer_of(s), s % PER_PEER, MPI_COMM_WORLD, &both[s]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int s = 0; s < total; s++) {
        outgoing[s] = rank * 100 + s % PER_PEER;
        MPI_Isend(&outgoing[s], 1, MPI_INT, peer_of(s), s % PER_PEER, MPI_COMM_WORLD, &both[total + s]);
    }
    both[2 * total] = both[2 * total + 1] = MPI_REQUEST_NULL;
}

static void completed(int slot, const MPI_Status *status)
{
    CHECK(slot >= 0 && slot < 2 * total, "slot %d of %d completed", slot, slots());
    CHECK(both[slot] == MPI_REQUEST_NULL, "slot %d completed and is not null", slot);
    if (slot >= total) return;
    SAME(values[slot], peer_of(slot) * 100 + slot % PER_PEER);
    if (status) STATUS_IS(*status, peer_of(slot), slot % PER_PEER, MPI_INT, 1);
}

static void waitany(void)
{
    int index;
    MPI_Status status;
    for (int done = 0; done < 2 * total; done++) {
        MPI_Waitany(slots(), both, &index, &status);
        completed(index, &status);
    }
    MPI_Waitany(slots(), both, &index, &status);
    SAME(index, MPI_UNDEFINED);
}

static void testany(void)
{
    int index, flag, done = 0;
    MPI_Status status;
    while (done < 2 * total) {
        MPI_Testany(slots(), both, &index, &flag, &status);
        if (!flag) continue;
        completed(index, &status);
        done++;
    }
    MPI_Testany(slots(), both, &index, &flag, &status);
    SAME(flag, 1);
    SAME(index, MPI_UNDEFINED);
}

static void some(int wait)
{
    int count, done = 0;
    while (done < 2 * total) {
        if (wait) MPI_Waitsome(slots(), both, &count, indices, statuses);
        else MPI_Testsome(slots(), both, &count, indices, statuses);
        CHECK(count != MPI_UNDEFINED && (!wait || count > 0), "%d of %d were done", done, 2 * total);
        for (int i = 0; i < count; i++) completed(indices[i], &statuses[i]);
        done += count;
    }
    if (wait) MPI_Waitsome(slots(), both, &count, indices, MPI_STATUSES_IGNORE);
    else MPI_Testsome(slots(), both, &count, indices, MPI_STATUSES_IGNORE);
    SAME(count, MPI_UNDEFINED);
}

static void waitsome(void) { some(1); }
static void testsome(void) { some(0); }

static void waitall(void)
{
    MPI_Waitall(slots(), both, statuses);
    for (int s = 0; s < 2 * total; s++) completed(s, &statuses[s]);
    STATUS_IS(statuses[2 * total], MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_INT, 0);
}

static void testall(void)
{
    int flag = 0;
    while (!flag) MPI_Testall(slots(), both, &flag, MPI_STATUSES_IGNORE);
    for (int s = 0; s < 2 * total; s++) completed(s, NULL);
}

static void one_by_one(void)
{
    for (int s = 2 * total - 1; s >= 0; s--) {
        int flag = 0;
        MPI_Status status;
        while (!flag) MPI_Test(&both[s], &flag, &status);
        completed(s, &status);
    }
}

/* Only the last rank's message is missing: some and any must return the others, all must not return. */
static void partial(void)
{
    int last = size - 1;
    for (int s = 0; s < total; s++) MPI_Irecv(&values[s], 1, MPI_INT, peer_of(s), 9, MPI_COMM_WORLD, &both[s]);
    MPI_Barrier(MPI_COMM_WORLD);
    int value = rank, sent = 0;
    for (int peer = 0; peer < size; peer++)
        for (int i = 0; peer != rank && rank != last && i < PER_PEER; i++, sent++)
            MPI_Send(&value, 1, MPI_INT, peer, 9, MPI_COMM_WORLD);
    int expected = rank == last ? total : total - PER_PEER, done = 0, flag, count;
    while (done < expected) {
        MPI_Waitsome(total, both, &count, indices, statuses);
        for (int i = 0; i < count; i++) SAME(values[indices[i]], peer_of(indices[i]));
        done += count;
    }
    MPI_Testall(total, both, &flag, MPI_STATUSES_IGNORE);
    SAME(flag, rank == last);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int peer = 0; rank == last && peer < last; peer++)
        for (int i = 0; i < PER_PEER; i++) MPI_Send(&value, 1, MPI_INT, peer, 9, MPI_COMM_WORLD);
    MPI_Waitall(total, both, MPI_STATUSES_IGNORE);
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
/* Looking completes nothing, and tells the same (MPI 4.1 §3.7.6). */
static void only_look(void)
{
    int flag, index, count;
    MPI_Status status;
    do MPI_Request_get_status_all(slots(), both, &flag, statuses);
    while (!flag);
    for (int s = 0; s < total; s++) STATUS_IS(statuses[s], peer_of(s), s % PER_PEER, MPI_INT, 1);
    MPI_Request_get_status_some(slots(), both, &count, indices, statuses);
    SAME(count, 2 * total);
    for (int i = 0; i < count; i++) SAME(indices[i], i);
    MPI_Request_get_status_any(slots(), both, &index, &flag, &status);
    SAME(flag, 1);
    CHECK(index >= 0 && index < 2 * total, "slot %d of %d has ended", index, slots());
    waitall();
    MPI_Request_get_status_any(slots(), both, &index, &flag, &status);
    SAME(flag, 1);
    SAME(index, MPI_UNDEFINED);
    MPI_Request_get_status_some(slots(), both, &count, indices, MPI_STATUSES_IGNORE);
    SAME(count, MPI_UNDEFINED);
}

/* Inactive requests have not ended: they are as if they were not there. */
static void inactive(void)
{
    int flag, index, count, indices[4], got[4], peer = (rank + size - 1) % size;
    MPI_Request request[4];
    MPI_Status status, statuses[4];
    MPI_Recv_init(&got[0], 1, MPI_INT, peer, 11, MPI_COMM_WORLD, &request[0]);
    MPI_Recv_init(&got[1], 1, MPI_INT, 0, 11, MPI_COMM_SELF, &request[1]);
    MPI_Send_init(&got[2], 1, MPI_INT, 0, 11, MPI_COMM_SELF, &request[2]);
    request[3] = MPI_REQUEST_NULL;
    for (int active = 0; active < 2; active++) {
        if (active) MPI_Irecv(&got[3], 1, MPI_INT, peer, 12, MPI_COMM_WORLD, &request[3]);
        MPI_Request_get_status_any(4, request, &index, &flag, &status);
        SAME(flag, !active);
        SAME(index, MPI_UNDEFINED);
        if (!active) STATUS_IS(status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_INT, 0);
        MPI_Request_get_status_some(4, request, &count, indices, statuses);
        SAME(count, active ? 0 : MPI_UNDEFINED);
        MPI_Request_get_status_all(4, request, &flag, statuses);
        SAME(flag, !active);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 12, MPI_COMM_WORLD);
    do MPI_Request_get_status_any(4, request, &index, &flag, &status);
    while (!flag);
    SAME(index, 3);
    STATUS_IS(status, peer, 12, MPI_INT, 1);
    MPI_Request_get_status_some(4, request, &count, indices, statuses);
    SAME(count, 1);
    SAME(indices[0], 3);
    STATUS_IS(statuses[0], peer, 12, MPI_INT, 1);
    MPI_Wait(&request[3], MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++) MPI_Request_free(&request[i]);
}
#else
static void only_look(void) { waitall(); }
/* Ranks of other clusters may have them. */
static void inactive(void)
{
    int got;
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 12, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 12, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}
#endif

int main(int argc, char **argv)
{
    static void (*const ways[])(void) = {waitany, testany, waitsome, testsome, waitall, testall, one_by_one, only_look};
    start(&argc, &argv, "completion");
    total = PER_PEER * (size - 1);
    values = need(total * sizeof *values);
    outgoing = need(total * sizeof *outgoing);
    both = need(slots() * sizeof *both);
    statuses = need(slots() * sizeof *statuses);
    indices = need(slots() * sizeof *indices);
    for (int way = 0; way < 8; way++) {
        post();
        ways[way]();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    partial();
    inactive();
    MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
    return finish();
}
