/* `quiet [SECONDS]`: says nothing for so long, and then a word crosses at once, each way: no connection was lost meanwhile and had to be made anew. */
#include "check.h"
#include <unistd.h>

/* A round trip from the first rank to the last. */
static double round_trip(void)
{
    int word = 17, last = size - 1;
    double since = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(&word, 1, MPI_INT, last, 0, MPI_COMM_WORLD);
        MPI_Recv(&word, 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        SAME(word, 18);
    } else if (rank == last) {
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        word++;
        MPI_Send(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - since;
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "quiet");
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    round_trip();
    double before = round_trip();
    sleep(seconds); /* what is tested is that nothing happens meanwhile */
    double after = round_trip();
    if (rank == 0) printf("quiet: a round trip took %.1f ms, after %u s of silence %.1f ms\n", before * 1e3, seconds, after * 1e3);
    CHECK(after < 0.5, "the first round trip after %u s took %.3f s, one before %.3f s", seconds, after, before);
    return finish();
}
