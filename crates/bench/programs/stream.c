/* stream BYTES COUNT RECEIVERS: rank 0 sends COUNT messages of BYTES to each of the first RECEIVERS ranks of the other half of the ranks (of
 * 1 + n: of all others), two at a time to each. Nobody else sends, so nobody collides. Says `seconds`: from the first send to the last receive. */
#include "common.h"

static void send_all(const char *buffer, int bytes, int count, int first, int end)
{
    int peers = end - first, k = 0;
    MPI_Request *requests = malloc(2 * (size_t)peers * sizeof *requests);
    if (!requests)
        die("no memory");
    for (int i = 0; i < 2 * peers; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < count; i++)
        for (int peer = first; peer < end; peer++, k = (k + 1) % (2 * peers)) {
            MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
            MPI_Isend(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[k]);
        }
    MPI_Waitall(2 * peers, requests, MPI_STATUSES_IGNORE);
    free(requests);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int me, size, bytes = atoi(argv[1]), count = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int first = size % 2 ? 1 : size / 2, behind = first + atoi(argv[3]), is_receiver = me >= first && me < behind;
    if (behind > size)
        die("so many receivers are not there");
    char *buffer = malloc((size_t)bytes);
    if (!buffer)
        die("no memory");
    for (int i = 0; i < bytes; i++)
        buffer[i] = me ? 0 : (char)(i * 7 + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double from = now(), end = from;
    if (me == 0)
        send_all(buffer, bytes, count, first, behind);
    for (int i = 0; i < count && is_receiver; i++) {
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        end = now();
    }
    for (int i = 0; i < bytes && is_receiver; i++)
        if (buffer[i] != (char)(i * 7 + 1))
            die("wrong data");
    double took = end - from, longest;
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (me == 0)
        say("seconds", &longest, 1);
    MPI_Finalize();
    return 0;
}
