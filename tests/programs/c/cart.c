/* Cartesian topologies: create, coordinates, shifts, sub-grids, maps (MPI 4.1 §8.5), and a halo exchange on them. */
#include "check.h"

static void grid(int nd, int periodic)
{
    int dims[3] = {0}, periods[3] = {periodic, 0, periodic}, got_dims[3], got_periods[3], coords[3], mine[3], nd_got, n, me, kind;
    MPI_Comm cart;
    MPI_Dims_create(size, nd, dims);
    MPI_Cart_create(MPI_COMM_WORLD, nd, dims, periods, 0, &cart);
    MPI_Comm_size(cart, &n);
    MPI_Comm_rank(cart, &me);
    SAME(n, size);
    SAME(me, rank); /* no reordering was asked for */
    MPI_Topo_test(cart, &kind);
    SAME(kind, MPI_CART);
    MPI_Cartdim_get(cart, &nd_got);
    SAME(nd_got, nd);
    MPI_Cart_get(cart, nd, got_dims, got_periods, mine);
    int product = 1, row_major = 0;
    for (int d = 0; d < nd; d++) {
        SAME(got_dims[d], dims[d]);
        SAME(!!got_periods[d], periods[d]);
        product *= dims[d];
        row_major = row_major * dims[d] + mine[d];
    }
    SAME(product, size);
    SAME(row_major, me);
    for (int r = 0; r < size; r++) {
        int back;
        MPI_Cart_coords(cart, r, nd, coords);
        MPI_Cart_rank(cart, coords, &back);
        SAME(back, r);
    }
    for (int d = 0; d < nd; d++) {
        int source, dest, want = -1;
        MPI_Cart_shift(cart, d, 1, &source, &dest);
        MPI_Cart_coords(cart, me, nd, coords);
        coords[d]++;
        if (!periods[d] && coords[d] >= dims[d]) want = MPI_PROC_NULL;
        else {
            coords[d] %= dims[d];
            MPI_Cart_rank(cart, coords, &want);
        }
        SAME(dest, want);
        int halo = -1;
        MPI_Sendrecv(&me, 1, MPI_INT, dest, d, &halo, 1, MPI_INT, source, d, cart, MPI_STATUS_IGNORE);
        SAME(halo, source == MPI_PROC_NULL ? -1 : source);
    }
    if (periodic) { /* coordinates wrap */
        int back;
        MPI_Cart_coords(cart, me, nd, coords);
        coords[0] -= 3 * dims[0];
        MPI_Cart_rank(cart, coords, &back);
        SAME(back, me);
    }
    /* Rows and columns. */
    for (int d = 0; d < nd; d++) {
        int keep[3] = {0}, sum, line_size, line_rank;
        MPI_Comm line;
        keep[d] = 1;
        MPI_Cart_sub(cart, keep, &line);
        MPI_Comm_size(line, &line_size);
        MPI_Comm_rank(line, &line_rank);
        SAME(line_size, dims[d]);
        SAME(line_rank, mine[d]);
        MPI_Allreduce(&mine[d], &sum, 1, MPI_INT, MPI_SUM, line);
        SAME(sum, dims[d] * (dims[d] - 1) / 2);
        MPI_Topo_test(line, &kind);
        SAME(kind, MPI_CART);
        MPI_Comm_free(&line);
    }
    MPI_Comm dup;
    MPI_Comm_dup(cart, &dup); /* the topology is duplicated too */
    MPI_Topo_test(dup, &kind);
    SAME(kind, MPI_CART);
    MPI_Comm_free(&dup);
    MPI_Comm_free(&cart);
}

/* Smaller than the communicator: the rest gets MPI_COMM_NULL. */
static void smaller(void)
{
    int dims[] = {size - 1}, periods[] = {1}, at;
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
    CHECK((cart == MPI_COMM_NULL) == (rank == size - 1), "in the grid or not?");
    if (cart != MPI_COMM_NULL) {
        int source, dest;
        MPI_Cart_shift(cart, 0, 1, &source, &dest);
        SAME(dest, (rank + 1) % (size - 1));
        MPI_Comm_free(&cart);
    }
    MPI_Cart_map(MPI_COMM_WORLD, 1, dims, periods, &at);
    CHECK(at == MPI_UNDEFINED || (at >= 0 && at < size), "mapped to %d", at);
}

/* With reordering the ranks may be permuted: they are still a permutation. */
static void reordered(void)
{
    int dims[2] = {0}, periods[2] = {0}, me, sum, kind;
    MPI_Comm cart;
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &cart);
    MPI_Comm_rank(cart, &me);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, cart);
    SAME(sum, size * (size - 1) / 2);
    MPI_Comm_free(&cart);
    MPI_Topo_test(MPI_COMM_WORLD, &kind);
    SAME(kind, MPI_UNDEFINED);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "cart");
    for (int nd = 1; nd <= 3; nd++)
        for (int periodic = 0; periodic < 2; periodic++) grid(nd, periodic);
    smaller();
    reordered();
    return finish();
}
