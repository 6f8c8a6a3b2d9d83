/* Messages of one sender on one communicator do not overtake each other, whatever their size (MPI 4.1 §3.5). */
#include "check.h"

enum { MESSAGES = 120 };

/* Many ranks mean many pairs, and a slow link between them. */
static int messages(void)
{
    return size > 4 ? 28 : MESSAGES;
}

static int bytes_of(int number)
{
    static const int sizes[] = {4, 300000, 4, 70000, 1500000, 16, 4096};
    return sizes[number % 7];
}

static void sender(int to)
{
    MPI_Request request[MESSAGES];
    int *data[MESSAGES];
    for (int i = 0; i < messages(); i++) {
        data[i] = need(bytes_of(i));
        memset(data[i], i & 0x7f, bytes_of(i));
        data[i][0] = i;
        MPI_Isend(data[i], bytes_of(i), MPI_BYTE, to, 1, MPI_COMM_WORLD, &request[i]);
    }
    MPI_Waitall(messages(), request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < messages(); i++) free(data[i]);
}

static void receiver(int from, int wild)
{
    int *data = need(1500000);
    for (int i = 0; i < messages(); i++) {
        MPI_Status status;
        MPI_Recv(data, 1500000, MPI_BYTE, wild ? MPI_ANY_SOURCE : from, wild ? MPI_ANY_TAG : 1, MPI_COMM_WORLD, &status);
        STATUS_IS(status, from, 1, MPI_BYTE, bytes_of(i));
        SAME(data[0], i);
        if (bytes_of(i) > 4) SAME(((char *)data)[bytes_of(i) - 1], i & 0x7f);
    }
    free(data);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "order");
    for (int distance = 1; distance < size; distance++)
        for (int wild = 0; wild < 2; wild++) {
            int to = (rank + distance) % size, from = (rank + size - distance) % size;
            if (rank < to) {
                sender(to);
                receiver(from, wild);
            } else {
                receiver(from, wild);
                sender(to);
            }
            MPI_Barrier(MPI_COMM_WORLD);
        }
    return finish();
}
