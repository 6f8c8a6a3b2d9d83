/* The performance variable gridmpi_retransmits (docs/rates.md) grows where packets to another cluster are lost, and stays 0 where none are.
 *
 * Argument: `lossy` or `clean`, what the link is. Messages arrive whole either way. */
#include "check.h"

enum { BYTES = 1 << 20, ROUNDS = 4 };

typedef unsigned long long Number;

#define FINE(call) SAME(call, MPI_SUCCESS)

int main(int argc, char **argv)
{
    int provided, index = -1, count = 0;
    Number before = 0, now = 0;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    FINE(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    start(&argc, &argv, "retransmits");
    CHECK(argc == 2, "%d arguments", argc - 1);
    int is_lossy = argc == 2 && strcmp(argv[1], "lossy") == 0;
    FINE(MPI_T_pvar_session_create(&session));
    FINE(MPI_T_pvar_get_index("gridmpi_retransmits", MPI_T_PVAR_CLASS_COUNTER, &index));
    FINE(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    FINE(MPI_T_pvar_start(session, handle));
    char *data = need(BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0) fill(data, BYTES, (uint64_t)round);
        crossing(data, BYTES);
        if (rank == size - 1) VERIFY(data, BYTES, (uint64_t)round);
        FINE(MPI_T_pvar_read(session, handle, &now));
        CHECK(now >= before, "%llu after %llu", now, before);
        before = now;
    }
    /* 2,900 segments, of which 2 % are lost. */
    if (rank == 0) CHECK(is_lossy ? now > 10 && now < 2000 : now == 0, "%llu on a %s link", now, argv[argc - 1]);
    free(data);
    FINE(MPI_T_pvar_handle_free(session, &handle));
    FINE(MPI_T_pvar_session_free(&session));
    FINE(MPI_T_finalize());
    return finish();
}
