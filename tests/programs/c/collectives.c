/* Data movement by every rooted and unrooted blocking collective, v and w forms, every root, on communicators of every kind. */
#include "check.h"

static MPI_Comm comm;
static int me, n;

/* What rank `from` has for rank `to` at place `i`. */
static int word(int from, int to, int i) { return from * 100000 + to * 1000 + i; }

static void bcast(int root, int count)
{
    int *data = need(count * sizeof *data);
    for (int i = 0; i < count; i++) data[i] = me == root ? word(root, 0, i) : -1;
    MPI_Bcast(data, count, MPI_INT, root, comm);
    for (int i = 0; i < count; i++) SAME(data[i], word(root, 0, i));
    free(data);
}

static void gather_scatter(int root, int count)
{
    int *mine = need(count * sizeof *mine), *all = need(n * count * sizeof *all);
    for (int i = 0; i < count; i++) mine[i] = word(me, root, i);
    for (int i = 0; i < n * count; i++) all[i] = -1;
    MPI_Gather(mine, count, MPI_INT, me == root ? all : NULL, count, MPI_INT, root, comm);
    for (int i = 0; i < n * count; i++) SAME(all[i], me == root ? word(i / count, root, i % count) : -1);
    for (int i = 0; i < n * count; i++) all[i] = word(root, i / count, i % count);
    MPI_Scatter(me == root ? all : NULL, count, MPI_INT, mine, count, MPI_INT, root, comm);
    for (int i = 0; i < count; i++) SAME(mine[i], word(root, me, i));
    free(mine);
    free(all);
}

/* Rank r has r+1 words (rank 1 none), placed from the last to the first with gaps. */
static int length_of(int r) { return r == 1 ? 0 : r + 1; }

static void lengths_and_places(int *lengths, int *places, int *room)
{
    int at = 0;
    for (int r = n - 1; r >= 0; r--) {
        lengths[r] = length_of(r);
        places[r] = at;
        at += lengths[r] + 2;
    }
    *room = at;
}

static void check_ragged(const int *all, const int *lengths, const int *places, int room, int to)
{
    int filled = 0, words = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < lengths[r]; i++, words++) SAME(all[places[r] + i], word(r, to, i));
    for (int i = 0; i < room; i++) filled += all[i] != -1;
    SAME(filled, words);
}

static void gatherv_scatterv(int root)
{
    int lengths[n], places[n], room, mine[n + 1];
    lengths_and_places(lengths, places, &room);
    int *all = need(room * sizeof *all);
    for (int i = 0; i < room; i++) all[i] = -1;
    for (int i = 0; i < length_of(me); i++) mine[i] = word(me, root, i);
    MPI_Gatherv(mine, length_of(me), MPI_INT, all, lengths, places, MPI_INT, root, comm);
    if (me == root) check_ragged(all, lengths, places, room, root);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < lengths[r]; i++) all[places[r] + i] = word(root, r, i);
    for (int i = 0; i <= n; i++) mine[i] = -1;
    MPI_Scatterv(all, lengths, places, MPI_INT, mine, length_of(me), MPI_INT, root, comm);
    for (int i = 0; i <= n; i++) SAME(mine[i], i < length_of(me) ? word(root, me, i) : -1);
    free(all);
}

static void allgather(int count)
{
    int *mine = need(count * sizeof *mine), *all = need(n * count * sizeof *all);
    for (int i = 0; i < count; i++) mine[i] = word(me, 0, i);
    MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, comm);
    for (int i = 0; i < n * count; i++) SAME(all[i], word(i / count, 0, i % count));
    free(mine);
    free(all);

    int lengths[n], places[n], room, part[n + 1];
    lengths_and_places(lengths, places, &room);
    all = need(room * sizeof *all);
    for (int i = 0; i < room; i++) all[i] = -1;
    for (int i = 0; i < length_of(me); i++) part[i] = word(me, 3, i);
    MPI_Allgatherv(part, length_of(me), MPI_INT, all, lengths, places, MPI_INT, comm);
    check_ragged(all, lengths, places, room, 3);
    free(all);
}

static void alltoall(int count)
{
    int *out = need(n * count * sizeof *out), *in = need(n * count * sizeof *in);
    for (int i = 0; i < n * count; i++) out[i] = word(me, i / count, i % count);
    MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, comm);
    for (int i = 0; i < n * count; i++) SAME(in[i], word(i / count, me, i % count));
    free(out);
    free(in);
}

/* From r to s go (r + 2 s) % 5 words. */
static int between(int r, int s) { return (r + 2 * s) % 5; }

static void alltoallv(void)
{
    int out[5 * n], in[7 * n], out_length[n], in_length[n], out_place[n], in_place[n];
    for (int i = 0; i < 7 * n; i++) in[i] = -1;
    for (int r = 0; r < n; r++) {
        out_length[r] = between(me, r);
        in_length[r] = between(r, me);
        out_place[r] = 5 * r;
        in_place[r] = 7 * (n - 1 - r);
        for (int i = 0; i < 5; i++) out[5 * r + i] = word(me, r, i);
    }
    MPI_Alltoallv(out, out_length, out_place, MPI_INT, in, in_length, in_place, MPI_INT, comm);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 7; i++) SAME(in[in_place[r] + i], i < in_length[r] ? word(r, me, i) : -1);
}

/* Another type for every peer: ints as ints or as pairs, doubles, nothing. */
static void alltoallw(void)
{
    MPI_Datatype pair, types[n];
    int length[n], out_place[n], in_place[n];
    int out[4 * n], in[4 * n];
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair); /* the first and third word */
    MPI_Type_commit(&pair);
    for (int r = 0; r < n; r++) {
        int kind = (me + r) % 3;
        types[r] = kind == 0 ? MPI_INT : kind == 1 ? pair : MPI_SHORT;
        length[r] = kind == 0 ? 4 : kind == 1 ? 1 : 0;
        out_place[r] = in_place[r] = 4 * r * (int)sizeof(int);
        for (int i = 0; i < 4; i++) out[4 * r + i] = word(me, r, i), in[4 * r + i] = -1;
    }
    MPI_Alltoallw(out, length, out_place, types, in, length, in_place, types, comm);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 4; i++) {
            int kind = (me + r) % 3;
            int moved = kind == 0 || (kind == 1 && i % 2 == 0);
            SAME(in[4 * r + i], moved ? word(r, me, i) : -1);
        }
    MPI_Type_free(&pair);
}

static void everything(void)
{
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (int root = 0; root < n; root++) {
        bcast(root, 1);
        bcast(root, 0);
        bcast(root, 100003);
        gather_scatter(root, 1);
        gather_scatter(root, 3000);
        gatherv_scatterv(root);
        MPI_Barrier(comm);
    }
    allgather(1);
    allgather(5000);
    alltoall(1);
    alltoall(4000);
    alltoallv();
    alltoallw();
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "collectives");
    comm = MPI_COMM_WORLD;
    everything();
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &comm); /* reversed */
    everything();
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm); /* interleaved */
    everything();
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &comm); /* one alone, the others */
    everything();
    MPI_Comm_free(&comm);
    return finish();
}
