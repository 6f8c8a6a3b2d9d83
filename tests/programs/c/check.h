/* What every test program shares: start, checks that name themselves, deterministic data, the end.
 *
 * A program passes when it exits 0 and prints "ok NAME". A failed check prints one line that says which
 * rank expected what, and aborts the job, so that no other rank waits for one that gave up. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program = "?";
static int rank = -1;
static int size = 0;

__attribute__((unused, noreturn, format(printf, 4, 5))) static void check_failed(
    const char *file, int line, const char *expected, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "FAIL %s: rank %d of %d, %s:%d: not (%s): %s\n", program, rank, size, file, line,
            expected, text);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* CHECK(condition, "format", …): the condition holds, or the job ends here. */
#define CHECK(condition, ...)                                                                     \
    do {                                                                                          \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__);              \
    } while (0)

/* SAME(got, want): two integers are equal, or the job ends here. */
#define SAME(got, want)                                                                           \
    do {                                                                                          \
        long long got_ = (long long)(got), want_ = (long long)(want);                             \
        if (got_ != want_)                                                                        \
            check_failed(__FILE__, __LINE__, #got " == " #want, "%lld, not %lld", got_, want_);   \
    } while (0)

static inline void setup(const char *name)
{
    program = name;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size >= 2, "this program needs at least 2 ranks");
}

static inline void start(int *argc, char ***argv, const char *name)
{
    MPI_Init(argc, argv);
    setup(name);
}

/* Everybody got here: say so once, and finalize. The value is main's. */
static inline int finish(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) {
        printf("ok %s on %d ranks\n", program, size);
        fflush(stdout);
    }
    return 0;
}

/* A byte that depends on the place and on a seed, so that misplaced bytes are seen. */
static inline unsigned char pattern(uint64_t place, uint64_t seed)
{
    uint64_t x = place * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u + 1;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (unsigned char)(x >> 56);
}

static inline void fill(void *buffer, size_t bytes, uint64_t seed)
{
    unsigned char *at = buffer;
    for (size_t i = 0; i < bytes; i++) at[i] = pattern(i, seed);
}

#define VERIFY(buffer, bytes, seed)                                                               \
    do {                                                                                          \
        const unsigned char *at_ = (const void *)(buffer);                                        \
        for (size_t i_ = 0; i_ < (size_t)(bytes); i_++)                                           \
            if (at_[i_] != pattern(i_, (seed)))                                                   \
                check_failed(__FILE__, __LINE__, "the bytes that were sent",                      \
                             "byte %zu of %zu is %d, not %d", i_, (size_t)(bytes), at_[i_],       \
                             pattern(i_, (seed)));                                                \
    } while (0)

static inline void *need(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    CHECK(memory != NULL, "no memory for %zu bytes", bytes);
    return memory;
}

/* The source, tag and number of elements that a status reports. */
#define STATUS_IS(status, source, tag, type, elements)                                            \
    do {                                                                                          \
        int count_ = -1;                                                                          \
        MPI_Get_count(&(status), (type), &count_);                                                \
        SAME((status).MPI_SOURCE, (source));                                                      \
        SAME((status).MPI_TAG, (tag));                                                            \
        SAME(count_, (elements));                                                                 \
    } while (0)

/* The class of an error code. */
static inline int class_of(int code)
{
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    return class;
}

/* A colour that is the same for the ranks of one cluster. Where GridMPI is not at work, all have the same. */
static inline int cluster_colour(void)
{
    const char *name = getenv("GRIDMPI_CLUSTER");
    uint32_t hash = 2166136261u;
    for (; name && *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (int)(hash & 0x3fffffff);
}

/* Does the communicator have members in more than one cluster? Collective. */
static inline int is_spanning(MPI_Comm comm)
{
    int mine = cluster_colour(), least, most;
    MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, comm);
    MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, comm);
    return least != most;
}

/* A small generator for programs that draw the same numbers on every rank. */
static inline uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Of MPI_COMM_WORLD, an integer that must be there. */
static inline int world_attribute(int key)
{
    int *value, flag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag);
    CHECK(flag, "key %x is not known", key);
    return *value;
}

/* Seconds for so many bytes from rank 0 to the last one, which answers. */
static inline double crossing(char *data, int bytes)
{
    double from = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(data, bytes, MPI_CHAR, size - 1, 1, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_CHAR, size - 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == size - 1) {
        MPI_Recv(data, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - from;
}

#endif
