/* MPI_THREAD_MULTIPLE: several threads of every rank send, receive, probe and wait at once, wild receives among them. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, MESSAGES = 60 };

static MPI_Comm comms[THREADS];

/* Thread t talks on tag t with the same thread of every rank, blocking. */
static void *pairs(void *argument)
{
    int t = *(int *)argument;
    for (int m = 0; m < MESSAGES; m++) {
        int distance = m % (size - 1) + 1, to = (rank + distance) % size, from = (rank + size - distance) % size;
        int out[2] = {rank, m}, in[2] = {-1, -1};
        MPI_Sendrecv(out, 2, MPI_INT, to, t, in, 2, MPI_INT, from, t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        SAME(in[0], from);
        SAME(in[1], m);
    }
    return NULL;
}

/* Each thread has its own communicator, receives by wildcard, and joins collectives on it. */
static void *wild(void *argument)
{
    int t = *(int *)argument, sum;
    MPI_Request request[MESSAGES];
    int out[MESSAGES], per_source[size];
    memset(per_source, 0, sizeof per_source);
    for (int m = 0; m < MESSAGES; m++) {
        out[m] = m;
        MPI_Isend(&out[m], 1, MPI_INT, (rank + 1 + m % (size - 1)) % size, m, comms[t], &request[m]);
    }
    /* Everybody gets as many as it sends. */
    for (int m = 0; m < MESSAGES; m++) {
        int got = -1;
        MPI_Status status;
        if (m % 4 == 0) {
            MPI_Message message;
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[t], &message, &status);
            MPI_Mrecv(&got, 1, MPI_INT, &message, &status);
        } else {
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[t], &status);
        }
        SAME(got, status.MPI_TAG);
        per_source[status.MPI_SOURCE]++;
    }
    MPI_Waitall(MESSAGES, request, MPI_STATUSES_IGNORE);
    for (int r = 0; r < size; r++) {
        int want = 0;
        for (int m = 0; m < MESSAGES; m++) want += (r + 1 + m % (size - 1)) % size == rank && r != rank;
        SAME(per_source[r], want);
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms[t]);
    SAME(sum, size * (size - 1) / 2);
    MPI_Barrier(comms[t]);
    return NULL;
}

/* One thread waits for a message that only a message of another thread of this rank sets off. */
static void *waits(void *argument)
{
    int t = *(int *)argument, value = -1, peer = (rank + 1) % size, previous = (rank + size - 1) % size;
    if (t % 2 == 0) {
        MPI_Recv(&value, 1, MPI_INT, previous, 100 + t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        SAME(value, previous + t);
    } else {
        value = rank + t - 1;
        MPI_Send(&value, 1, MPI_INT, peer, 100 + t - 1, MPI_COMM_WORLD);
    }
    return NULL;
}

static void run(void *(*body)(void *))
{
    pthread_t thread[THREADS];
    int number[THREADS];
    for (int t = 0; t < THREADS; t++) {
        number[t] = t;
        CHECK(pthread_create(&thread[t], NULL, body, &number[t]) == 0, "no thread");
    }
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
}

int main(int argc, char **argv)
{
    int provided, main_thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    setup("threads");
    CHECK(provided == MPI_THREAD_MULTIPLE, "provided is %d", provided);
    MPI_Is_thread_main(&main_thread);
    SAME(main_thread, 1);
    for (int t = 0; t < THREADS; t++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    run(pairs);
    run(wild);
    run(waits);
    for (int t = 0; t < THREADS; t++) MPI_Comm_free(&comms[t]);
    return finish();
}
