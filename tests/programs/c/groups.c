/* Groups of a spanning communicator: set operations, ranges, translation, comparison (MPI 4.1 §7.3). */
#include "check.h"

static MPI_Group world;

static void is(MPI_Group group, int count, const int *ranks)
{
    int n, me, mine = MPI_UNDEFINED;
    MPI_Group_size(group, &n);
    SAME(n, count);
    MPI_Group_rank(group, &me);
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank) mine = i;
    SAME(me, mine);
    int from[count + 1], to[count + 1];
    for (int i = 0; i < count; i++) from[i] = i;
    MPI_Group_translate_ranks(group, count, from, world, to);
    for (int i = 0; i < count; i++) SAME(to[i], ranks[i]);
    if (group != MPI_GROUP_EMPTY) MPI_Group_free(&group);
}

/* The list of world ranks that satisfy a condition, in order. */
#define SELECT(list, count, condition)                                                            \
    int list[size + 1], count = 0;                                                                \
    for (int r = 0; r < size; r++)                                                                \
        if (condition) list[count++] = r

static void sets(void)
{
    MPI_Group low, even, result;
    int half = (size + 1) / 2, result_of;
    SELECT(lows, low_count, r <= half);
    SELECT(evens, even_count, r % 2 == 0);
    MPI_Group_incl(world, low_count, lows, &low);
    MPI_Group_incl(world, even_count, evens, &even);

    MPI_Group_intersection(low, even, &result);
    SELECT(both, both_count, r <= half && r % 2 == 0);
    is(result, both_count, both);

    MPI_Group_difference(low, even, &result);
    SELECT(less, less_count, r <= half && r % 2);
    is(result, less_count, less);

    MPI_Group_union(low, even, &result); /* the first group, then what the second adds */
    int joined[2 * size], joined_count = 0;
    for (int i = 0; i < low_count; i++) joined[joined_count++] = lows[i];
    for (int i = 0; i < even_count; i++)
        if (evens[i] > half) joined[joined_count++] = evens[i];
    is(result, joined_count, joined);

    MPI_Group_difference(low, low, &result);
    MPI_Group_compare(result, MPI_GROUP_EMPTY, &result_of);
    SAME(result_of, MPI_IDENT);
    is(result, 0, NULL);
    MPI_Group_free(&low);
    MPI_Group_free(&even);
}

static void lists_and_ranges(void)
{
    MPI_Group result;
    int reversed[size], first[] = {0}, all[size];
    for (int r = 0; r < size; r++) reversed[r] = size - 1 - r, all[r] = r;
    MPI_Group_incl(world, size, reversed, &result);
    int comparison;
    MPI_Group_compare(result, world, &comparison);
    SAME(comparison, MPI_SIMILAR);
    is(result, size, reversed);
    MPI_Group_excl(world, 1, first, &result);
    is(result, size - 1, all + 1);
    int down[1][3] = {{size - 1, 0, -1}}, step[1][3] = {{0, size - 1, 2}};
    MPI_Group_range_incl(world, 1, down, &result);
    is(result, size, reversed);
    SELECT(odd, odd_count, r % 2);
    MPI_Group_range_excl(world, 1, step, &result);
    is(result, odd_count, odd);
    MPI_Group_incl(world, 0, NULL, &result);
    is(result, 0, NULL);
}

static void comparisons(void)
{
    MPI_Group again, other;
    MPI_Comm reversed;
    int result, first[] = {0}, in[] = {0, MPI_PROC_NULL, size - 1}, out[3];
    MPI_Comm_group(MPI_COMM_WORLD, &again);
    MPI_Group_compare(world, again, &result);
    SAME(result, MPI_IDENT);
    MPI_Group_incl(world, 1, first, &other);
    MPI_Group_compare(world, other, &result);
    SAME(result, MPI_UNEQUAL);
    MPI_Group_free(&other);
    MPI_Group_free(&again);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    MPI_Comm_group(reversed, &other);
    MPI_Group_translate_ranks(world, 3, in, other, out);
    SAME(out[0], size - 1);
    SAME(out[1], MPI_PROC_NULL);
    SAME(out[2], 0);
    MPI_Group self;
    MPI_Comm_group(MPI_COMM_SELF, &self);
    MPI_Group_translate_ranks(self, 1, first, other, out);
    SAME(out[0], size - 1 - rank);
    in[0] = (rank + 1) % size;
    MPI_Group_translate_ranks(world, 1, in, self, out);
    SAME(out[0], MPI_UNDEFINED);
    MPI_Group_free(&self);
    MPI_Comm_free(&reversed);
    MPI_Group_free(&other); /* outlives its communicator */
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "groups");
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    sets();
    lists_and_ranges();
    comparisons();
    MPI_Group_free(&world);
    CHECK(world == MPI_GROUP_NULL, "a freed group is still there");
    return finish();
}
