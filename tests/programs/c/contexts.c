/* The same source and tag on several communicators at once: each message arrives on its own, wild receives included. */
#include "check.h"

enum { COMMS = 5, MESSAGES = 30 };

static MPI_Comm comm[COMMS];

static void create(void)
{
    comm[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm[2]); /* reversed */
    MPI_Comm_dup(comm[2], &comm[3]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm[4]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "contexts");
    create();
    int out[COMMS][MESSAGES], in[COMMS][MESSAGES];
    MPI_Request send[COMMS * MESSAGES], receive[COMMS * MESSAGES];
    int count = 0;
    /* Posted in one order, sent in another. */
    for (int m = 0; m < MESSAGES; m++)
        for (int c = COMMS - 1; c >= 0; c--) {
            int me, n;
            MPI_Comm_rank(comm[c], &me);
            MPI_Comm_size(comm[c], &n);
            MPI_Irecv(&in[c][m], 1, MPI_INT, m % 2 ? MPI_ANY_SOURCE : (me + n - 1) % n, 3, comm[c], &receive[count++]);
        }
    count = 0;
    for (int c = 0; c < COMMS; c++)
        for (int m = 0; m < MESSAGES; m++) {
            int me, n;
            MPI_Comm_rank(comm[c], &me);
            MPI_Comm_size(comm[c], &n);
            out[c][m] = c * 100000 + me * 100 + m;
            MPI_Isend(&out[c][m], 1, MPI_INT, (me + 1) % n, 3, comm[c], &send[count++]);
        }
    MPI_Waitall(count, receive, MPI_STATUSES_IGNORE);
    MPI_Waitall(count, send, MPI_STATUSES_IGNORE);
    for (int c = 0; c < COMMS; c++) {
        int me, n;
        MPI_Comm_rank(comm[c], &me);
        MPI_Comm_size(comm[c], &n);
        for (int m = 0; m < MESSAGES; m++) SAME(in[c][m], c * 100000 + (me + n - 1) % n * 100 + m);
        if (c > 0) MPI_Comm_free(&comm[c]);
    }
    return finish();
}
