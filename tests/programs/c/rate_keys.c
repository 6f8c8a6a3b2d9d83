/* The keys of include/gridmpi.h in a job of any number of clusters, of whose links nothing is known: they are found or not, and nobody
 * ends by asking. */
#include "check.h"
#include "../../../include/gridmpi.h"

enum { RATE = 5000 };

static int is_known(MPI_Comm comm, int key)
{
    int *value = NULL, flag = -1, *old = NULL, old_flag = -1;
    SAME(MPI_Comm_get_attr(comm, key, &value, &flag), MPI_SUCCESS);
    SAME(MPI_Attr_get(comm, key, &old, &old_flag), MPI_SUCCESS);
    SAME(old_flag, flag);
    if (flag) SAME(*value, RATE);
    return flag;
}

/* In one cluster there is nobody to be slower for. */
static void put_and_delete(MPI_Comm comm, int several)
{
    int rate = RATE;
    SAME(is_known(comm, YAMPI_PSP_MAXRATE), 0);
    SAME(is_known(comm, YAMPI_PSP_MATB), 0);
    SAME(MPI_Comm_set_attr(comm, YAMPI_PSP_MATB, &rate), MPI_SUCCESS);
    SAME(is_known(comm, YAMPI_PSP_MATB), several);
    SAME(MPI_Comm_delete_attr(comm, YAMPI_PSP_MATB), MPI_SUCCESS);
    SAME(MPI_Attr_put(comm, YAMPI_PSP_MATB, &rate), MPI_SUCCESS);
    SAME(is_known(comm, YAMPI_PSP_MATB), several);
    SAME(MPI_Attr_delete(comm, YAMPI_PSP_MATB), MPI_SUCCESS);
    SAME(is_known(comm, YAMPI_PSP_MATB), 0);
}

static void read_only(MPI_Comm comm)
{
    int rate = RATE;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    SAME(class_of(MPI_Comm_set_attr(comm, YAMPI_PSP_MAXRATE, &rate)), MPI_ERR_ARG);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "rate_keys");
    int several = is_spanning(MPI_COMM_WORLD);
    put_and_delete(MPI_COMM_WORLD, several);
    put_and_delete(MPI_COMM_SELF, several);
    read_only(MPI_COMM_WORLD);
    read_only(MPI_COMM_SELF);
    return finish();
}
