/* The program of the paper that GridMPI follows: it gets what the nodes share, divides it by n and puts that as its node's rate
 * (include/gridmpi.h). `rate_by_n SEGMENT N...` puts one after the other while it streams from the first rank to the last, and says what
 * came of each. SEGMENT: what TCP carries in a frame of what the clusters are joined by; rates count the frame's headers, too.
 *
 * It fails where more comes than was put, or far less; how near it comes hangs on the machine, too, and is for people to judge
 * (docs/rates-measured.md). */
#include "check.h"
#include "../../../include/gridmpi.h"

enum { DATA = 1, ANSWER = 2 };
/* A message takes 20 ms, whatever the rate. */
enum { PER_SECOND = 50, MESSAGES = 125, AHEAD = 4 };
/* Beside the segment, with preamble, checksum and gap. */
enum { HEADERS = 90 };

/* The kernel lets some segments go at once. */
static const double MOST = 1.01, LEAST = 0.8;

/* KB/s; 0 where it is not known, and where nobody knows the key. */
static int max_rate(void)
{
    int *value = NULL, flag = 0;
    if (getenv("GRIDMPI_JOB") != NULL) SAME(MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, &value, &flag), MPI_SUCCESS);
    return flag ? *value : 0;
}

static void put(int value)
{
    SAME(MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, &value), MPI_SUCCESS);
    SAME(world_attribute(YAMPI_PSP_MATB), value);
}

/* Those among whom the node's rate is divided. */
static int processes_of_node(void)
{
    MPI_Comm node;
    int count;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &count);
    MPI_Comm_free(&node);
    return count;
}

static void take_answers(int count)
{
    for (int i = 0; i < count; i++) MPI_Recv(NULL, 0, MPI_CHAR, size - 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void answer(int count)
{
    for (int i = 0; i < count; i++) MPI_Send(NULL, 0, MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
}

/* Messages, of which AHEAD at most are on the way: so few are left, when the next rate is put, to leave at that. */
static void stream(const char *data, int bytes, double asked)
{
    double from = MPI_Wtime();
    for (int i = 0; i < MESSAGES; i++) {
        take_answers(1);
        MPI_Send(data, bytes, MPI_CHAR, size - 1, DATA, MPI_COMM_WORLD);
    }
    /* Of these at least it is known that they came meanwhile; whatever else this machine does only adds to the time. */
    double came = (double)(MESSAGES - AHEAD) * bytes / (MPI_Wtime() - from);
    CHECK(came <= asked * MOST, "%g bytes/s came at least, %g were asked for", came, asked);
}

/* Bytes per second from when the first message has come until the last one that surely left at this rate has. */
static double arriving(char *data, int bytes)
{
    const int last = MESSAGES - AHEAD - 1;
    double from = 0, until = 0;
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Status status;
        MPI_Recv(data, bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, &status);
        STATUS_IS(status, 0, DATA, MPI_CHAR, bytes);
        if (i == 0) from = MPI_Wtime();
        if (i == last) until = MPI_Wtime();
        answer(1);
    }
    return (double)last * bytes / (until - from);
}

static void receive(char *data, int bytes, double asked, int n)
{
    double came = arriving(data, bytes);
    printf("rate_by_n: n = %d: %.1f KB/s of payload asked for, %.1f came: %.3f of it\n", n, asked / 1000, came / 1000, came / asked);
    fflush(stdout);
    CHECK(came >= asked * LEAST, "%g bytes/s came, %g were asked for", came, asked);
}

/* Puts a rate for each n. Every process does so, as in the paper; one of them sends. */
static void follow(int max, int segment, int count, char **divisors)
{
    int sender[] = {max, processes_of_node()};
    MPI_Bcast(sender, 2, MPI_INT, 0, MPI_COMM_WORLD);
    char *data = calloc((size_t)sender[0] * (1000 / PER_SECOND), 1);
    /* None is sent before the receiver looks: it would come late, and those behind it seem fast. */
    if (rank == size - 1) answer(AHEAD);
    for (int i = 0; i < count; i++) {
        int n = atoi(divisors[i]);
        CHECK(n > 0, "n is %s", divisors[i]);
        double asked = 1000.0 * (sender[0] / n) / sender[1] * segment / (segment + HEADERS);
        int bytes = (int)(asked / PER_SECOND);
        put(max / n);
        if (rank == 0) stream(data, bytes, asked);
        if (rank == size - 1) receive(data, bytes, asked, n);
    }
    if (rank == 0) take_answers(AHEAD);
    free(data);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "rate_by_n");
    CHECK(argc > 2, "usage: rate_by_n SEGMENT N...");
    int max = max_rate();
    if (max > 0) follow(max, atoi(argv[1]), argc - 2, argv + 2);
    if (max == 0 && rank == 0) printf("rate_by_n: YAMPI_PSP_MAXRATE is not known; nothing is put\n");
    return finish();
}
