/* Making communicators: dup, split, split_type, create, create_group, compare, names, free (MPI 4.1 §7.4). */
#include "check.h"

/* The communicator works: everybody talks to its neighbour and all agree on a sum. */
static void works(MPI_Comm comm, int expected_size, int expected_rank)
{
    int me, n, got = -1, sum;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    SAME(n, expected_size);
    SAME(me, expected_rank);
    MPI_Sendrecv(&rank, 1, MPI_INT, (me + 1) % n, 1, &got, 1, MPI_INT, (me + n - 1) % n, 1, comm, MPI_STATUS_IGNORE);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
    SAME(sum, n * (n - 1) / 2);
    MPI_Group group, world;
    int previous = (me + n - 1) % n, world_rank;
    MPI_Comm_group(comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(group, 1, &previous, world, &world_rank);
    SAME(got, world_rank);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

static void dup(void)
{
    MPI_Comm comm, again;
    int result;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    works(comm, size, rank);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &result);
    SAME(result, MPI_CONGRUENT);
    MPI_Comm_compare(comm, comm, &result);
    SAME(result, MPI_IDENT);
    MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &again);
    works(again, size, rank);
    MPI_Comm_free(&comm);
    works(again, size, rank);
    MPI_Comm_free(&again);
    CHECK(again == MPI_COMM_NULL, "a freed communicator is still there");
}

static void split(void)
{
    MPI_Comm comm;
    int result, color = rank % 3 == 2 ? MPI_UNDEFINED : rank % 3, n = 0, me = 0;
    MPI_Comm_split(MPI_COMM_WORLD, color, 100 - rank, &comm);
    if (color == MPI_UNDEFINED) {
        CHECK(comm == MPI_COMM_NULL, "no colour, and yet a communicator");
    } else {
        for (int r = 0; r < size; r++) n += r % 3 == color, me += r % 3 == color && r > rank;
        works(comm, n, me);
        MPI_Comm_compare(comm, MPI_COMM_WORLD, &result);
        SAME(result, MPI_UNEQUAL);
        MPI_Comm_free(&comm);
    }
    MPI_Comm_split(MPI_COMM_WORLD, 7, 5, &comm); /* equal keys keep the order */
    works(comm, size, rank);
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
    works(comm, size, size - 1 - rank);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &result);
    SAME(result, size > 1 ? MPI_SIMILAR : MPI_CONGRUENT);
    MPI_Comm nested;
    MPI_Comm_split(comm, rank / 2, rank, &nested); /* of a split, by pairs */
    works(nested, size % 2 && rank == size - 1 ? 1 : 2, rank % 2);
    MPI_Comm_free(&nested);
    MPI_Comm_free(&comm);
}

static void by_cluster(void)
{
    MPI_Comm comm, shared;
    int n, me, result;
    MPI_Comm_split(MPI_COMM_WORLD, cluster_colour(), rank, &comm);
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &me);
    works(comm, n, me);
    SAME(is_spanning(comm), 0);
    /* Those that share memory are in one cluster, and in one communicator. */
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    SAME(is_spanning(shared), 0);
    MPI_Comm_size(shared, &n);
    MPI_Comm_rank(shared, &me);
    works(shared, n, me);
    MPI_Comm_compare(shared, comm, &result);
    MPI_Comm_free(&shared);
    MPI_Comm_free(&comm);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, MPI_INFO_NULL, &shared);
    CHECK(shared == MPI_COMM_NULL, "no type, and yet a communicator");
}

static void create(void)
{
    MPI_Group world, some;
    MPI_Comm comm;
    int ranks[size], n = 0;
    for (int r = size - 1; r >= 0; r--)
        if (r % 2 == 0 || r == size - 1) ranks[n++] = r;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, n, ranks, &some);
    int me;
    MPI_Group_rank(some, &me);
    MPI_Comm_create(MPI_COMM_WORLD, some, &comm);
    CHECK((comm == MPI_COMM_NULL) == (me == MPI_UNDEFINED), "member or not?");
    if (comm != MPI_COMM_NULL) {
        works(comm, n, me);
        MPI_Comm_free(&comm);
    }
    if (me != MPI_UNDEFINED) { /* only the members call */
        MPI_Comm_create_group(MPI_COMM_WORLD, some, 42, &comm);
        works(comm, n, me);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&some);

    /* Disjoint groups in one call: halves. */
    int half = size / 2, low = rank < half, count = low ? half : size - half, range[1][3] = {{low ? 0 : half, low ? half - 1 : size - 1, 1}};
    MPI_Group_range_incl(world, 1, range, &some);
    MPI_Comm_create(MPI_COMM_WORLD, some, &comm);
    works(comm, count, low ? rank : rank - half);
    MPI_Comm_free(&comm);
    MPI_Comm_create_group(MPI_COMM_WORLD, some, 1, &comm); /* both halves at once */
    works(comm, count, low ? rank : rank - half);
    MPI_Comm_free(&comm);
    MPI_Group_free(&some);
    MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &comm);
    CHECK(comm == MPI_COMM_NULL, "an empty group, and yet a communicator");
    MPI_Group_free(&world);
}

static void names(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, inter;
    MPI_Comm comm;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0, "%s", name);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_get_name(comm, name, &length);
    SAME(length, 0);
    MPI_Comm_set_name(comm, "climate");
    MPI_Comm_get_name(comm, name, &length);
    CHECK(strcmp(name, "climate") == 0 && length == 7, "%s", name);
    MPI_Comm_test_inter(comm, &inter);
    SAME(inter, 0);
    MPI_Comm_free(&comm);
}

/* Contexts come back: many communicators, some alive at the same time. */
static void many(void)
{
    MPI_Comm alive[8];
    for (int i = 0; i < 200; i++) {
        if (i >= 8) MPI_Comm_free(&alive[i % 8]);
        if (i % 2) MPI_Comm_dup(i > 1 ? alive[(i - 1) % 8] : MPI_COMM_WORLD, &alive[i % 8]);
        else MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &alive[i % 8]);
    }
    for (int i = 0; i < 8; i++) {
        works(alive[i], size, rank);
        MPI_Comm_free(&alive[i]);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "comms");
    dup();
    split();
    by_cluster();
    create();
    names();
    many();
    return finish();
}
