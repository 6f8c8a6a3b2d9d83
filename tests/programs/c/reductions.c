/* Every predefined operation and type in reduce, allreduce, scan, exscan and reduce_scatter, at every root. */
#include "check.h"
#include <complex.h>
#include <math.h>
#include <stdbool.h>

enum { COUNT = 50 };

/* Integers: one check for each C type, by widening to long long. */
#define INTEGER_CASE(name, ctype, mpitype)                                                        \
    static void name(void)                                                                        \
    {                                                                                             \
        ctype in[COUNT], sum[COUNT], most[COUNT], least[COUNT], all[COUNT], any[COUNT], odd[COUNT]; \
        for (int i = 0; i < COUNT; i++) in[i] = (ctype)((rank + i) % 4 + 1);                      \
        MPI_Allreduce(in, sum, COUNT, mpitype, MPI_SUM, MPI_COMM_WORLD);                          \
        MPI_Allreduce(in, most, COUNT, mpitype, MPI_MAX, MPI_COMM_WORLD);                         \
        MPI_Allreduce(in, least, COUNT, mpitype, MPI_MIN, MPI_COMM_WORLD);                        \
        MPI_Allreduce(in, all, COUNT, mpitype, MPI_BAND, MPI_COMM_WORLD);                         \
        MPI_Allreduce(in, any, COUNT, mpitype, MPI_BOR, MPI_COMM_WORLD);                          \
        MPI_Allreduce(in, odd, COUNT, mpitype, MPI_BXOR, MPI_COMM_WORLD);                         \
        for (int i = 0; i < COUNT; i++) {                                                         \
            ctype s = 0, m = 0, l = 100, a = (ctype)-1, o = 0, x = 0;                             \
            for (int r = 0; r < size; r++) {                                                      \
                ctype v = (ctype)((r + i) % 4 + 1);                                               \
                s = (ctype)(s + v), m = v > m ? v : m, l = v < l ? v : l;                         \
                a = (ctype)(a & v), o = (ctype)(o | v), x = (ctype)(x ^ v);                       \
            }                                                                                     \
            SAME(sum[i], s);                                                                      \
            SAME(most[i], m);                                                                     \
            SAME(least[i], l);                                                                    \
            SAME(all[i], a);                                                                      \
            SAME(any[i], o);                                                                      \
            SAME(odd[i], x);                                                                      \
        }                                                                                         \
    }

INTEGER_CASE(ints, int, MPI_INT)
INTEGER_CASE(shorts, short, MPI_SHORT)
INTEGER_CASE(longs, long, MPI_LONG)
INTEGER_CASE(longlongs, long long, MPI_LONG_LONG)
INTEGER_CASE(unsigneds, unsigned, MPI_UNSIGNED)
INTEGER_CASE(unsigned_longs, unsigned long, MPI_UNSIGNED_LONG)
INTEGER_CASE(unsigned_shorts, unsigned short, MPI_UNSIGNED_SHORT)
INTEGER_CASE(unsigned_chars, unsigned char, MPI_UNSIGNED_CHAR)
INTEGER_CASE(signed_chars, signed char, MPI_SIGNED_CHAR)
INTEGER_CASE(int8s, int8_t, MPI_INT8_T)
INTEGER_CASE(int16s, int16_t, MPI_INT16_T)
INTEGER_CASE(int32s, int32_t, MPI_INT32_T)
INTEGER_CASE(int64s, int64_t, MPI_INT64_T)
INTEGER_CASE(uint64s, uint64_t, MPI_UINT64_T)
INTEGER_CASE(aints, MPI_Aint, MPI_AINT)
INTEGER_CASE(counts, MPI_Count, MPI_COUNT)

