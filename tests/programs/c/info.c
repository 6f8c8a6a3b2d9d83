/* Info objects, and hints on communicators. */
#include "check.h"

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
    MPI_Info_set(dup, "gridmpi_pattern", "all"); /* of a link whose bandwidth nobody knows: GridMPI says so */
    MPI_Comm_set_info(comm, dup);
    MPI_Comm_get_info(comm, &back);
    CHECK(back != MPI_INFO_NULL, "no info came back");
    MPI_Info_free(&back);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
    MPI_Info_free(&info);
    MPI_Info_free(&dup);
    return finish();
}
