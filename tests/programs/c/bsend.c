/* Buffered sends return with no receive posted, and detaching waits until all have left the buffer. */
#include "check.h"

enum { MESSAGES = 32, BYTES = 20000 };

int main(int argc, char **argv)
{
    start(&argc, &argv, "bsend");
    int room = MESSAGES * (BYTES + MPI_BSEND_OVERHEAD);
    void *buffer = need(room);
    char *data = need(BYTES);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;

    MPI_Buffer_attach(buffer, room);
    for (int m = 0; m < MESSAGES; m++) {
        fill(data, BYTES, m);
        MPI_Bsend(data, BYTES, MPI_BYTE, next, m, MPI_COMM_WORLD); /* everybody sends first */
    }
    for (int m = MESSAGES - 1; m >= 0; m--) {
        MPI_Recv(data, BYTES, MPI_BYTE, previous, m, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        VERIFY(data, BYTES, m);
    }
    MPI_Buffer_detach(&buffer, &room);
    free(buffer);
    free(data);
    return finish();
}
