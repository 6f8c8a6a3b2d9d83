/* Rank 0 reads lines from standard input, hands them to all, and every rank prints them, with its arguments.
 *
 * (Open MPI 5.0 alone does not pass on that the input ends; all that is to be said is said before.) */
#include "check.h"

int main(int argc, char **argv)
{
    char line[256];
    start(&argc, &argv, "stdio");
    for (int i = 1; i < argc; i++) printf("%d argument %d: <%s>\n", rank, i, argv[i]);
    fprintf(stderr, "%d to stderr\n", rank);
    for (;;) {
        fflush(NULL);
        int length = -1;
        if (rank == 0 && fgets(line, sizeof line, stdin)) length = (int)strlen(line);
        MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (length < 0) break;
        MPI_Bcast(line, length + 1, MPI_CHAR, 0, MPI_COMM_WORLD);
        printf("%d line: %s", rank, line);
    }
    return finish();
}