static void logical(void)
{
    int in[3] = {rank == 0, 1, 0}, all[3], any[3], odd[3];
    MPI_Allreduce(in, all, 3, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    MPI_Allreduce(in, any, 3, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    MPI_Allreduce(in, odd, 3, MPI_INT, MPI_LXOR, MPI_COMM_WORLD);
    SAME(all[0], 0);
    SAME(all[1], 1);
    SAME(all[2], 0);
    SAME(any[0], 1);
    SAME(any[1], 1);
    SAME(any[2], 0);
    SAME(odd[0], 1);
    SAME(odd[1], size % 2);
    SAME(odd[2], 0);
    bool truth = rank != 1, every;
    MPI_Allreduce(&truth, &every, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    SAME(every, 0);
    unsigned char bits = (unsigned char)(1u << rank % 8), together;
    MPI_Allreduce(&bits, &together, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    SAME(together, size >= 8 ? 255 : (1 << size) - 1);
}

/* Small whole numbers, so that the sums are exact in any order. */
static void real(void)
{
    double d = rank + 1, ds, dp;
    float f = (float)rank, fs;
    long double l = rank * 3, ls;
    double complex z = rank + 2 * rank * I, zs;
    float complex c = 1 - rank * I, cs;
    MPI_Allreduce(&d, &ds, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&d, &dp, 1, MPI_DOUBLE, MPI_PROD, MPI_COMM_WORLD);
    MPI_Allreduce(&f, &fs, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&l, &ls, 1, MPI_LONG_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&z, &zs, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&c, &cs, 1, MPI_C_FLOAT_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
    double sum = size * (size - 1) / 2.0;
    CHECK(ds == sum + size, "%f", ds);
    if (size < 15) CHECK(dp == tgamma(size + 1), "%f", dp);
    CHECK(fs == (float)sum, "%f", fs);
    CHECK(ls == 3.0L * (size - 1), "%Lf", ls);
    CHECK(creal(zs) == sum && cimag(zs) == 2 * sum, "%f %f", creal(zs), cimag(zs));
    CHECK(crealf(cs) == (float)size && cimagf(cs) == (float)-sum, "%f %f", crealf(cs), cimagf(cs));
}

static void locations(void)
{
    struct { double value; int at; } di[2] = {{(rank * 7) % size, rank}, {5, rank}}, most[2], least[2];
    struct { int value, at; } ii = {-(rank % 3), rank}, lowest;
    struct { short value; int at; } si = {(short)rank, 100 + rank}, top;
    MPI_Allreduce(di, most, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    MPI_Allreduce(di, least, 2, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    MPI_Allreduce(&ii, &lowest, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD);
    MPI_Allreduce(&si, &top, 1, MPI_SHORT_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    int best = 0, worst = 0;
    for (int r = 0; r < size; r++) {
        if (r * 7 % size > best * 7 % size) best = r;
        if (r * 7 % size < worst * 7 % size) worst = r;
    }
    SAME(most[0].at, best);
    SAME(least[0].at, worst);
    SAME(most[1].at, 0); /* equal values: the lowest index */
    SAME(lowest.value, size > 2 ? -2 : -(size - 1));
    SAME(lowest.at, size > 2 ? 2 : size - 1);
    SAME(top.at, 100 + size - 1);
}

static void rooted(int root, int count)
{
    long *in = need(count * sizeof *in), *out = need(count * sizeof *out);
    for (int i = 0; i < count; i++) in[i] = rank + i, out[i] = -1;
    MPI_Reduce(in, rank == root ? out : NULL, count, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) SAME(out[i], rank == root ? (long)size * (size - 1) / 2 + (long)i * size : -1);
    free(in);
    free(out);
}

static void prefixes(int count)
{
    long *in = need(count * sizeof *in), *out = need(count * sizeof *out);
    for (int i = 0; i < count; i++) in[i] = rank + 1 + i;
    MPI_Scan(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) SAME(out[i], (long)(rank + 1) * (rank + 2) / 2 + (long)i * (rank + 1));
    MPI_Exscan(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; rank > 0 && i < count; i++) SAME(out[i], (long)rank * (rank + 1) / 2 + (long)i * rank);
    free(in);
    free(out);
}

static void scattered(int count)
{
    int counts[size], before = 0, total = 0;
    long *in = need(size * (count + 1) * sizeof *in), *out = need((count + 1) * sizeof *out);
    for (int i = 0; i < size * count; i++) in[i] = rank + i;
    MPI_Reduce_scatter_block(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) SAME(out[i], (long)size * (size - 1) / 2 + (long)(rank * count + i) * size);
    for (int r = 0; r < size; r++) {
        counts[r] = r % 2 ? 0 : count + r % 3 - 1;
        before += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    for (int i = 0; i < total; i++) in[i] = rank + i;
    MPI_Reduce_scatter(in, out, counts, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < counts[rank]; i++) SAME(out[i], (long)size * (size - 1) / 2 + (long)(before + i) * size);
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    static void (*const types[])(void) = {ints, shorts, longs, longlongs, unsigneds, unsigned_longs, unsigned_shorts,
        unsigned_chars, signed_chars, int8s, int16s, int32s, int64s, uint64s, aints, counts, logical, real, locations};
    static const int lengths[] = {1, 1000, 50000};
    start(&argc, &argv, "reductions");
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++) types[t]();
    for (int l = 0; l < 3; l++) {
        for (int root = 0; root < size; root++) rooted(root, lengths[l]);
        prefixes(lengths[l]);
        scattered(lengths[l]);
    }
    return finish();
}
