/* What the programs of `gridmpi bench` share. A line of output `@NAME V V V ...` is a series of samples, in seconds or bytes. */
#ifndef COMMON_H
#define COMMON_H
#define _GNU_SOURCE
#include <mpi.h>
#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Seconds; the same clock in every process of the machine. */
static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

static inline void die(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* The main thread on one core, so that two ranks are on two. */
static inline void pin(int core)
{
    cpu_set_t set;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&set);
    CPU_SET(core % (int)(cores > 0 ? cores : 1), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Everybody's start: rank 0 says when. */
static inline double start(int me, double pause)
{
    double at = now() + pause;
    MPI_Bcast(&at, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    struct timespec t = {(time_t)at, (long)(1e9 * (at - (double)(time_t)at))};
    if (now() >= at)
        fprintf(stderr, "bench: rank %d was late by %.1f ms\n", me, 1e3 * (now() - at));
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    return at;
}

static int is_vendor(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    const char *base = strrchr(info->dlpi_name, '/');
    base = base ? base + 1 : info->dlpi_name;
    if (strncmp(base, "libmpi.so", 9) && strncmp(base, "libmpich.so", 11))
        return 0;
    *(const char **)found = info->dlpi_name;
    return 1;
}

/* The vendor's own function, past whatever is preloaded. */
static inline void *vendor(const char *name)
{
    static void *library;
    const char *path = NULL;
    if (!library && dl_iterate_phdr(is_vendor, &path))
        library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol)
        die("the vendor's library is not found");
    return symbol;
}
#endif
