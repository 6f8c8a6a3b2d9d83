/* What the programs of `gridmpi bench` share that use MPI. */
#ifndef COMMON_H
#define COMMON_H
#include "clock.h"
#include <mpi.h>
#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* A stream without an end: messages of so many bytes, and how many of them are under way. Then one with another tag. */
enum { MESSAGE = 256 << 10, WINDOW = 4, END = 1 };

static inline void keep_sending(const char *buffer, int to, double until)
{
    MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; now() < until; i = (i + 1) % WINDOW) {
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        MPI_Isend(buffer, MESSAGE, MPI_BYTE, to, 0, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    MPI_Send(buffer, 1, MPI_BYTE, to, END, MPI_COMM_WORLD);
}

/* The bytes a second that come between these two moments; a time in which nothing comes counts as all other. A message's bytes come evenly from the one before
 * it on: what of that lies between the two is counted. */
static inline double keep_receiving(char *buffer, int from, double begin, double end)
{
    MPI_Status status;
    double before = now(), bytes = 0;
    do {
        int count;
        MPI_Recv(buffer, MESSAGE, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        double at = now(), first = before > begin ? before : begin, last = at < end ? at : end;
        if (last > first)
            bytes += count * (last - first) / (at - before);
        before = at;
    } while (status.MPI_TAG != END);
    return end > begin ? bytes / (end - begin) : 0;
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
