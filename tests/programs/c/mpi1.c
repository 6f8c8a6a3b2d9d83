/* `mpi1 [SEED [SECONDS]]`: what IMB-MPI1 does, every byte checked: each of its benchmarks in turn, with sizes that every rank draws alike,
 * until the time is over (0: each once). */
#include "check.h"

enum { LARGEST = 100000, REPEATS = 3 };

static uint64_t state, stamp;
static char *out, *in;
static int bytes;

/* The peer in IMB's pairs, so placed that it is in the other half; -1 where their number is odd. */
static int partner(void)
{
    int half = size / 2;
    return rank >= 2 * half ? -1 : rank < half ? rank + half : rank - half;
}

static void send_to(int to, int tag)
{
    fill(out, bytes, stamp + rank);
    MPI_Send(out, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

static void receive_from(int from, int asked, int tag)
{
    MPI_Status status;
    MPI_Recv(in, bytes, MPI_BYTE, asked, tag, MPI_COMM_WORLD, &status);
    STATUS_IS(status, from, tag, MPI_BYTE, bytes);
    VERIFY(in, bytes, stamp + from);
}

static void ping_pong(int asked_is_any)
{
    int to = partner();
    if (to < 0) return;
    int asked = asked_is_any ? MPI_ANY_SOURCE : to;
    if (rank < to) send_to(to, 1), receive_from(to, asked, 2);
    else receive_from(to, asked, 1), send_to(to, 2);
}

static void ping_ping(int asked_is_any)
{
    MPI_Request request;
    int to = partner();
    if (to < 0) return;
    fill(out, bytes, stamp + rank);
    MPI_Isend(out, bytes, MPI_BYTE, to, 3, MPI_COMM_WORLD, &request);
    receive_from(to, asked_is_any ? MPI_ANY_SOURCE : to, 3);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void sendrecv(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Status status;
    fill(out, bytes, stamp + rank);
    MPI_Sendrecv(out, bytes, MPI_BYTE, to, 4, in, bytes, MPI_BYTE, from, 4, MPI_COMM_WORLD, &status);
    STATUS_IS(status, from, 4, MPI_BYTE, bytes);
    VERIFY(in, bytes, stamp + from);
}

static void exchange(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Request request[2];
    fill(out, bytes, stamp + rank);
    MPI_Isend(out, bytes, MPI_BYTE, right, 5, MPI_COMM_WORLD, &request[0]);
    MPI_Isend(out, bytes, MPI_BYTE, left, 6, MPI_COMM_WORLD, &request[1]);
    receive_from(left, left, 5);
    receive_from(right, right, 6);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
}

/* Many sends at once, into one direction or both. */
static void band(int is_both)
{
    enum { WINDOW = 16 };
    MPI_Request request[WINDOW];
    int to = partner(), whole = bytes;
    if (to < 0) return;
    bytes = whole / WINDOW;
    if (is_both || rank < to) {
        fill(out, bytes, stamp + rank);
        for (int i = 0; i < WINDOW; i++) MPI_Isend(out, bytes, MPI_BYTE, to, 100 + i, MPI_COMM_WORLD, &request[i]);
    }
    if (is_both || rank > to)
        for (int i = 0; i < WINDOW; i++) receive_from(to, to, 100 + i);
    if (is_both || rank < to) MPI_Waitall(WINDOW, request, MPI_STATUSES_IGNORE);
    bytes = whole;
}

static void bcast(int root)
{
    fill(in, bytes, rank == root ? stamp : stamp + 1);
    MPI_Bcast(in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    VERIFY(in, bytes, stamp);
}

/* Parts are in the order of ranks; part i has `length[i]` bytes. */
static void parts(int *length, int *place, int is_ragged)
{
    int each = bytes / size;
    for (int i = 0, at = 0; i < size; at += length[i], i++) length[i] = is_ragged ? each * i / size : each, place[i] = at;
}

static void verify_parts(const int *length, const int *place)
{
    for (int i = 0; i < size; i++) VERIFY(in + place[i], length[i], stamp + i);
}

static void allgather(int is_ragged)
{
    int length[size], place[size];
    parts(length, place, is_ragged);
    fill(out, length[rank], stamp + rank);
    if (is_ragged) MPI_Allgatherv(out, length[rank], MPI_BYTE, in, length, place, MPI_BYTE, MPI_COMM_WORLD);
    else MPI_Allgather(out, length[0], MPI_BYTE, in, length[0], MPI_BYTE, MPI_COMM_WORLD);
    verify_parts(length, place);
}

static void gather(int root, int is_ragged)
{
    int length[size], place[size];
    parts(length, place, is_ragged);
    fill(out, length[rank], stamp + rank);
    if (is_ragged) MPI_Gatherv(out, length[rank], MPI_BYTE, in, length, place, MPI_BYTE, root, MPI_COMM_WORLD);
    else MPI_Gather(out, length[0], MPI_BYTE, in, length[0], MPI_BYTE, root, MPI_COMM_WORLD);
    if (rank == root) verify_parts(length, place);
}

static void scatter(int root, int is_ragged)
{
    int length[size], place[size];
    parts(length, place, is_ragged);
    if (rank == root)
        for (int i = 0; i < size; i++) fill(out + place[i], length[i], stamp + i);
    if (is_ragged) MPI_Scatterv(out, length, place, MPI_BYTE, in, length[rank], MPI_BYTE, root, MPI_COMM_WORLD);
    else MPI_Scatter(out, length[0], MPI_BYTE, in, length[0], MPI_BYTE, root, MPI_COMM_WORLD);
    VERIFY(in, length[rank], stamp + rank);
}

/* From r to s goes what the seed stamp + r * size + s says; ragged, (r + s) % size parts of it. */
static void alltoall(int is_ragged)
{
    int each = bytes / size / size, length[size], place[size];
    for (int i = 0; i < size; i++) {
        length[i] = is_ragged ? each * ((rank + i) % size) : each * size, place[i] = i * each * size;
        fill(out + place[i], length[i], stamp + rank * size + i);
    }
    if (is_ragged) MPI_Alltoallv(out, length, place, MPI_BYTE, in, length, place, MPI_BYTE, MPI_COMM_WORLD);
    else MPI_Alltoall(out, each * size, MPI_BYTE, in, each * size, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) VERIFY(in + place[i], length[i], stamp + i * size + rank);
}

static int32_t term(int from, int at) { return (int32_t)((stamp + at) % 1000 * (from + 1)); }

static void sums(const int32_t *got, int first, int count)
{
    for (int i = 0; i < count; i++) SAME(got[i], (int64_t)((stamp + first + i) % 1000) * size * (size + 1) / 2);
}

static void reductions(int which, int root)
{
    int count = bytes / 4 / size, whole = count * size, each[size];
    int32_t *mine = (void *)out, *got = (void *)in;
    for (int i = 0; i < whole; i++) mine[i] = term(rank, i);
    for (int i = 0; i < size; i++) each[i] = count;
    memset(in, -1, bytes);
    switch (which) {
    case 0:
        MPI_Reduce(mine, got, whole, MPI_INT32_T, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root) sums(got, 0, whole);
        break;
    case 1:
        MPI_Allreduce(mine, got, whole, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        sums(got, 0, whole);
        break;
    case 2:
        MPI_Reduce_scatter(mine, got, each, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        sums(got, rank * count, count);
        break;
    default:
        MPI_Reduce_scatter_block(mine, got, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        sums(got, rank * count, count);
    }
}

enum { BENCHMARKS = 22 };

static void benchmark(int which, int root)
{
    switch (which) {
    case 0: ping_pong(0); break;
    case 1: ping_pong(1); break;
    case 2: ping_ping(0); break;
    case 3: ping_ping(1); break;
    case 4: sendrecv(); break;
    case 5: exchange(); break;
    case 6: band(0); break;
    case 7: band(1); break;
    case 8: bcast(root); break;
    case 9: case 10: allgather(which == 10); break;
    case 11: case 12: gather(root, which == 12); break;
    case 13: case 14: scatter(root, which == 14); break;
    case 15: case 16: alltoall(which == 16); break;
    case 17: case 18: case 19: case 20: reductions(which - 17, root); break;
    default: MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* A wild receive cannot take what is not meant for it: only the partner ever sends with its tag. */
static void everything(void)
{
    for (int which = 0; which < BENCHMARKS; which++) {
        uint64_t shape = draw(&state);
        bytes = shape % 3 ? (int)(shape / 3 % 2000) : (int)(shape / 3 % LARGEST);
        for (int i = 0; i < REPEATS; i++) {
            stamp = draw(&state) >> 20;
            benchmark(which, (int)(stamp % size));
        }
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "mpi1");
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    double seconds = argc > 2 ? atof(argv[2]) : 0, since = MPI_Wtime();
    if (rank == 0 && argc > 2) printf("mpi1 begins\n"), fflush(stdout);
    out = need(LARGEST), in = need(LARGEST);
    int goes_on, sweeps = 0;
    do {
        everything();
        sweeps++;
        goes_on = MPI_Wtime() - since < seconds;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    } while (goes_on);
    if (rank == 0) printf("mpi1: each of %d benchmarks %d times\n", BENCHMARKS, REPEATS * sweeps);
    free(out);
    free(in);
    return finish();
}
