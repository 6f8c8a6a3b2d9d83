/* Persistent requests of every mode: started again and again, together and alone, inactive and freed. */
#include "check.h"

enum { KINDS = 4, ELEMENTS = 3000, ROUNDS = 8 };

static int out[KINDS][ELEMENTS], in[KINDS][ELEMENTS];
static MPI_Request request[2 * KINDS]; /* receives, then sends */

/* Open MPI 4.1 alone sends zeros when a buffered request is started while its last message is still on its way. */
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#define BUFFERED_INIT MPI_Send_init
#else
#define BUFFERED_INIT MPI_Bsend_init
#endif

static void create(int next, int previous)
{
    for (int k = 0; k < KINDS; k++) {
        int source = k % 2 ? MPI_ANY_SOURCE : previous;
        MPI_Recv_init(in[k], ELEMENTS, MPI_INT, source, k, MPI_COMM_WORLD, &request[k]);
    }
    MPI_Send_init(out[0], ELEMENTS, MPI_INT, next, 0, MPI_COMM_WORLD, &request[KINDS]);
    MPI_Ssend_init(out[1], ELEMENTS, MPI_INT, next, 1, MPI_COMM_WORLD, &request[KINDS + 1]);
    BUFFERED_INIT(out[2], ELEMENTS, MPI_INT, next, 2, MPI_COMM_WORLD, &request[KINDS + 2]);
    MPI_Rsend_init(out[3], ELEMENTS, MPI_INT, next, 3, MPI_COMM_WORLD, &request[KINDS + 3]);
}

static void prepare(int round)
{
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < ELEMENTS; i++) {
            out[k][i] = rank * 1000000 + round * 10000 + k * 3000 + i;
            in[k][i] = -1;
        }
}

static void check(int round, int previous)
{
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < ELEMENTS; i++) SAME(in[k][i], previous * 1000000 + round * 10000 + k * 3000 + i);
}

static void inactive(void)
{
    int flag = 0, index = 7;
    MPI_Status status;
    MPI_Wait(&request[0], &status);
    SAME(status.MPI_SOURCE, MPI_ANY_SOURCE);
    MPI_Test(&request[KINDS], &flag, &status);
    SAME(flag, 1);
    MPI_Testany(2 * KINDS, request, &index, &flag, &status);
    SAME(flag, 1);
    SAME(index, MPI_UNDEFINED);
    MPI_Waitany(2 * KINDS, request, &index, &status);
    SAME(index, MPI_UNDEFINED);
    CHECK(request[0] != MPI_REQUEST_NULL, "completing a persistent request freed it");
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "persistent");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int room = 4 * (int)(sizeof out[2] + MPI_BSEND_OVERHEAD);
    void *buffer = need(room);
    MPI_Buffer_attach(buffer, room);
    create(next, previous);
    inactive();
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Status status[2 * KINDS];
        prepare(round);
        MPI_Startall(KINDS, request);
        MPI_Barrier(MPI_COMM_WORLD); /* the ready sends find their receives */
        if (round % 2) MPI_Startall(KINDS, request + KINDS);
        else
            for (int k = 0; k < KINDS; k++) MPI_Start(&request[KINDS + k]);
        if (round % 3 == 0) {
            MPI_Waitall(2 * KINDS, request, status);
            for (int k = 0; k < KINDS; k++) STATUS_IS(status[k], previous, k, MPI_INT, ELEMENTS);
        } else if (round % 3 == 1) {
            for (int i = 2 * KINDS - 1; i >= 0; i--) MPI_Wait(&request[i], &status[i]);
        } else {
            int index, done = 0;
            for (;; done++) {
                MPI_Waitany(2 * KINDS, request, &index, status);
                if (index == MPI_UNDEFINED) break;
            }
            SAME(done, 2 * KINDS);
        }
        check(round, previous);
        inactive();
    }
    for (int i = 0; i < 2 * KINDS; i++) {
        MPI_Request_free(&request[i]);
        CHECK(request[i] == MPI_REQUEST_NULL, "a freed persistent request is still there");
    }
    MPI_Buffer_detach(&buffer, &room);
    free(buffer);
    return finish();
}
