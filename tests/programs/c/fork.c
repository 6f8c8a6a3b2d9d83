/* A rank has children that make no MPI calls: they run other programs, leave by exit and its handlers, or live as
 * long as their parent with all its descriptors. What the parent sends and receives meanwhile stays whole. */
#define _GNU_SOURCE
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 300000 };

static void exchange(int round)
{
    static unsigned char out[BYTES], in[BYTES];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < BYTES; i++)
        out[i] = pattern((uint64_t)i, (uint64_t)(rank + round * 100));
    MPI_Sendrecv(out, BYTES, MPI_BYTE, next, round, in, BYTES, MPI_BYTE, previous, round, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < BYTES; i++)
        SAME(in[i], pattern((uint64_t)i, (uint64_t)(previous + round * 100)));
}

static int status_of(pid_t child)
{
    int status = 0;
    CHECK(child > 0, "fork failed");
    SAME(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status), "a child died: status %d", status);
    return WEXITSTATUS(status);
}

/* One that ends when its parent, the only other one with the writing end, does. */
static void leave_one_behind(void)
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0, "no pipe");
    pid_t child = fork();
    CHECK(child >= 0, "fork failed");
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "fork");
    exchange(0);
    for (int round = 1; round < 4; round++) {
        pid_t child = fork();
        if (child == 0)
            _exit(40 + round);
        exchange(round);
        SAME(status_of(child), 40 + round);
    }
    int status = system("exit 7");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "system gave %d", status);
    exchange(4);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        exit(9);
    SAME(status_of(child), 9);
    exchange(5);
    leave_one_behind();
    exchange(6);
    return finish();
}
