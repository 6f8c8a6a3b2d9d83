/* The large-count forms (MPI 4.0 _c procedures), where the vendor has them. */
#include "check.h"

#if MPI_VERSION < 4
int main(int argc, char **argv)
{
    start(&argc, &argv, "large_count");
    return finish(); /* nothing to test with this vendor */
}
#else

static int next, previous;

static void pt2pt(void)
{
    MPI_Count n = 1000, got;
    int *out = need(n * sizeof *out), *in = need(n * sizeof *in);
    MPI_Request request[2];
    MPI_Status status;
    for (int i = 0; i < n; i++) out[i] = rank + i;
    MPI_Irecv_c(in, n, MPI_INT, previous, 1, MPI_COMM_WORLD, &request[0]);
    MPI_Isend_c(out, n, MPI_INT, next, 1, MPI_COMM_WORLD, &request[1]);
    MPI_Wait(&request[0], &status);
    MPI_Wait(&request[1], MPI_STATUS_IGNORE);
    MPI_Get_count_c(&status, MPI_INT, &got);
    SAME(got, n);
    for (int i = 0; i < n; i++) SAME(in[i], previous + i);
    MPI_Sendrecv_c(out, n, MPI_INT, next, 2, in, n, MPI_INT, previous, 2, MPI_COMM_WORLD, &status);
    MPI_Sendrecv_replace_c(out, n, MPI_INT, next, 3, previous, 3, MPI_COMM_WORLD, &status);
    for (int i = 0; i < n; i++) SAME(out[i], previous + i);
    if (rank == 0) MPI_Send_c(out, n, MPI_INT, size - 1, 4, MPI_COMM_WORLD);
    if (rank == size - 1) MPI_Recv_c(in, n, MPI_INT, 0, 4, MPI_COMM_WORLD, &status);
    free(out);
    free(in);
}

static void types(void)
{
    MPI_Datatype vector, structure;
    MPI_Count lengths[] = {2, 1}, places[] = {0, 16}, size_c;
    MPI_Datatype parts[] = {MPI_INT, MPI_DOUBLE};
    MPI_Status status;
    int out[12], in[6];
    MPI_Type_vector_c(3, 2, 4, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    MPI_Type_size_c(vector, &size_c);
    SAME(size_c, 24);
    for (int i = 0; i < 12; i++) out[i] = rank * 20 + i;
    MPI_Sendrecv(out, 1, vector, next, 5, in, 6, MPI_INT, previous, 5, MPI_COMM_WORLD, &status);
    for (int i = 0; i < 6; i++) SAME(in[i], previous * 20 + i / 2 * 4 + i % 2);
    MPI_Type_free(&vector);
    MPI_Type_create_struct_c(2, lengths, places, parts, &structure);
    MPI_Type_commit(&structure);
    struct { int a[4]; double b; } s = {{rank, rank + 1, 0, 0}, rank / 2.0}, r = {{0}, 0};
    MPI_Sendrecv(&s, 1, structure, next, 6, &r, 1, structure, previous, 6, MPI_COMM_WORLD, &status);
    SAME(r.a[1], previous + 1);
    CHECK(r.b == previous / 2.0, "%f", r.b);
    MPI_Type_free(&structure);
}

static void collectives(void)
{
    int value = rank == 0 ? 7 : -1, sum, all[size], in[size];
    MPI_Count counts[size];
    MPI_Aint places[size];
    MPI_Bcast_c(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    SAME(value, 7);
    MPI_Allreduce_c(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    SAME(sum, size * (size - 1) / 2);
    MPI_Allgather_c(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) SAME(all[r], r);
    for (int r = 0; r < size; r++) counts[r] = 1, places[r] = size - 1 - r;
    MPI_Allgatherv_c(&rank, 1, MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) SAME(all[size - 1 - r], r);
    for (int r = 0; r < size; r++) all[r] = rank * 100 + r;
    MPI_Alltoall_c(all, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) SAME(in[r], r * 100 + rank);
    MPI_Alltoallv_c(all, counts, places, MPI_INT, in, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) SAME(in[size - 1 - r], r * 100 + size - 1 - rank);
    MPI_Gather_c(&rank, 1, MPI_INT, all, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    MPI_Scatter_c(all, 1, MPI_INT, &value, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    SAME(value, rank);
    MPI_Reduce_c(&rank, &sum, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    SAME(sum, rank == 0 ? size - 1 : size * (size - 1) / 2);
    MPI_Scan_c(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    SAME(sum, rank * (rank + 1) / 2);
}

static void add(void *left, void *right, MPI_Count *count, MPI_Datatype *type)
{
    (void)type;
    for (MPI_Count i = 0; i < *count; i++) ((int *)right)[i] += ((int *)left)[i];
}

static void user_op(void)
{
    MPI_Op op;
    int in[3] = {rank, 1, 2}, out[3];
    MPI_Op_create_c(add, 1, &op);
    MPI_Allreduce(in, out, 3, MPI_INT, op, MPI_COMM_WORLD);
    SAME(out[0], size * (size - 1) / 2);
    SAME(out[2], 2 * size);
    MPI_Op_free(&op);
}

/* `large_count --huge`: more elements than an int counts. */
static void huge(void)
{
    MPI_Count n = ((MPI_Count)1 << 31) + 5, got;
    if (rank != 0 && rank != size - 1) return;
    char *data = need(n);
    if (rank == 0) {
        data[0] = 1, data[n / 2] = 2, data[n - 1] = 3;
        MPI_Send_c(data, n, MPI_CHAR, size - 1, 1, MPI_COMM_WORLD);
    } else {
        MPI_Status status;
        MPI_Recv_c(data, n, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count_c(&status, MPI_CHAR, &got);
        SAME(got, n);
        SAME(data[0], 1);
        SAME(data[n / 2], 2);
        SAME(data[n - 1], 3);
    }
    free(data);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "large_count");
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    pt2pt();
    types();
    collectives();
    user_op();
    if (argc > 1 && strcmp(argv[1], "--huge") == 0) huge();
    return finish();
}
#endif
