/* heat: the two-dimensional heat equation on a square plate, by explicit finite differences on all ranks.
 *
 *   heat [-n CELLS] [-t STEPS] [-v]
 *
 * The plate is cut into rectangles, one a rank (MPI_Cart_create). Each step exchanges one row or column of cells with
 * every neighbour (MPI_Isend / MPI_Irecv, columns as a derived datatype) and updates the interior meanwhile. With -v
 * rank 0 also computes the whole plate alone and compares: the two agree to the last bit, because every cell is computed
 * by the same expression from the same neighbours. The program knows nothing of clusters. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct plate {
    int rows, columns;         /* without the halo */
    int first_row, first_column; /* of the whole plate */
    double *now, *next;        /* (rows + 2) × (columns + 2), with the halo */
};

static double *cell(const struct plate *p, double *grid, int row, int column)
{
    return &grid[(size_t)row * (p->columns + 2) + column];
}

static void *need(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) {
        fprintf(stderr, "heat: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memory;
}

/* The edges of the plate stay at 0 degrees; a hot disc and a warm bar start in the middle of it. */
static double initial(int n, int row, int column)
{
    double x = (column + 0.5) / n - 0.4, y = (row + 0.5) / n - 0.45;
    if (x * x + y * y < 0.02) return 100;
    return row > 3 * n / 4 && row < 3 * n / 4 + n / 16 ? 40 : 0;
}

static struct plate make(int n, int first_row, int rows, int first_column, int columns)
{
    struct plate p = {rows, columns, first_row, first_column, NULL, NULL};
    size_t bytes = (size_t)(rows + 2) * (columns + 2) * sizeof(double);
    p.now = need(bytes);
    p.next = need(bytes);
    for (int r = 1; r <= rows; r++)
        for (int c = 1; c <= columns; c++) *cell(&p, p.now, r, c) = initial(n, first_row + r - 1, first_column + c - 1);
    return p;
}

static void update(const struct plate *p, int row_from, int row_to, int column_from, int column_to)
{
    for (int r = row_from; r <= row_to; r++)
        for (int c = column_from; c <= column_to; c++) {
            double here = *cell(p, p->now, r, c);
            double around = *cell(p, p->now, r - 1, c) + *cell(p, p->now, r + 1, c) + *cell(p, p->now, r, c - 1) + *cell(p, p->now, r, c + 1);
            *cell(p, p->next, r, c) = here + 0.2 * (around - 4 * here);
        }
}

static void swap(struct plate *p)
{
    double *now = p->now;
    p->now = p->next;
    p->next = now;
}

/* One step: start the exchange, compute what needs no neighbour, finish the exchange, compute the rim. */
static void step(struct plate *p, MPI_Comm cart, MPI_Datatype column)
{
    MPI_Request request[8];
    int up, down, left, right, rows = p->rows, columns = p->columns;
    MPI_Cart_shift(cart, 0, 1, &up, &down);
    MPI_Cart_shift(cart, 1, 1, &left, &right);
    MPI_Irecv(cell(p, p->now, 0, 1), columns, MPI_DOUBLE, up, 0, cart, &request[0]);
    MPI_Irecv(cell(p, p->now, rows + 1, 1), columns, MPI_DOUBLE, down, 1, cart, &request[1]);
    MPI_Irecv(cell(p, p->now, 1, 0), 1, column, left, 2, cart, &request[2]);
    MPI_Irecv(cell(p, p->now, 1, columns + 1), 1, column, right, 3, cart, &request[3]);
    MPI_Isend(cell(p, p->now, rows, 1), columns, MPI_DOUBLE, down, 0, cart, &request[4]);
    MPI_Isend(cell(p, p->now, 1, 1), columns, MPI_DOUBLE, up, 1, cart, &request[5]);
    MPI_Isend(cell(p, p->now, 1, columns), 1, column, right, 2, cart, &request[6]);
    MPI_Isend(cell(p, p->now, 1, 1), 1, column, left, 3, cart, &request[7]);
    update(p, 2, rows - 1, 2, columns - 1);
    MPI_Waitall(8, request, MPI_STATUSES_IGNORE);
    update(p, 1, 1, 1, columns);
    if (rows > 1) update(p, rows, rows, 1, columns);
    update(p, 2, rows - 1, 1, 1);
    if (columns > 1) update(p, 2, rows - 1, columns, columns);
    swap(p);
}

static double total(struct plate *p)
{
    double sum = 0;
    for (int r = 1; r <= p->rows; r++)
        for (int c = 1; c <= p->columns; c++) sum += *cell(p, p->now, r, c);
    return sum;
}

/* Rank 0 collects every rectangle and compares it with its own serial result. Returns the number of unequal cells. */
static long verify(struct plate *mine, MPI_Comm cart, int n, int steps)
{
    int rank, size, place[4] = {mine->first_row, mine->rows, mine->first_column, mine->columns};
    long wrong = 0;
    MPI_Comm_rank(cart, &rank);
    MPI_Comm_size(cart, &size);
    MPI_Datatype inner;
    MPI_Type_vector(mine->rows, mine->columns, mine->columns + 2, MPI_DOUBLE, &inner);
    MPI_Type_commit(&inner);
    if (rank != 0) {
        MPI_Send(place, 4, MPI_INT, 0, 10, cart);
        MPI_Send(cell(mine, mine->now, 1, 1), 1, inner, 0, 11, cart);
        MPI_Type_free(&inner);
        return 0;
    }
    MPI_Type_free(&inner);
    struct plate whole = make(n, 0, n, 0, n);
    for (int t = 0; t < steps; t++) {
        update(&whole, 1, n, 1, n);
        swap(&whole);
    }
    double *part = need((size_t)n * n * sizeof *part);
    for (int r = 0; r < size; r++) {
        if (r > 0) {
            MPI_Status status;
            MPI_Recv(place, 4, MPI_INT, MPI_ANY_SOURCE, 10, cart, &status);
            MPI_Recv(part, n * n, MPI_DOUBLE, status.MPI_SOURCE, 11, cart, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < place[1]; i++)
            for (int j = 0; j < place[3]; j++) {
                double got = r > 0 ? part[(size_t)i * place[3] + j] : *cell(mine, mine->now, i + 1, j + 1);
                wrong += got != *cell(&whole, whole.now, place[0] + i + 1, place[2] + j + 1);
            }
    }
    free(part);
    free(whole.now);
    free(whole.next);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, size, n = 512, steps = 200, check = 0, option, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    while ((option = getopt(argc, argv, "n:t:v")) != -1) {
        if (option == 'n') n = atoi(optarg);
        else if (option == 't') steps = atoi(optarg);
        else if (option == 'v') check = 1;
        else MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int dims[2] = {0}, periods[2] = {0}, coords[2];
    MPI_Comm cart;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    MPI_Comm_rank(cart, &rank);
    MPI_Cart_coords(cart, rank, 2, coords);
    if (n < dims[0] || n < dims[1]) {
        if (rank == 0) fprintf(stderr, "heat: %d cells a side are too few for %d x %d ranks\n", n, dims[0], dims[1]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int row = (int)((long)n * coords[0] / dims[0]), row_end = (int)((long)n * (coords[0] + 1) / dims[0]);
    int column_at = (int)((long)n * coords[1] / dims[1]), column_end = (int)((long)n * (coords[1] + 1) / dims[1]);
    struct plate mine = make(n, row, row_end - row, column_at, column_end - column_at);
    MPI_Datatype column;
    MPI_Type_vector(mine.rows, 1, mine.columns + 2, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);

    double sum = total(&mine), before = 0, after = 0, started = MPI_Wtime();
    MPI_Reduce(&sum, &before, 1, MPI_DOUBLE, MPI_SUM, 0, cart);
    for (int t = 0; t < steps; t++) step(&mine, cart, column);
    sum = total(&mine);
    MPI_Reduce(&sum, &after, 1, MPI_DOUBLE, MPI_SUM, 0, cart);
    double seconds = MPI_Wtime() - started;
    if (rank == 0)
        printf("heat: %d x %d cells, %d steps on %d x %d ranks in %.2f s; heat left %.4f of %.4f\n", n, n, steps, dims[0], dims[1], seconds, after, before);

    long wrong = check ? verify(&mine, cart, n, steps) : 0;
    if (rank == 0 && check) printf(wrong ? "heat: %ld cells differ from the serial result\n" : "heat: equal to the serial result\n", wrong);
    MPI_Bcast(&wrong, 1, MPI_LONG, 0, cart);
    MPI_Type_free(&column);
    MPI_Comm_free(&cart);
    free(mine.now);
    free(mine.next);
    MPI_Finalize();
    if (rank == 0 && !wrong) printf("ok heat on %d ranks\n", size);
    return wrong != 0;
}
