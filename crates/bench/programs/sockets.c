/* What `bulk` is held against: the same bytes over a fresh TCP connection by blocking calls, with buffers and congestion control as they are.
 * sockets ADDRESS: takes one connection there; says `listening PORT` first.
 * sockets ADDRESS PORT BYTES: sends so many there, the same PIECE again and again. Says `seconds` (first send to last byte received), `cpu` (both
 * processes, from before the first to after the last). */
#include "clock.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What iperf3 writes and reads at a time. */
enum { PIECE = 128 << 10 };
static char piece[PIECE];

static void die(const char *what)
{
    fflush(stdout);
    perror(what);
    exit(1);
}

static void put(int s, const void *bytes, size_t count)
{
    for (size_t had = 0; had < count;) {
        ssize_t more = send(s, (const char *)bytes + had, count - had, MSG_NOSIGNAL);
        if (more < 0)
            die("cannot send");
        had += (size_t)more;
    }
}

static void get(int s, void *bytes, size_t count)
{
    for (size_t had = 0; had < count;) {
        ssize_t more = recv(s, (char *)bytes + had, count - had, 0);
        if (more <= 0)
            die("the connection has ended");
        had += (size_t)more;
    }
}

static struct sockaddr_in place(const char *address, const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
        die("no address");
    return at;
}

static void receive(const char *address)
{
    struct sockaddr_in at = place(address, "0");
    socklen_t length = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 1) || getsockname(s, (struct sockaddr *)&at, &length))
        die("cannot listen");
    printf("listening %d\n", ntohs(at.sin_port));
    fflush(stdout);
    int made = accept(s, NULL, NULL);
    if (made < 0)
        die("cannot accept");
    uint64_t left;
    get(made, &left, sizeof left);
    double mine[2], before = cpu();
    put(made, "", 1);
    while (left > 0) {
        ssize_t more = recv(made, piece, left < PIECE ? left : PIECE, 0);
        if (more <= 0)
            die("the connection has ended");
        left -= (uint64_t)more;
    }
    mine[0] = now();
    mine[1] = cpu() - before;
    put(made, mine, sizeof mine);
}

static void send_all(const char *address, const char *port, uint64_t bytes)
{
    struct sockaddr_in at = place(address, port);
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    /* As ours: the last segment, which is not full, waits for nothing. */
    if (connect(s, (struct sockaddr *)&at, sizeof at) || setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        die("cannot connect");
    char ready;
    put(s, &bytes, sizeof bytes);
    get(s, &ready, 1);
    double its[2], before = cpu(), from = now();
    for (uint64_t left = bytes; left > 0;) {
        size_t count = left < PIECE ? (size_t)left : PIECE;
        put(s, piece, count);
        left -= count;
    }
    get(s, its, sizeof its);
    double both = cpu() - before + its[1], seconds = its[0] - from;
    say("seconds", &seconds, 1);
    say("cpu", &both, 1);
}

int main(int argc, char **argv)
{
    memset(piece, 1, sizeof piece);
    if (argc == 2)
        receive(argv[1]);
    else if (argc == 4)
        send_all(argv[1], argv[2], strtoull(argv[3], NULL, 10));
    else
        return 2;
    return 0;
}
