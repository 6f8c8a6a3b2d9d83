/* Floods of messages that nobody waits for yet: more than any credit holds, then received late and in reverse. */
#include "check.h"

enum { FLOOD = 6000, BYTES = 1024, REVERSE = 1500, LARGE = 12, LARGE_BYTES = 1 << 20 };

/* Everybody floods rank `sink` with blocking sends while it does something else. */
static void flood(int sink)
{
    char data[BYTES];
    if (rank != sink) {
        for (int i = 0; i < FLOOD; i++) {
            fill(data, 16, rank * FLOOD + i);
            MPI_Send(data, BYTES, MPI_BYTE, sink, 1, MPI_COMM_WORLD);
        }
        return;
    }
    double end = MPI_Wtime() + 0.3;
    while (MPI_Wtime() < end) {
    }
    for (int peer = size - 1; peer >= 0; peer--)
        for (int i = 0; peer != rank && i < FLOOD; i++) {
            MPI_Recv(data, BYTES, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            VERIFY(data, 16, peer * FLOOD + i);
        }
}

/* Many tags outstanding, asked for from the last to the first. */
static void reverse(int bytes, int messages)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *out = need((size_t)bytes * messages), *in = need(bytes);
    MPI_Request *request = need(messages * sizeof *request);
    for (int i = 0; i < messages; i++) {
        fill(out + (size_t)bytes * i, bytes, i);
        MPI_Isend(out + (size_t)bytes * i, bytes, MPI_BYTE, next, i, MPI_COMM_WORLD, &request[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = messages - 1; i >= 0; i--) {
        MPI_Recv(in, bytes, MPI_BYTE, previous, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        VERIFY(in, bytes, i);
    }
    MPI_Waitall(messages, request, MPI_STATUSES_IGNORE);
    free(out);
    free(in);
    free(request);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "unexpected");
    flood(0);
    flood(size - 1);
    reverse(100, REVERSE);
    reverse(LARGE_BYTES, LARGE);
    return finish();
}
