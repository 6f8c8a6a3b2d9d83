/* Whoever asks MPI, in whatever call, lets all of MPI move (MPI 4.1 §3.5): rank 0 waits for the last rank alone, which may be of another
 * cluster. That one waits for rank 1, and rank 1 until rank 0 takes a long message of the vendor's.
 * Whoever asks again and again lets others run meanwhile, for calls that do not wait do not: where two ranks share a core, a vendor's message
 * of many parts else takes a whole turn of the core for each. */
#include "check.h"

#include <sched.h>

enum { LONG = 4 << 20, ROUNDS = 5, NEWS = 1, DATA = 2, GO = 3, DONE = 4, EARLY = 5 };

static char *data;
static int news;
/* What rank 0 waits for, and what moves meanwhile. */
static MPI_Request awaited, moving;

static int far(void) { return size - 1; }

static void test(void)
{
    for (int flag = 0; !flag; sched_yield()) MPI_Test(&awaited, &flag, MPI_STATUS_IGNORE);
}

static void testany(void)
{
    for (int flag = 0, index; !flag; sched_yield()) MPI_Testany(1, &awaited, &index, &flag, MPI_STATUS_IGNORE);
}

static void testsome(void)
{
    for (int count = 0, index; count == 0; sched_yield()) MPI_Testsome(1, &awaited, &count, &index, MPI_STATUSES_IGNORE);
}

static void testall(void)
{
    MPI_Request both[] = {awaited, moving};
    for (int flag = 0; !flag; sched_yield()) MPI_Testall(2, both, &flag, MPI_STATUSES_IGNORE);
    awaited = moving = MPI_REQUEST_NULL;
}

static void get_status(void)
{
    for (int flag = 0; !flag; sched_yield()) MPI_Request_get_status(awaited, &flag, MPI_STATUS_IGNORE);
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
static void get_status_any(void)
{
    for (int flag = 0, index; !flag; sched_yield()) MPI_Request_get_status_any(1, &awaited, &index, &flag, MPI_STATUS_IGNORE);
}

static void get_status_some(void)
{
    for (int count = 0, index; count == 0; sched_yield()) MPI_Request_get_status_some(1, &awaited, &count, &index, MPI_STATUSES_IGNORE);
}

static void get_status_all(void)
{
    MPI_Request both[] = {awaited, moving};
    for (int flag = 0; !flag; sched_yield()) MPI_Request_get_status_all(2, both, &flag, MPI_STATUSES_IGNORE);
}
#else
#define get_status_any get_status
#define get_status_some get_status
#define get_status_all get_status
#endif

static void wait(void) { MPI_Wait(&awaited, MPI_STATUS_IGNORE); }

static void iprobe(void)
{
    for (int flag = 0; !flag; sched_yield()) MPI_Iprobe(far(), NEWS, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

static void improbe(void)
{
    MPI_Message message;
    for (int flag = 0; !flag; sched_yield()) MPI_Improbe(far(), NEWS, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&news, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
}

static void probe(void) { MPI_Probe(far(), NEWS, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void receive(void) { MPI_Recv(&news, 1, MPI_INT, far(), NEWS, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static const struct way {
    void (*until)(void);
    /* The receive of what is waited for: posted before, by the way itself, or left until after it. */
    enum { BEFORE, BY_ITSELF, AFTER } posted;
} ways[] = {
    {receive, BY_ITSELF}, {wait, BEFORE}, {probe, AFTER},
    {test, BEFORE}, {testany, BEFORE}, {testsome, BEFORE}, {testall, BEFORE},
    {iprobe, AFTER}, {improbe, BY_ITSELF},
    {get_status, BEFORE}, {get_status_any, BEFORE},
    {get_status_some, BEFORE}, {get_status_all, BEFORE},
};

/* `early`: a wild receive has ended that nobody has asked for yet. */
static void wait_for_the_far_one(const struct way *way, int early)
{
    MPI_Request wild = MPI_REQUEST_NULL;
    int first = 0;
    if (early) {
        MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, EARLY, MPI_COMM_WORLD, &wild);
        MPI_Send(NULL, 0, MPI_INT, far(), EARLY, MPI_COMM_WORLD);
        for (int flag = 0; !flag; sched_yield()) MPI_Request_get_status(wild, &flag, MPI_STATUS_IGNORE);
    }
    memset(data, 0, LONG);
    news = -1;
    awaited = MPI_REQUEST_NULL;
    MPI_Irecv(data, LONG, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &moving);
    if (way->posted == BEFORE) MPI_Irecv(&news, 1, MPI_INT, far(), NEWS, MPI_COMM_WORLD, &awaited);
    MPI_Send(NULL, 0, MPI_INT, 1, GO, MPI_COMM_WORLD);
    way->until();
    if (way->posted == AFTER) receive();
    MPI_Wait(&awaited, MPI_STATUS_IGNORE);
    SAME(news, far());
    MPI_Wait(&moving, MPI_STATUS_IGNORE);
    VERIFY(data, LONG, 1);
    MPI_Wait(&wild, MPI_STATUS_IGNORE);
    SAME(first, early ? far() : 0);
}

static void send_data(void)
{
    MPI_Recv(NULL, 0, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(data, LONG, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
    MPI_Send(NULL, 0, MPI_INT, far(), DONE, MPI_COMM_WORLD);
}

static void send_news(int early)
{
    if (early) {
        MPI_Recv(NULL, 0, MPI_INT, 0, EARLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&rank, 1, MPI_INT, 0, EARLY, MPI_COMM_WORLD);
    }
    MPI_Recv(NULL, 0, MPI_INT, 1, DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&rank, 1, MPI_INT, 0, NEWS, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "progress");
    if (size < 3) return finish();
    data = need(LONG);
    fill(data, LONG, 1);
    for (int early = 0; early < 2; early++)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
            for (int round = 0; round < ROUNDS; round++) {
                if (rank == 0) wait_for_the_far_one(&ways[way], early);
                else if (rank == 1) send_data();
                else if (rank == far()) send_news(early);
                MPI_Barrier(MPI_COMM_WORLD);
            }
    free(data);
    return finish();
}
