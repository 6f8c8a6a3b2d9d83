/* User-defined operations: commutative and not, on predefined and derived types, on communicators of any order.
 *
 * A non-commutative operation is evaluated in rank order (MPI 4.1 §6.9.1), which the composition of affine maps tells; how it is
 * grouped is the library's choice. An operation gets the call's own datatype (§6.9.5): each looks at what it got. */
#include "check.h"
#include <stddef.h>

enum { P = 1000003 };

struct map { long a, b; }; /* x → a x + b, modulo P */

/* The type that an operation was given has elements of so many bytes, so far apart. */
static void is_type(MPI_Datatype type, int bytes, MPI_Aint apart)
{
    int got;
    MPI_Aint low, extent;
    MPI_Type_size(type, &got);
    MPI_Type_get_extent(type, &low, &extent);
    SAME(got, bytes);
    SAME(extent, apart);
}

/* inout = in ∘ inout, in on the left: apply `in` first. */
static void compose(void *left, void *right, int *count, MPI_Datatype *type)
{
    struct map *l = left, *r = right;
    is_type(*type, sizeof *l, sizeof *l);
    for (int i = 0; i < *count; i++) {
        long a = r[i].a * l[i].a % P, b = (r[i].a * l[i].b + r[i].b) % P;
        r[i].a = a, r[i].b = b;
    }
}

/* Commutative: sums, component by component, of a type with holes. */
struct holes { int value; char hole[12]; double other; };

static void add_holes(void *left, void *right, int *count, MPI_Datatype *type)
{
    struct holes *l = left, *r = right;
    is_type(*type, sizeof l->value + sizeof l->other, sizeof *l);
    for (int i = 0; i < *count; i++) r[i].value += l[i].value, r[i].other += l[i].other;
}

static void complex_user(void *left, void *right, int *count, MPI_Datatype *type)
{
    long *l = left, *r = right;
    is_type(*type, sizeof *l, sizeof *l);
    for (int i = 0; i < *count; i++) r[i] = l[i] > r[i] ? l[i] : r[i];
}

static struct map map_of(int r, int i) { return (struct map){.a = (r * 31 + i * 7) % 1000 + 2, .b = (r * 17 + i) % 1000 + 1}; }

static struct map composed(int from, int to, int i)
{
    struct map all = {1, 0};
    for (int r = from; r < to; r++) {
        struct map m = map_of(r, i);
        all.b = (m.a * all.b + m.b) % P;
        all.a = m.a * all.a % P;
    }
    return all;
}

static void same_map(struct map got, struct map want, const char *what, int i)
{
    CHECK(got.a == want.a && got.b == want.b, "%s element %d: %ld x + %ld, not %ld x + %ld", what, i, got.a, got.b, want.a, want.b);
}

static void non_commutative(MPI_Comm comm, int count)
{
    int me, n;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    MPI_Type_contiguous(2, MPI_LONG, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose, 0, &op);
    struct map *in = need(n * count * sizeof *in), *out = need(n * count * sizeof *out);
    for (int i = 0; i < n * count; i++) in[i] = map_of(me, i);

    for (int root = 0; root < n; root++) {
        MPI_Reduce(in, out, count, type, op, root, comm);
        for (int i = 0; me == root && i < count; i++) same_map(out[i], composed(0, n, i), "reduce", i);
    }
    MPI_Allreduce(in, out, count, type, op, comm);
    for (int i = 0; i < count; i++) same_map(out[i], composed(0, n, i), "allreduce", i);
    MPI_Scan(in, out, count, type, op, comm);
    for (int i = 0; i < count; i++) same_map(out[i], composed(0, me + 1, i), "scan", i);
    MPI_Exscan(in, out, count, type, op, comm);
    for (int i = 0; me > 0 && i < count; i++) same_map(out[i], composed(0, me, i), "exscan", i);
    MPI_Reduce_scatter_block(in, out, count, type, op, comm);
    for (int i = 0; i < count; i++) same_map(out[i], composed(0, n, me * count + i), "reduce_scatter_block", i);
    int counts[n], before = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = count - (count > 1 && r % 2);
        before += r < me ? counts[r] : 0;
    }
    MPI_Reduce_scatter(in, out, counts, type, op, comm);
    for (int i = 0; i < counts[me]; i++) same_map(out[i], composed(0, n, before + i), "reduce_scatter", i);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    free(in);
    free(out);
}

static void with_holes(void)
{
    static const int lengths[] = {1, 1};
    static const MPI_Aint places[] = {offsetof(struct holes, value), offsetof(struct holes, other)};
    MPI_Datatype parts[] = {MPI_INT, MPI_DOUBLE}, tight, type;
    MPI_Op op;
    MPI_Type_create_struct(2, lengths, places, parts, &tight);
    MPI_Type_create_resized(tight, 0, sizeof(struct holes), &type);
    MPI_Type_free(&tight);
    MPI_Type_commit(&type);
    MPI_Op_create(add_holes, 1, &op);
    enum { COUNT = 300 };
    static struct holes in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        memset(&out[i], 0x33, sizeof out[i]);
        in[i] = (struct holes){.value = rank + i, .other = rank * 0.5};
    }
    MPI_Allreduce(in, out, COUNT, type, op, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        SAME(out[i].value, size * (size - 1) / 2 + i * size);
        CHECK(out[i].other == size * (size - 1) / 4.0, "%f", out[i].other);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

static void commutative_flag(void)
{
    MPI_Op op;
    int flag;
    long in = (rank * 5) % size, out;
    MPI_Op_create(complex_user, 1, &op);
    MPI_Op_commutative(op, &flag);
    SAME(flag, 1);
    MPI_Allreduce(&in, &out, 1, MPI_LONG, op, MPI_COMM_WORLD);
    long most = 0;
    for (int r = 0; r < size; r++) most = r * 5 % size > most ? r * 5 % size : most;
    SAME(out, most);
    long a = 3, b = 2;
    MPI_Reduce_local(&a, &b, 1, MPI_LONG, op);
    SAME(b, 3);
    MPI_Op_free(&op);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "user_ops");
    MPI_Comm reversed, odd_even;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank % 2 * 1000 + rank, &odd_even); /* evens first: clusters interleave */
    MPI_Comm comms[] = {MPI_COMM_WORLD, reversed, odd_even};
    for (int c = 0; c < 3; c++) {
        non_commutative(comms[c], 1);
        non_commutative(comms[c], 700);
        non_commutative(comms[c], 20000 / size);
    }
    with_holes();
    commutative_flag();
    MPI_Comm_free(&reversed);
    MPI_Comm_free(&odd_even);
    return finish();
}
