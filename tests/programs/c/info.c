/* Info objects, and hints on communicators. Those of GridMPI count across clusters only: a vendor may return what it does not know, or not. */
#include "check.h"

/* Of a communicator that was given these: the first one is followed, and the other one is not. */
static void check_ours(MPI_Info used, int across)
{
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int flag;
    MPI_Info_get(used, "gridmpi_matb", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag || !across, "gridmpi_matb is not there");
    CHECK(!flag || strcmp(value, "8M") == 0, "%s", value);
    MPI_Info_get(used, "gridmpi_pattern", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(!flag || !across, "gridmpi_pattern is %s", value);
    CHECK(!flag || strcmp(value, "all") == 0, "%s", value);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "info");
    MPI_Info info, dup, back;
    int keys, flag;
    char value[MPI_MAX_INFO_VAL + 1];
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "false");
    MPI_Info_set(info, "colour", "blue");
    MPI_Info_set(info, "colour", "green");
    MPI_Info_get_nkeys(info, &keys);
    SAME(keys, 2);
    MPI_Info_dup(info, &dup);
    MPI_Info_delete(info, "colour");
    MPI_Info_get(info, "colour", MPI_MAX_INFO_VAL, value, &flag);
    SAME(flag, 0);
    MPI_Info_get(dup, "colour", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && strcmp(value, "green") == 0, "%s", value);

    MPI_Comm comm;
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_set(dup, "gridmpi_matb", "8M");
    MPI_Info_set(dup, "gridmpi_pattern", "all"); /* of a link whose bandwidth nobody knows: GridMPI says so */
    MPI_Comm_set_info(comm, dup);
    MPI_Comm_get_info(comm, &back);
    CHECK(back != MPI_INFO_NULL, "no info came back");
    check_ours(back, is_spanning(comm));
    MPI_Info_free(&back);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
    MPI_Info_free(&info);
    MPI_Info_free(&dup);
    return finish();
}
