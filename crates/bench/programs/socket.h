/* What programs of `gridmpi bench` share that measure MPI beside blocking TCP sockets between the same processes: words of 8 bytes. */
#ifndef SOCKET_H
#define SOCKET_H
#include "common.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static inline struct in_addr address_of(const char *interface)
{
    struct ifaddrs *all, *one;
    struct in_addr found = {0};
    if (getifaddrs(&all))
        die("no list of interfaces");
    for (one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !strcmp(one->ifa_name, interface))
            found = ((struct sockaddr_in *)(void *)one->ifa_addr)->sin_addr;
    freeifaddrs(all);
    if (!found.s_addr)
        die("the interface has no address");
    return found;
}

/* A connection between ranks 0 and 1; rank 1 listens and says where by MPI. */
static inline int connection(int me, const char *interface)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int one = 1, made = -1, s = socket(AF_INET, SOCK_STREAM, 0);
    if (me == 1) {
        at.sin_addr = address_of(interface);
        if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 1) || getsockname(s, (struct sockaddr *)&at, &length))
            die("cannot listen");
        MPI_Send(&at, sizeof at, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        made = accept(s, NULL, NULL);
        close(s);
    } else {
        MPI_Recv(&at, sizeof at, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        made = connect(s, (struct sockaddr *)&at, sizeof at) ? -1 : s;
    }
    if (made < 0 || setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        die("cannot connect");
    return made;
}

static inline void get(int s, char *bytes)
{
    for (ssize_t have = 0, more; have < 8; have += more)
        if ((more = recv(s, bytes + have, (size_t)(8 - have), 0)) <= 0)
            die("the connection has ended");
}

static inline void put(int s, const char *bytes)
{
    if (send(s, bytes, 8, 0) != 8)
        die("cannot send");
}

/* Seconds of a round trip of a word between both ends, the mean of so many. One of them begins. */
static inline double trip_by_socket(int s, int begins, int rounds)
{
    char bytes[8] = {0};
    double start = now();
    for (int i = 0; i < rounds; i++) {
        if (begins)
            put(s, bytes);
        get(s, bytes);
        if (!begins)
            put(s, bytes);
    }
    return (now() - start) / rounds;
}

/* The same by MPI between ranks 0 and 1. */
static inline double trip_by_mpi(int me, int rounds)
{
    char bytes[8] = {0};
    double start = now();
    for (int i = 0; i < rounds; i++) {
        if (me == 0)
            MPI_Send(bytes, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(bytes, 8, MPI_BYTE, 1 - me, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (me == 1)
            MPI_Send(bytes, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return (now() - start) / rounds;
}
#endif
