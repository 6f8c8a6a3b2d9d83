/* Buffered sends from a buffer that MPI makes as large as need be (MPI 4.1). */
#include "check.h"

enum { MESSAGES = 20, BYTES = 30000 };

int main(int argc, char **argv)
{
    start(&argc, &argv, "bsend_automatic");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, room = -1;
    char *data = need(BYTES);
    void *buffer = NULL;
    for (int round = 0; round < 2; round++) {
        MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
        for (int m = 0; m < MESSAGES; m++) {
            fill(data, BYTES, m);
            MPI_Bsend(data, BYTES, MPI_BYTE, next, m, MPI_COMM_WORLD);
        }
        for (int m = MESSAGES - 1; m >= 0; m--) {
            MPI_Recv(data, BYTES, MPI_BYTE, previous, m, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            VERIFY(data, BYTES, m);
        }
        MPI_Buffer_detach(&buffer, &room);
        CHECK(buffer == MPI_BUFFER_AUTOMATIC, "%p was detached", buffer);
    }
    free(data);
    return finish();
}
