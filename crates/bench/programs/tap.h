/* What programs of `gridmpi bench` share that see when the kernel sends: frames of one interface, with its stamps. */
#ifndef TAP_H
#define TAP_H
#include "common.h"
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Seconds of the clock of the stamps. */
static inline double stamp_clock(void)
{
    return read_clock(CLOCK_REALTIME);
}

static inline int open_tap(const char *interface)
{
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(interface)};
    int one = 1, tap = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, htons(ETH_P_ALL));
    if (tap < 0 || bind(tap, (struct sockaddr *)&at, sizeof at) || setsockopt(tap, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one))
        die("the interface's frames cannot be seen");
    return tap;
}

/* Whether a packet has data of TCP, and from whom to whom. */
static inline int is_data(const char *packet, size_t length, struct in_addr *from, struct in_addr *to)
{
    struct iphdr ip;
    struct tcphdr tcp;
    if (length < sizeof ip)
        return 0;
    memcpy(&ip, packet, sizeof ip);
    size_t head = 4 * (size_t)ip.ihl;
    if (ip.version != 4 || ip.protocol != IPPROTO_TCP || length < head + sizeof tcp)
        return 0;
    memcpy(&tcp, packet + head, sizeof tcp);
    from->s_addr = ip.saddr, to->s_addr = ip.daddr;
    return ntohs(ip.tot_len) > head + 4 * (size_t)tcp.doff;
}

/* By the clock of the stamps; 0 if it has not been seen. */
struct words {
    double left, answered;
};

/* Of the packets that wait in the tap, when the first one with data of TCP for this address left, and the first one behind it with data from there
 * came. Takes all of them. */
static inline struct words words_with(int tap, struct in_addr whom)
{
    struct words found = {0, 0};
    char packet[128], control[CMSG_SPACE(sizeof(struct timespec))];
    for (;;) {
        struct sockaddr_ll link;
        struct iovec part = {packet, sizeof packet};
        struct msghdr message = {&link, sizeof link, &part, 1, control, sizeof control, 0};
        ssize_t length = recvmsg(tap, &message, 0);
        if (length < 0)
            return found;
        struct cmsghdr *stamp = CMSG_FIRSTHDR(&message);
        struct in_addr from, to;
        if (!is_data(packet, (size_t)length, &from, &to) || !stamp || stamp->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        int leaves = link.sll_pkttype == PACKET_OUTGOING;
        double *one = leaves ? &found.left : &found.answered;
        if ((leaves ? to : from).s_addr != whom.s_addr || *one > 0 || (!leaves && found.left == 0))
            continue;
        struct timespec at;
        memcpy(&at, CMSG_DATA(stamp), sizeof at);
        *one = seconds_of(at);
    }
}
#endif
