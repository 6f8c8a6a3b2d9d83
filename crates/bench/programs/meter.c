/* meter COMMAND...: runs it and says the processor time it took, in seconds, as a last line of its error output: `@cpu S`. */
#include <stdio.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status = 0;
    struct rusage u;
    if (argc < 2)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &u) != child)
        return 1;
    fprintf(stderr, "@cpu %.6f\n", (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec)
                                       + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
