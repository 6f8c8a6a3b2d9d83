/* churn COUNT BYTES OTHERS PERIOD: rank 0 sends to the first rank of the other half all the time; the OTHERS ranks after it send one message
 * of BYTES each to their counterparts every PERIOD seconds, all beginning at the same instant, COUNT times. Says `seconds`: from the
 * first of these to its last byte, the longest of each time. */
#include "common.h"

static void sleep_until(double at)
{
    struct timespec t = {(time_t)at, (long)(1e9 * (at - (double)(time_t)at))};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int me, size, count = atoi(argv[1]), bytes = atoi(argv[2]), others = atoi(argv[3]);
    double period = atof(argv[4]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int half = size / 2, place = me % half;
    if (others >= half)
        die("so many others are not there");
    char *buffer = calloc((size_t)(bytes > MESSAGE ? bytes : MESSAGE), 1);
    double *seconds = calloc(2 * (size_t)count, sizeof *seconds), *longest = seconds + count;
    if (!buffer || !seconds)
        die("no memory");
    double from = start(me, period);
    if (me == 0)
        keep_sending(buffer, half, from + (count + 1) * period);
    if (me == half)
        keep_receiving(buffer, 0, 0, 0);
    for (int k = 0; k < count && place > 0 && place <= others; k++) {
        double at = from + (k + 1) * period;
        sleep_until(at);
        if (me < half) {
            MPI_Send(buffer, bytes, MPI_BYTE, me + half, 0, MPI_COMM_WORLD);
        } else {
            MPI_Recv(buffer, bytes, MPI_BYTE, me - half, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            seconds[k] = now() - at;
        }
    }
    MPI_Reduce(seconds, longest, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (me == 0)
        say("seconds", longest, count);
    MPI_Finalize();
    return 0;
}
