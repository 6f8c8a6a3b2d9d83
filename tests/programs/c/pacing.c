/* How the job is paced is what its user asked for: `pacing HOW MAXRATE`, of a job whose clusters are one node each. MAXRATE, in KB/s, is what
 * the least of the link and the clusters' uplinks carries. */
#include "check.h"
#include "../../../include/gridmpi.h"

enum { BYTES = 400000, TEXT = 256 };

static void check_setting(const char *wanted)
{
    int index, count = 0;
    char value[TEXT] = "";
    MPI_T_cvar_handle handle;
    SAME(MPI_T_cvar_get_index("gridmpi_pacing", &index), MPI_SUCCESS);
    SAME(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count), MPI_SUCCESS);
    CHECK(count > 0 && count < TEXT, "%d", count);
    SAME(MPI_T_cvar_read(handle, value), MPI_SUCCESS);
    MPI_T_cvar_handle_free(&handle);
    CHECK(strcmp(value, wanted) == 0, "%s, not %s", value, wanted);
}

/* Seconds for the data, and how many rates the broker granted meanwhile. */
static double count_grants(char *data, unsigned long long *grants)
{
    int index, count;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    SAME(MPI_T_pvar_session_create(&session), MPI_SUCCESS);
    SAME(MPI_T_pvar_get_index("gridmpi_grants", MPI_T_PVAR_CLASS_COUNTER, &index), MPI_SUCCESS);
    SAME(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count), MPI_SUCCESS);
    SAME(MPI_T_pvar_start(session, handle), MPI_SUCCESS);
    double took = crossing(data, BYTES);
    SAME(MPI_T_pvar_read(session, handle, grants), MPI_SUCCESS);
    MPI_T_pvar_handle_free(session, &handle);
    MPI_T_pvar_session_free(&session);
    return took;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    start(&argc, &argv, "pacing");
    CHECK(argc == 3, "usage: pacing HOW MAXRATE");
    int rate = atoi(argv[2]);
    check_setting(argv[1]);
    SAME(world_attribute(YAMPI_PSP_MAXRATE), rate);
    char *data = calloc(BYTES, 1);
    crossing(data, BYTES); /* Connections are made. */
    unsigned long long grants;
    double took = count_grants(data, &grants), least = (BYTES - 100000) / (1000.0 * rate);
    if (rank == 0) {
        SAME(grants > 0, strcmp(argv[1], "auto") == 0);
        /* The kernel lets some segments go at once. */
        CHECK(took > least || strcmp(argv[1], "static") != 0, "%g s, at least %g", took, least);
    }
    if (strcmp(argv[1], "static") == 0) SAME(world_attribute(YAMPI_PSP_MATB), rate);
    free(data);
    MPI_T_finalize();
    return finish();
}
