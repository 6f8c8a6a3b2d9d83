/* Distributed arrays with cyclic and block distributions, in C and Fortran order, against the standard's definition.
 *
 * (Intel MPI 2021.18 alone lays out a cyclic dimension wrongly; what crosses between clusters GridMPI lays out.) */
#include "check.h"

static const char *whose; /* cluster the previous rank is in, which is who sends */

enum { N0 = 12, N1 = 10, P0 = 2, P1 = 2 };

struct dimension {
    int distribution, argument, size, places, coordinate;
};

/* Does this process own index i? (MPI 4.1 §5.1.4) */
static int owns(struct dimension d, int i)
{
    if (d.distribution == MPI_DISTRIBUTE_NONE) return 1;
    int block = d.argument;
    if (block == MPI_DISTRIBUTE_DFLT_DARG)
        block = d.distribution == MPI_DISTRIBUTE_BLOCK ? (d.size + d.places - 1) / d.places : 1;
    return i / block % d.places == d.coordinate;
}

static void one(int order, int d0, int a0, int d1, int a1, int process)
{
    int sizes[] = {N0, N1}, distributions[] = {d0, d1}, arguments[] = {a0, a1};
    int places[] = {d0 == MPI_DISTRIBUTE_NONE ? 1 : P0, d1 == MPI_DISTRIBUTE_NONE ? 1 : P1};
    process %= places[0] * places[1];
    struct dimension x = {d0, a0, N0, places[0], process / places[1]}; /* the grid is row-major in either order */
    struct dimension y = {d1, a1, N1, places[1], process % places[1]};
    int out[N0 * N1], in[N0 * N1], want[N0 * N1], count = 0, bytes;
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < N0 * N1; i++) out[i] = rank * 1000 + i, in[i] = -1;
    if (order == MPI_ORDER_C) {
        for (int i = 0; i < N0; i++)
            for (int j = 0; j < N1; j++)
                if (owns(x, i) && owns(y, j)) want[count++] = previous * 1000 + i * N1 + j;
    } else {
        for (int j = 0; j < N1; j++)
            for (int i = 0; i < N0; i++)
                if (owns(x, i) && owns(y, j)) want[count++] = previous * 1000 + j * N0 + i;
    }
    MPI_Datatype type;
    MPI_Aint low, extent;
    MPI_Type_create_darray(places[0] * places[1], process, 2, sizes, distributions, arguments, places, order, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Type_size(type, &bytes);
    SAME(bytes, count * (int)sizeof(int));
    MPI_Type_get_extent(type, &low, &extent);
    SAME(extent, N0 * N1 * (int)sizeof(int));
    MPI_Sendrecv(out, 1, type, next, 1, in, count, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < count; i++) CHECK(in[i] == want[i], "%d, not %d, from %s cluster", in[i], want[i], whose);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    enum { BLOCK, BLOCK_LARGE, CYCLIC, CYCLIC_2, NONE, KINDS };
    start(&argc, &argv, "types_darray");
    int colours[size], mine = cluster_colour();
    MPI_Allgather(&mine, 1, MPI_INT, colours, 1, MPI_INT, MPI_COMM_WORLD);
    whose = colours[(rank + size - 1) % size] == mine ? "the same" : "another";
    const int kind[KINDS] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    const int argument[KINDS] = {MPI_DISTRIBUTE_DFLT_DARG, 8, MPI_DISTRIBUTE_DFLT_DARG, 2, MPI_DISTRIBUTE_DFLT_DARG};
    for (int order = 0; order < 2; order++)
        for (int k0 = 0; k0 < KINDS; k0++)
            for (int k1 = 0; k1 < KINDS; k1++)
                for (int process = 0; process < P0 * P1; process++)
                    one(order ? MPI_ORDER_FORTRAN : MPI_ORDER_C, kind[k0], argument[k0], kind[k1], argument[k1], process);
    return finish();
}
