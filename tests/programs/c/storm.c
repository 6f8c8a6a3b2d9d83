/* `storm [SEED [ROUNDS [SECONDS]]]`: random traffic that every rank plans alike: sizes, tags, modes, order, wild receives, communicators. With
 * SECONDS so many rounds again and again until that time is over. */
#include "check.h"

enum { PER_ROUND = 60, MAX_BYTES = 120000 };

struct plan {
    int from, to, tag, bytes, comm, mode, wild;
};

static MPI_Comm comms[3];

static struct plan plan_one(uint64_t *state, int round, int number)
{
    struct plan p;
    p.from = (int)(draw(state) % size);
    p.to = (int)(draw(state) % size);
    p.comm = (int)(draw(state) % 3);
    p.tag = (int)(draw(state) % 4);
    uint64_t shape = draw(state);
    p.bytes = shape % 5 ? (int)(shape / 5 % 300) : (int)(shape / 5 % MAX_BYTES);
    p.mode = (int)(draw(state) % 3);
    p.wild = draw(state) % 4 == 0;
    if (p.wild) p.tag = 100 + round * PER_ROUND + number; /* its own tag: a wild source then names one message */
    return p;
}

static int in_comm(int world_rank, int comm) { return comm == 1 ? size - 1 - world_rank : world_rank; }

/* Receives are posted in the order of the plan, which is the order of sending for each pair and communicator. */
static void round_of(uint64_t *state, int round)
{
    static struct plan plan[PER_ROUND];
    static char *out[PER_ROUND], *in[PER_ROUND];
    MPI_Request request[2 * PER_ROUND];
    MPI_Status status[2 * PER_ROUND];
    int which[2 * PER_ROUND], pending = 0, late = (int)(draw(state) % 2);
    for (int i = 0; i < PER_ROUND; i++) plan[i] = plan_one(state, round, i);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < PER_ROUND; i++) {
            struct plan *p = &plan[i];
            if (pass == late && p->to == rank) {
                in[i] = need(p->bytes);
                which[pending] = i;
                MPI_Irecv(in[i], p->bytes, MPI_BYTE, p->wild ? MPI_ANY_SOURCE : in_comm(p->from, p->comm), p->tag, comms[p->comm], &request[pending++]);
            }
            if (pass != late && p->from == rank) {
                int to = in_comm(p->to, p->comm);
                out[i] = need(p->bytes);
                fill(out[i], p->bytes, (uint64_t)round * PER_ROUND + i);
                which[pending] = -1;
                if (p->mode == 0) MPI_Issend(out[i], p->bytes, MPI_BYTE, to, p->tag, comms[p->comm], &request[pending++]);
                else MPI_Isend(out[i], p->bytes, MPI_BYTE, to, p->tag, comms[p->comm], &request[pending++]);
            }
        }
    MPI_Waitall(pending, request, status);
    for (int q = 0; q < pending; q++) {
        int i = which[q];
        if (i < 0) continue;
        STATUS_IS(status[q], in_comm(plan[i].from, plan[i].comm), plan[i].tag, MPI_BYTE, plan[i].bytes);
        VERIFY(in[i], plan[i].bytes, (uint64_t)round * PER_ROUND + i);
        free(in[i]);
    }
    for (int i = 0; i < PER_ROUND; i++)
        if (plan[i].from == rank) free(out[i]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "storm");
    uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 60;
    CHECK(rounds <= 500, "tags would run out after 500 rounds");
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[1]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[2]);
    if (rank == 0 && argc > 3) printf("storm begins\n"), fflush(stdout);
    double seconds = argc > 3 ? atof(argv[3]) : 0, since = MPI_Wtime();
    int goes_on, done = 0;
    do {
        for (int round = 0; round < rounds; round++) round_of(&state, round);
        done += rounds;
        goes_on = MPI_Wtime() - since < seconds;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD); /* tags begin anew */
    } while (goes_on);
    if (rank == 0 && seconds > 0) printf("storm: %d rounds of %d messages\n", done, PER_ROUND);
    MPI_Comm_free(&comms[1]);
    MPI_Comm_free(&comms[2]);
    return finish();
}
