/* failover SECONDS: rank 0 sends rank 1 a small message every millisecond. Says `rtt` first, then of rank 1 at once `gap`, since when and how long, whenever one
 * came after none had for longer than GAP; and `heard`, when, of about every WORD seconds a message: all gaps before it have been told.
 * Each message has a number: none may be lost, come twice or out of order. */
#include "common.h"

enum { PINGS = 20, WORDS = 8 };
static const double EVERY = 0.001, GAP = 0.025, WORD = 0.1;

static void send_on(double seconds)
{
    long words[WORDS] = {0};
    for (double from = now(), next = from; next - from < seconds; next += EVERY, words[0]++) {
        double left = next - now();
        if (left > 0) nanosleep(&(struct timespec){0, (long)(left * 1e9)}, NULL);
        MPI_Send(words, WORDS, MPI_LONG, 1, 1, MPI_COMM_WORLD);
    }
    words[0] = -1;
    MPI_Send(words, WORDS, MPI_LONG, 1, 1, MPI_COMM_WORLD);
}

static void take(void)
{
    long words[WORDS];
    double last = now(), said = last;
    for (long number = 0;; number++) {
        MPI_Recv(words, WORDS, MPI_LONG, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double here = now(), gap[2] = {last, here - last};
        if (words[0] < 0)
            return;
        if (words[0] != number)
            die("a message is lost, or came twice");
        if (gap[1] > GAP)
            say("gap", gap, 2);
        last = here;
        if (here - said > WORD) {
            say("heard", &here, 1);
            said = here;
        }
    }
}

int main(int argc, char **argv)
{
    double took[PINGS];
    int me;
    if (argc != 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int i = -1; i < PINGS; i++) {
        double from = now();
        char byte = 0;
        if (me == 0) {
            MPI_Send(&byte, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&byte, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (me == 1) {
            MPI_Recv(&byte, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&byte, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
        if (i >= 0)
            took[i] = now() - from;
    }
    if (me == 0)
        say("rtt", took, PINGS);
    fflush(stdout);
    if (me == 0)
        send_on(atof(argv[1]));
    else if (me == 1)
        take();
    MPI_Finalize();
    return 0;
}
