/* halo ROWS COLUMNS STEPS: heat on a grid of ROWS x COLUMNS for each rank, one rank below the other, the last beside the first. Each step exchanges
 * the outer rows with both neighbours. Says `seconds`, of all steps. What is warm stays so: the sum is checked. */
#include "common.h"

static double *row(double *grid, int columns, int i)
{
    return grid + (size_t)i * (size_t)columns;
}

static void exchange(double *grid, int rows, int columns, int above, int below)
{
    MPI_Request requests[4];
    MPI_Irecv(row(grid, columns, 0), columns, MPI_DOUBLE, above, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(row(grid, columns, rows + 1), columns, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(row(grid, columns, rows), columns, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(row(grid, columns, 1), columns, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void step(const double *old, double *new, int rows, int columns)
{
    for (int i = 1; i <= rows; i++)
        for (int j = 0; j < columns; j++) {
            const double *at = old + (size_t)i * (size_t)columns + j;
            double left = at[j ? -1 : columns - 1], right = at[j + 1 < columns ? 1 : 1 - columns];
            new[(size_t)i * (size_t)columns + (size_t)j] = (at[0] * 4 + left + right + at[-columns] + at[columns]) / 8;
        }
}

static double sum_of(const double *grid, int rows, int columns)
{
    double mine = 0, all;
    for (int i = 0; i < rows * columns; i++)
        mine += grid[columns + i];
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int me, size, rows = atoi(argv[1]), columns = atoi(argv[2]), steps = atoi(argv[3]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t cells = (size_t)(rows + 2) * (size_t)columns;
    double *old = calloc(cells, sizeof *old), *new = calloc(cells, sizeof *new);
    if (!old || !new)
        die("no memory");
    for (int i = 0; i < rows * columns; i++)
        old[columns + i] = (double)((me * 31 + i) % 97);
    double before = sum_of(old, rows, columns);
    MPI_Barrier(MPI_COMM_WORLD);
    double from = now();
    for (int k = 0; k < steps; k++) {
        exchange(old, rows, columns, (me + size - 1) % size, (me + 1) % size);
        step(old, new, rows, columns);
        double *swap = old;
        old = new;
        new = swap;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = now() - from, after = sum_of(old, rows, columns), off = after > before ? after - before : before - after;
    /* Not a number is not small either. */
    if (!(off <= before * 1e-9))
        die("heat was lost or made: wrong data");
    if (me == 0)
        say("seconds", &seconds, 1);
    MPI_Finalize();
    return 0;
}
