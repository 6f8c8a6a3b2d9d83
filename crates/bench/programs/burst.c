/* burst PATTERN BYTES COUNT PAUSE: the first half of the ranks sends to the second half, all beginning at the same instant, COUNT
 * times with PAUSE seconds between. PATTERN: `pairs`, a message of BYTES from rank i to rank i + n/2; `lone`, from rank 0 only;
 * `incast`, one to the first rank of the other half; `all`, one to every rank of it; `both`, likewise in both directions; `row`, CALLS all-to-alls of all
 * ranks right behind each other. Says `seconds`: from the common start to the last byte, and `begin`: when that was, of the clock that never steps. */
#include "common.h"

enum { CALLS = 6 };

/* The i-th of those of the other half, which begins at base; each rank begins with another one. */
static int peer_of(int me, int i, int base, int half, int is_incast)
{
    return is_incast && base ? base : base + (me + i) % half;
}

static void row(const char *out, char *in, int bytes)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

/* What each has of all others, from the place in their buffers that is its own. */
static void check_row(const char *in, int bytes, int me, int size)
{
    for (int from = 0; from < size; from++)
        for (int b = 0; b < bytes; b++)
            if (in[(size_t)from * (size_t)bytes + (size_t)b] != (char)(from + me * bytes + b))
                die("wrong data");
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int me, size, bytes = atoi(argv[2]), count = atoi(argv[3]);
    double pause = atof(argv[4]), *seconds = calloc(2 * (size_t)count, sizeof *seconds), *begin = seconds + count;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int half = size / 2, is_first = me < half, is_lone = !strcmp(argv[1], "lone");
    int is_pairs = is_lone || !strcmp(argv[1], "pairs"), is_both = !strcmp(argv[1], "both");
    int is_incast = !strcmp(argv[1], "incast"), is_row = !strcmp(argv[1], "row");
    int peers = is_lone && me % half ? 0 : is_pairs ? 1 : half, base = is_first ? half : 0;
    if (is_incast)
        peers = is_first ? 1 : me == half ? half : 0;
    size_t room = (size_t)(is_row ? size : peers + 1) * (size_t)bytes;
    if (is_row)
        peers = 0;
    char *out = malloc(room), *in = calloc(room, 1);
    MPI_Request *requests = malloc(2 * (size_t)(peers + 1) * sizeof *requests);
    if (!out || !in || !requests || !seconds)
        die("no memory");
    for (size_t i = 0; i < room; i++)
        out[i] = (char)(me + (int)i);
    for (int k = 0; k < count; k++) {
        int waiting = 0;
        for (int i = 0; i < peers; i++) {
            int peer = peer_of(me, i, base, half, is_incast);
            if (is_both || !is_first)
                MPI_Irecv(in + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, peer, k, MPI_COMM_WORLD, &requests[waiting++]);
        }
        double from = start(me, pause), took;
        for (int i = 0; i < peers; i++) {
            int peer = peer_of(me, i, base, half, is_incast);
            if (is_both || is_first)
                MPI_Isend(out + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, peer, k, MPI_COMM_WORLD, &requests[waiting++]);
        }
        MPI_Waitall(waiting, requests, MPI_STATUSES_IGNORE);
        if (is_row)
            row(out, in, bytes);
        took = now() - from;
        begin[k] = from;
        if (is_first && !is_both && !is_row)
            took = 0;
        MPI_Reduce(&took, &seconds[k], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    }
    if (is_row)
        check_row(in, bytes, me, size);
    for (int i = 0; i < peers && (is_both || !is_first); i++) {
        int peer = peer_of(me, i, base, half, is_incast);
        /* Where in its buffer the sender kept what it sent here. */
        int place = is_pairs || is_incast ? 0 : ((me - peer) % half + half) % half;
        for (int b = 0; b < bytes; b++)
            if (in[(size_t)i * (size_t)bytes + (size_t)b] != (char)(peer + place * bytes + b))
                die("wrong data");
    }
    if (me == 0) {
        say("seconds", seconds, count);
        say("begin", begin, count);
    }
    MPI_Finalize();
    return 0;
}
