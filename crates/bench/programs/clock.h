/* What all programs of `gridmpi bench` share, by MPI or not. A line of output `@NAME V V V ...` is a series of samples, in seconds or bytes. */
#ifndef CLOCK_H
#define CLOCK_H
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

static inline double seconds_of(struct timespec t)
{
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return seconds_of(t);
}

/* Seconds; the same clock in every process of the machine. */
static inline double now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* Seconds that all threads of this process have computed so far. */
static inline double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static inline void say(const char *name, const double *values, int count)
{
    printf("@%s", name);
    for (int i = 0; i < count; i++)
        printf(" %.15g", values[i]);
    printf("\n");
    fflush(stdout);
}
#endif
