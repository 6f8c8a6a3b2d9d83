/* What the library costs inside a cluster: two ranks of one cluster call the linked procedure and the vendor's own by
 * turns; they are the first two, or with an argument those after the first. Other ranks, in another cluster, sleep
 * meanwhile. Without the preload both are the same: the noise. */
#include "common.h"

enum { PAIRS = 400, MOST = 65536 };

typedef int rank_f(MPI_Comm, int *);
typedef int send_f(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int recv_f(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
typedef int iprobe_f(int, int, MPI_Comm, int *, MPI_Status *);

struct side {
    rank_f *rank;
    send_f *send;
    recv_f *recv;
    iprobe_f *iprobe;
    int first; /* the rank of the first of the two on MPI_COMM_WORLD */
};

static struct side sides[2];
static char buffer[MOST];

static double ranks(const struct side *s, MPI_Comm comm, int rounds)
{
    int r;
    double start = now();
    for (int i = 0; i < rounds; i++)
        s->rank(comm, &r);
    return (now() - start) / rounds;
}

static double sends(const struct side *s, MPI_Comm comm, int rounds)
{
    double start = now();
    for (int i = 0; i < rounds; i++)
        s->send(buffer, 8, MPI_BYTE, MPI_PROC_NULL, 0, comm);
    return (now() - start) / rounds;
}

static double iprobes(const struct side *s, MPI_Comm comm, int rounds)
{
    int flag;
    double start = now();
    for (int i = 0; i < rounds; i++)
        s->iprobe(1, 99, comm, &flag, MPI_STATUS_IGNORE);
    return (now() - start) / rounds;
}

/* One way, seconds. */
static double pingpong(const struct side *s, MPI_Comm comm, int me, int bytes, int rounds)
{
    int peer = (comm == MPI_COMM_WORLD ? s->first : 0) + 1 - me;
    double start = now();
    for (int i = 0; i < rounds; i++) {
        if (me == 0)
            s->send(buffer, bytes, MPI_BYTE, peer, 0, comm);
        s->recv(buffer, bytes, MPI_BYTE, peer, 0, comm, MPI_STATUS_IGNORE);
        if (me == 1)
            s->send(buffer, bytes, MPI_BYTE, peer, 0, comm);
    }
    return (now() - start) / rounds / 2;
}

/* The order changes from pair to pair. */
#define PAIRED(name, measure)                                                                                          \
    do {                                                                                                               \
        static double samples[2][PAIRS];                                                                               \
        for (int i = -8; i < PAIRS; i++)                                                                               \
            for (int j = 0; j < 2; j++) {                                                                              \
                int which = (i + j) & 1;                                                                               \
                const struct side *s = &sides[which];                                                                  \
                double took = (measure);                                                                               \
                if (i >= 0)                                                                                            \
                    samples[which][i] = took;                                                                          \
            }                                                                                                          \
        if (me == 0) {                                                                                                 \
            say(name ".ours", samples[0], PAIRS);                                                                      \
            say(name ".vendor", samples[1], PAIRS);                                                                    \
        }                                                                                                              \
    } while (0)

int main(int argc, char **argv)
{
    int rank, size, first = argc > 1;
    MPI_Init(&argc, &argv);
    sides[0] = (struct side){MPI_Comm_rank, MPI_Send, MPI_Recv, MPI_Iprobe, first};
    sides[1] = (struct side){(rank_f *)vendor("PMPI_Comm_rank"), (send_f *)vendor("PMPI_Send"),
                             (recv_f *)vendor("PMPI_Recv"), (iprobe_f *)vendor("PMPI_Iprobe"), 0};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int me = rank - first, measures = me == 0 || me == 1;
    MPI_Comm cluster;
    MPI_Comm_split(MPI_COMM_WORLD, measures, rank, &cluster);
    if (measures) {
        pin(me);
        if (me == 0 && first == 0) {
            PAIRED("rank", ranks(s, cluster, 2000));
            PAIRED("send", sends(s, cluster, 1000));
            PAIRED("iprobe", iprobes(s, cluster, 100));
        }
        MPI_Barrier(cluster);
        if (first == 0) {
            PAIRED("cluster.8", pingpong(s, cluster, me, 8, 200));
            PAIRED("world.8", pingpong(s, MPI_COMM_WORLD, me, 8, 200));
            PAIRED("cluster.64k", pingpong(s, cluster, me, MOST, 8));
            PAIRED("world.64k", pingpong(s, MPI_COMM_WORLD, me, MOST, 8));
        } else {
            PAIRED("second.8", pingpong(s, MPI_COMM_WORLD, me, 8, 200));
        }
    }
    char end = 0;
    for (int other = 0; me == 0 && other < size; other++)
        if (other < first || other > first + 1)
            MPI_Send(&end, 1, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    if (!measures)
        MPI_Recv(&end, 1, MPI_BYTE, first, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
