/* MPI_IN_PLACE in every collective that allows it, at and away from the root. */
#include "check.h"

enum { COUNT = 37 };

static int word(int from, int to, int i) { return from * 10000 + to * 100 + i; }

static void rooted(int root)
{
    int mine[COUNT], *all = need(size * COUNT * sizeof *all);
    for (int i = 0; i < COUNT; i++) mine[i] = word(rank, root, i);
    memcpy(all + rank * COUNT, mine, sizeof mine);
    MPI_Gather(rank == root ? MPI_IN_PLACE : mine, COUNT, MPI_INT, all, COUNT, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; rank == root && i < size * COUNT; i++) SAME(all[i], word(i / COUNT, root, i % COUNT));

    for (int i = 0; i < size * COUNT; i++) all[i] = word(root, i / COUNT, i % COUNT);
    if (rank == root) MPI_Scatter(all, COUNT, MPI_INT, MPI_IN_PLACE, COUNT, MPI_INT, root, MPI_COMM_WORLD);
    else MPI_Scatter(NULL, 0, MPI_INT, mine, COUNT, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) SAME(rank == root ? all[rank * COUNT + i] : mine[i], word(root, rank, i));

    int lengths[size], places[size];
    for (int r = 0; r < size; r++) lengths[r] = r % 3, places[r] = r * COUNT;
    for (int i = 0; i < COUNT; i++) mine[i] = all[rank * COUNT + i] = word(rank, root, i);
    MPI_Gatherv(rank == root ? MPI_IN_PLACE : mine, lengths[rank], MPI_INT, all, lengths, places, MPI_INT, root, MPI_COMM_WORLD);
    for (int r = 0; rank == root && r < size; r++)
        for (int i = 0; i < lengths[r]; i++) SAME(all[places[r] + i], word(r, root, i));
    for (int i = 0; i < size * COUNT; i++) all[i] = word(root, i / COUNT, i % COUNT);
    MPI_Scatterv(all, lengths, places, MPI_INT, rank == root ? MPI_IN_PLACE : mine, lengths[rank], MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; rank != root && i < lengths[rank]; i++) SAME(mine[i], word(root, rank, i));

    int sums[COUNT];
    for (int i = 0; i < COUNT; i++) sums[i] = rank + i;
    MPI_Reduce(rank == root ? MPI_IN_PLACE : sums, sums, COUNT, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    for (int i = 0; rank == root && i < COUNT; i++) SAME(sums[i], size * (size - 1) / 2 + i * size);
    free(all);
}

static void unrooted(void)
{
    int *all = need(size * COUNT * sizeof *all);
    for (int i = 0; i < size * COUNT; i++) all[i] = i / COUNT == rank ? word(rank, 0, i % COUNT) : -1;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, COUNT, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size * COUNT; i++) SAME(all[i], word(i / COUNT, 0, i % COUNT));

    int lengths[size], places[size];
    for (int r = 0; r < size; r++) lengths[r] = r % 4, places[r] = r * COUNT;
    for (int i = 0; i < size * COUNT; i++) all[i] = i / COUNT == rank ? word(rank, 1, i % COUNT) : -1;
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, lengths, places, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < lengths[r]; i++) SAME(all[places[r] + i], word(r, 1, i));

    for (int i = 0; i < size * COUNT; i++) all[i] = word(rank, i / COUNT, i % COUNT);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, COUNT, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size * COUNT; i++) SAME(all[i], word(i / COUNT, rank, i % COUNT));

    MPI_Datatype types[size];
    int bytes[size];
    for (int r = 0; r < size; r++) lengths[r] = (r + rank) % 5, bytes[r] = places[r] * (int)sizeof(int), types[r] = MPI_INT;
    for (int i = 0; i < size * COUNT; i++) all[i] = word(rank, i / COUNT, i % COUNT);
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, all, lengths, places, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < COUNT; i++) SAME(all[r * COUNT + i], i < lengths[r] ? word(r, rank, i) : word(rank, r, i));
    for (int i = 0; i < size * COUNT; i++) all[i] = word(rank, i / COUNT, i % COUNT);
    MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, all, lengths, bytes, types, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < COUNT; i++) SAME(all[r * COUNT + i], i < lengths[r] ? word(r, rank, i) : word(rank, r, i));
    free(all);
}

static void reductions(void)
{
    int sums[COUNT], *blocks = need(size * COUNT * sizeof *blocks), counts[size];
    for (int i = 0; i < COUNT; i++) sums[i] = rank + i;
    MPI_Allreduce(MPI_IN_PLACE, sums, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) SAME(sums[i], size * (size - 1) / 2 + i * size);

    for (int i = 0; i < COUNT; i++) sums[i] = rank + i;
    MPI_Scan(MPI_IN_PLACE, sums, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) SAME(sums[i], rank * (rank + 1) / 2 + i * (rank + 1));

    for (int i = 0; i < COUNT; i++) sums[i] = rank + i;
    MPI_Exscan(MPI_IN_PLACE, sums, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; rank > 0 && i < COUNT; i++) SAME(sums[i], rank * (rank - 1) / 2 + i * rank);

    for (int i = 0; i < size * COUNT; i++) blocks[i] = rank + i;
    MPI_Reduce_scatter_block(MPI_IN_PLACE, blocks, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) SAME(blocks[i], size * (size - 1) / 2 + (rank * COUNT + i) * size);

    int before = 0, total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r % 3 + (r == size - 1);
        before += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    for (int i = 0; i < total; i++) blocks[i] = rank + i;
    MPI_Reduce_scatter(MPI_IN_PLACE, blocks, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < counts[rank]; i++) SAME(blocks[i], size * (size - 1) / 2 + (before + i) * size);
    free(blocks);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "inplace");
    for (int root = 0; root < size; root++) rooted(root);
    unrooted();
    reductions();
    return finish();
}
