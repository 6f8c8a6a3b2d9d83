/* MPI_Sendrecv and MPI_Sendrecv_replace: shifts by every distance, pairs, PROC_NULL ends, wildcards, unequal sizes. */
#include "check.h"

static void shift(int distance, int bytes)
{
    int to = (rank + distance) % size, from = (rank + size - distance) % size;
    char *out = need(bytes), *in = need(bytes);
    MPI_Status status;
    fill(out, bytes, rank);
    MPI_Sendrecv(out, bytes, MPI_BYTE, to, 5, in, bytes, MPI_BYTE, from, 5, MPI_COMM_WORLD, &status);
    STATUS_IS(status, from, 5, MPI_BYTE, bytes);
    VERIFY(in, bytes, from);

    MPI_Sendrecv_replace(out, bytes, MPI_BYTE, to, 6, from, 6, MPI_COMM_WORLD, &status);
    STATUS_IS(status, from, 6, MPI_BYTE, bytes);
    VERIFY(out, bytes, from);
    free(out);
    free(in);
}

/* A line with PROC_NULL at both ends, as halo exchanges use it. */
static void line(void)
{
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    int value = rank, halo = -7;
    MPI_Status status;
    MPI_Sendrecv(&value, 1, MPI_INT, right, 1, &halo, 1, MPI_INT, left, 1, MPI_COMM_WORLD, &status);
    SAME(halo, left == MPI_PROC_NULL ? -7 : left);
    SAME(status.MPI_SOURCE, left);
    value = rank;
    MPI_Sendrecv_replace(&value, 1, MPI_INT, left, 2, right, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SAME(value, right == MPI_PROC_NULL ? rank : right);
}

/* The two halves are independent: other sizes, types and peers. */
static void unequal(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int out[3] = {rank, rank + 1, rank + 2};
    double in[10];
    MPI_Status status;
    if (rank % 2 == 0) { /* pairs (0,1), (2,3) …: even sends 3 ints, odd answers with 10 doubles */
        if (next == 0 || next % 2 == 0) return;
        MPI_Sendrecv(out, 3, MPI_INT, next, 1, in, 10, MPI_DOUBLE, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &status);
        STATUS_IS(status, next, 8, MPI_DOUBLE, 10);
        CHECK(in[9] == next + 0.5, "%f", in[9]);
    } else {
        int got[3];
        for (int i = 0; i < 10; i++) in[i] = rank + 0.5;
        MPI_Sendrecv(in, 10, MPI_DOUBLE, previous, 8, got, 3, MPI_INT, previous, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        STATUS_IS(status, previous, 1, MPI_INT, 3);
        SAME(got[2], previous + 2);
    }
}

int main(int argc, char **argv)
{
    static const int sizes[] = {0, 8, 5000, 200000, 2000000};
    start(&argc, &argv, "sendrecv");
    for (int s = 0; s < 5; s++)
        for (int distance = 0; distance < size; distance++) shift(distance, sizes[s]);
    line();
    unequal();
    return finish();
}
