/* grants INTERFACE COUNT BYTES: of the two ranks of the first cluster, in the first of which is its rate broker, the second sends one message of
 * BYTES to rank 2, in the other cluster, COUNT times. Says `send`, from the begin of each send until the sender's library has the broker's grant,
 * `claim`, from when its claim leaves by INTERFACE, `grant`, from then until the grant comes by INTERFACE, and round trips of 8 bytes between the
 * first two, just before: the mean of some by MPI, `mpi`, and by blocking sockets over INTERFACE, `socket`, and `lone`, one of the latter after as
 * long a rest as before a claim; and how many messages had arrived before a grant, `ungranted`. */
#include "common.h"
#include "socket.h"
#include "tap.h"

enum { BROKER, SENDER, RECEIVER, RANKS, TRIPS = 20, ACKNOWLEDGED = 2 };

/* So long before each send nothing is said: what was claimed before has ended, and the broker does not hold back its next decision. */
static const double QUIET = 0.01;

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handle;

static void open_counter(void)
{
    int index, count = 0;
    if (MPI_T_pvar_get_index("gridmpi_grants", MPI_T_PVAR_CLASS_COUNTER, &index) || MPI_T_pvar_session_create(&session) ||
        MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) || MPI_T_pvar_start(session, handle))
        die("grants are not counted");
}

static void close_counter(void)
{
    MPI_T_pvar_handle_free(session, &handle);
    MPI_T_pvar_session_free(&session);
}

static unsigned long long grants(void)
{
    unsigned long long value = 0;
    if (MPI_T_pvar_read(session, handle, &value))
        die("grants cannot be read");
    return value;
}

/* The library is let look at the network, as by a program that waits for the other cluster. Whether the message has arrived there. */
static int look(void)
{
    int has_arrived;
    MPI_Iprobe(RECEIVER, ACKNOWLEDGED, MPI_COMM_WORLD, &has_arrived, MPI_STATUS_IGNORE);
    return has_arrived;
}

/* Nothing is said for a while. */
static void rest(void)
{
    for (double end = now() + QUIET; now() < end;)
        look();
}

/* Until the grant: from the begin of the send on, from the claim on, and of that, until the node has it. */
struct waits {
    double send, claim, grant;
};

/* Sends, and waits for the grant. Whether it came before the message had arrived. If not, these are the times until then: the broker has heard too
 * late, of the message's end, too, and grants nothing any more. */
static int send_one(const char *buffer, int bytes, int tap, struct in_addr broker, struct waits *waits)
{
    MPI_Request request;
    int has_arrived, is_granted;
    rest();
    words_with(tap, broker);
    unsigned long long before = grants();
    double begin = now();
    MPI_Isend(buffer, bytes, MPI_BYTE, RECEIVER, 0, MPI_COMM_WORLD, &request);
    do {
        has_arrived = look();
        is_granted = grants() != before;
    } while (!is_granted && !has_arrived);
    double end = stamp_clock();
    waits->send = now() - begin;
    struct words words = words_with(tap, broker);
    if (is_granted && (words.left == 0 || words.answered == 0))
        die("no claim has left, or no grant come");
    waits->claim = words.left > 0 ? end - words.left : waits->send;
    waits->grant = words.answered > 0 ? words.answered - words.left : waits->claim;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return is_granted;
}

/* The address that a connection leads to. */
static struct in_addr peer_of(int s)
{
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    if (getpeername(s, (struct sockaddr *)&at, &length))
        die("the connection has ended");
    return at.sin_addr;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int me, size, provided, s = -1, tap = -1, count = atoi(argv[2]), bytes = atoi(argv[3]);
    double ungranted = 0;
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *buffer = calloc((size_t)bytes, 1), word = 0;
    struct waits waits = {0, 0, 0};
    double *send = calloc(6 * (size_t)count, sizeof *send), *claim = send + count, *grant = claim + count;
    double *mpi = grant + count, *raw = mpi + count, *lone = raw + count;
    if (!buffer || !send)
        die("no memory");
    if (size != RANKS)
        die("three ranks are needed");
    open_counter();
    if (me != RECEIVER) {
        /* Two nodes do not share a processor. */
        pin(me);
        s = connection(me, argv[1]), tap = open_tap(argv[1]);
    }
    for (int k = 0; k < count; k++) {
        if (me == RECEIVER) {
            MPI_Recv(buffer, bytes, MPI_BYTE, SENDER, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&word, 1, MPI_BYTE, BROKER, ACKNOWLEDGED, MPI_COMM_WORLD);
            MPI_Send(&word, 1, MPI_BYTE, SENDER, ACKNOWLEDGED, MPI_COMM_WORLD);
            continue;
        }
        mpi[k] = trip_by_mpi(me, TRIPS);
        raw[k] = trip_by_socket(s, me == BROKER, TRIPS);
        if (me == SENDER)
            rest();
        lone[k] = trip_by_socket(s, me == SENDER, 1);
        if (me == SENDER)
            ungranted += !send_one(buffer, bytes, tap, peer_of(s), &waits);
        send[k] = waits.send, claim[k] = waits.claim, grant[k] = waits.grant;
        MPI_Recv(&word, 1, MPI_BYTE, RECEIVER, ACKNOWLEDGED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    close_counter();
    if (me == SENDER) {
        say("send", send, count);
        say("claim", claim, count);
        say("grant", grant, count);
        say("mpi", mpi, count);
        say("socket", raw, count);
        say("lone", lone, count);
        say("ungranted", &ungranted, 1);
    }
    /* Open MPI 4.1 crashes when this is asked for after MPI_Finalize. */
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
