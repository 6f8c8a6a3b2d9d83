/* leftover SECONDS: the first half of the ranks sends to the second half, in pairs, all the time for so long. Says `rates`, bytes a second
 * that came to each rank of the second half in the second half of that time. */
#include "common.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int me, size;
    double seconds = atof(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int half = size / 2;
    char *buffer = calloc(MESSAGE, 1);
    double *rates = calloc((size_t)size, sizeof *rates), rate = 0;
    if (!buffer || !rates)
        die("no memory");
    double from = start(me, 0.2), end = from + seconds;
    if (me < half)
        keep_sending(buffer, me + half, end);
    else
        rate = keep_receiving(buffer, me - half, from + seconds / 2, end);
    MPI_Gather(&rate, 1, MPI_DOUBLE, rates, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (me == 0)
        say("rates", rates + half, half);
    MPI_Finalize();
    return 0;
}
