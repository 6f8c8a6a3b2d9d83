/* The program that sets its node's rate (include/gridmpi.h): what it gets follows what it puts, and so does what crosses
 * between clusters. It needs a job whose links carry 160 Mbit/s and its nodes' interfaces 1 Gbit/s. What cannot be is
 * said: by each process that puts it, and by one of each cluster where it is a hint; tests/e2e/programs.py has the words. */
#include "check.h"
#include "../../../include/gridmpi.h"

enum { BYTES = 400000, LINK = 20000, INTERFACE = 125000 };

static void put(int value)
{
    SAME(MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, &value), MPI_SUCCESS);
}

static void hint(const char *key, const char *value)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    MPI_Comm_set_info(MPI_COMM_WORLD, info);
    MPI_Info_free(&info);
}

static void hints(const char *matb, const char *pattern)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "gridmpi_pattern", pattern);
    MPI_Info_set(info, "gridmpi_matb", matb);
    MPI_Comm_set_info(MPI_COMM_WORLD, info);
    MPI_Info_free(&info);
}

/* Hints are about the node, whatever the communicator. */
static MPI_Comm hinted_copy(MPI_Comm comm, const char *key, const char *value)
{
    MPI_Info info;
    MPI_Comm copy;
    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    SAME(MPI_Comm_dup_with_info(comm, info, &copy), MPI_SUCCESS);
    MPI_Info_free(&info);
    return copy;
}

static void has_hint(MPI_Info info, const char *key, const char *value)
{
    char found[MPI_MAX_INFO_VAL + 1] = "";
    int flag = 0;
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, found, &flag);
    CHECK(flag == (value != NULL) && strcmp(found, value ? value : "") == 0, "%s is %s, not %s", key,
          flag ? found : "not there", value ? value : "not there");
}

/* What MPI_Comm_get_info says of ours (MPI 4.1 7.4.4); null: nothing. */
static void has_hints(MPI_Comm comm, const char *matb, const char *pattern)
{
    MPI_Info info = MPI_INFO_NULL;
    SAME(MPI_Comm_get_info(comm, &info), MPI_SUCCESS);
    CHECK(info != MPI_INFO_NULL, "no info came back");
    has_hint(info, "gridmpi_matb", matb);
    has_hint(info, "gridmpi_pattern", pattern);
    MPI_Info_free(&info);
}

/* Seconds for the data. Whatever else this machine does only adds to them, so they are the least of a few. */
static double quickest(char *data)
{
    double least = crossing(data, BYTES);
    for (int i = 0; i < 4; i++) {
        double again = crossing(data, BYTES);
        least = again < least ? again : least;
    }
    return least;
}

/* What crosses is as slow as was put, and fast again when more is put. */
static void follow(char *data)
{
    crossing(data, BYTES); /* Connections are made. */
    put(LINK / 10);
    SAME(world_attribute(YAMPI_PSP_MATB), LINK / 10);
    double slow = crossing(data, BYTES), least = (BYTES - 100000) / (1000.0 * (LINK / 10));
    /* The kernel lets some segments go at once. */
    CHECK(rank != 0 || slow > least, "%g s, at least %g", slow, least);
    put(LINK);
    SAME(world_attribute(YAMPI_PSP_MATB), LINK);
    double fast = quickest(data);
    CHECK(rank != 0 || fast < slow / 2, "%g s at ten times the rate, %g before", fast, slow);
    put(LINK / 10);
}

/* What is no rate is said and changes nothing. */
static void put_what_cannot_be(void)
{
    put(0);
    put(-7);
    put(12);
    SAME(world_attribute(YAMPI_PSP_MATB), LINK / 10);
    put(INTERFACE / 5 * 8);
    SAME(world_attribute(YAMPI_PSP_MATB), INTERFACE);
    int zero = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, &zero) != MPI_SUCCESS, "it can be written");
    SAME(MPI_Comm_delete_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB), MPI_SUCCESS);
    CHECK(world_attribute(YAMPI_PSP_MATB) != INTERFACE, "it is still there");
}

/* The same by hints; nonsense is said and changes nothing. A communicator has the hint that it was given while the node keeps to it. */
static void follow_hints(void)
{
    has_hints(MPI_COMM_WORLD, NULL, NULL);
    hint("gridmpi_matb", "8M");
    SAME(world_attribute(YAMPI_PSP_MATB), 1000);
    has_hints(MPI_COMM_WORLD, "8M", NULL);
    hint("gridmpi_pattern", "all");
    has_hints(MPI_COMM_WORLD, NULL, "all");
    int share = world_attribute(YAMPI_PSP_MATB);
    char nodes[16];
    snprintf(nodes, sizeof nodes, "%d", (LINK + share / 2) / share);
    hint("gridmpi_pattern", "1");
    SAME(world_attribute(YAMPI_PSP_MATB), LINK);
    has_hints(MPI_COMM_WORLD, NULL, "1");
    hint("gridmpi_pattern", "99999");
    SAME(world_attribute(YAMPI_PSP_MATB), share);
    has_hints(MPI_COMM_WORLD, NULL, nodes);
    hint("gridmpi_pattern", "some");
    hint("gridmpi_matb", "0");
    SAME(world_attribute(YAMPI_PSP_MATB), share);
    has_hints(MPI_COMM_WORLD, NULL, nodes);
    hints("8M", "1");
    SAME(world_attribute(YAMPI_PSP_MATB), 1000);
    has_hints(MPI_COMM_WORLD, "8M", NULL);
    hint("gridmpi_matb", "2G");
    SAME(world_attribute(YAMPI_PSP_MATB), INTERFACE);
    has_hints(MPI_COMM_WORLD, "1000000000", NULL);
    put(LINK / 10);
    has_hints(MPI_COMM_WORLD, NULL, NULL);
}

/* Duplicates have the hints that they are given, not those of what they are made from (MPI 4.1 7.4.2); nor have those of one cluster. */
static void copy_with_hints(void)
{
    hint("gridmpi_matb", "8M");
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    has_hints(copy, NULL, NULL);
    MPI_Comm_free(&copy);
    has_hints(MPI_COMM_WORLD, "8M", NULL);
    copy = hinted_copy(MPI_COMM_WORLD, "gridmpi_matb", "16M");
    SAME(world_attribute(YAMPI_PSP_MATB), 2000);
    has_hints(copy, "16M", NULL);
    has_hints(MPI_COMM_WORLD, NULL, NULL);
    MPI_Comm_free(&copy);
    SAME(world_attribute(YAMPI_PSP_MATB), 2000);
    copy = hinted_copy(MPI_COMM_WORLD, "gridmpi_matb", "20");
    SAME(world_attribute(YAMPI_PSP_MATB), 2000);
    has_hints(copy, NULL, NULL);
    MPI_Comm_free(&copy);
    copy = hinted_copy(MPI_COMM_SELF, "gridmpi_matb", "24M");
    SAME(world_attribute(YAMPI_PSP_MATB), 2000);
    MPI_Comm_free(&copy);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "matb");
    char *data = calloc(BYTES, 1);
    SAME(world_attribute(YAMPI_PSP_MAXRATE), LINK);
    CHECK(world_attribute(YAMPI_PSP_MATB) > 0, "%d", world_attribute(YAMPI_PSP_MATB));
    follow(data);
    put_what_cannot_be();
    follow_hints();
    copy_with_hints();
    free(data);
    return finish();
}
