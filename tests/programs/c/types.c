/* Every datatype constructor: sent as one layout, received as another with the same signature, from and to every rank.
 *
 * A case makes two datatypes of the same signature. The data of both are written and read through MPI_Pack with
 * the type itself on one rank (the vendor's own engine), so that each layout is judged by itself. */
#include "check.h"

struct pair {
    MPI_Datatype send, receive;
    int send_count, receive_count;
};

/* 24 ints each way, in many shapes. */
static MPI_Datatype committed(MPI_Datatype type)
{
    MPI_Type_commit(&type);
    return type;
}

static struct pair contiguous_and_vector(void)
{
    struct pair p = {.send_count = 2, .receive_count = 1};
    MPI_Type_contiguous(12, MPI_INT, &p.send);
    MPI_Type_vector(6, 4, 7, MPI_INT, &p.receive);
    return p;
}

static struct pair vector_and_hvector(void)
{
    struct pair p = {.send_count = 3, .receive_count = 1};
    MPI_Type_vector(4, 2, 3, MPI_INT, &p.send);
    MPI_Type_create_hvector(8, 3, 20, MPI_INT, &p.receive);
    return p;
}

static struct pair indexed_and_block(void)
{
    static const int lengths[] = {3, 1, 8}, places[] = {9, 0, 20};
    static const int block_places[] = {30, 3, 12, 0, 24, 18, 9, 6};
    struct pair p = {.send_count = 2, .receive_count = 1};
    MPI_Type_indexed(3, lengths, places, MPI_INT, &p.send);
    MPI_Type_create_indexed_block(8, 3, block_places, MPI_INT, &p.receive);
    return p;
}

static struct pair hindexed_and_hblock(void)
{
    static const int lengths[] = {5, 0, 7};
    static const MPI_Aint places[] = {4, 400, 40};
    static const MPI_Aint block_places[] = {104, 8, 52, 152};
    struct pair p = {.send_count = 2, .receive_count = 1};
    MPI_Type_create_hindexed(3, lengths, places, MPI_INT, &p.send);
    MPI_Type_create_hindexed_block(4, 6, block_places, MPI_INT, &p.receive);
    return p;
}

static struct pair subarrays(void)
{
    static const int sizes[] = {6, 5, 4}, part[] = {3, 2, 4}, at[] = {2, 1, 0}, sizes_f[] = {9, 9}, part_f[] = {4, 6}, at_f[] = {5, 2};
    struct pair p = {.send_count = 1, .receive_count = 1};
    MPI_Type_create_subarray(3, sizes, part, at, MPI_ORDER_C, MPI_INT, &p.send);
    MPI_Type_create_subarray(2, sizes_f, part_f, at_f, MPI_ORDER_FORTRAN, MPI_INT, &p.receive);
    return p;
}

static struct pair darrays(void)
{
    static const int sizes[] = {12, 8}, grid[] = {2, 2}, both[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK}, darg[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    static const int sizes_f[] = {24, 4}, grid_f[] = {4, 1}, block[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE}, darg_f[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    struct pair p = {.send_count = 1, .receive_count = 1};
    MPI_Type_create_darray(4, 1, 2, sizes, both, darg, grid, MPI_ORDER_C, MPI_INT, &p.send);
    MPI_Type_create_darray(4, 2, 2, sizes_f, block, darg_f, grid_f, MPI_ORDER_FORTRAN, MPI_INT, &p.receive);
    return p;
}

static struct pair resized_and_dup(void)
{
    MPI_Datatype base;
    struct pair p = {.send_count = 8, .receive_count = 8};
    MPI_Type_contiguous(3, MPI_INT, &base);
    MPI_Type_create_resized(base, 0, 32, &p.send);
    MPI_Type_dup(base, &p.receive);
    MPI_Type_free(&base);
    return p;
}

static struct pair negative_bounds(void)
{
    MPI_Datatype shifted, base;
    struct pair p = {.send_count = 8, .receive_count = 24};
    static const int length = 3;
    static const MPI_Aint place = -16;
    MPI_Type_create_hindexed(1, &length, &place, MPI_INT, &shifted);
    MPI_Type_create_resized(shifted, -20, 24, &p.send);
    MPI_Type_create_resized(MPI_INT, 0, -8, &base); /* elements go backwards */
    MPI_Type_dup(base, &p.receive);
    MPI_Type_free(&shifted);
    MPI_Type_free(&base);
    return p;
}

static struct pair nested(void)
{
    MPI_Datatype column, tile;
    struct pair p = {.send_count = 1, .receive_count = 1};
    MPI_Type_vector(3, 1, 10, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, sizeof(int), &tile);
    MPI_Type_create_hvector(8, 1, 8, tile, &p.send); /* every other column, transposed */
    static const int lengths[] = {2, 1}, places[] = {1, 0};
    MPI_Datatype inner;
    MPI_Type_indexed(2, lengths, places, MPI_INT, &inner);
    MPI_Type_vector(4, 2, 3, inner, &p.receive);
    MPI_Type_free(&column);
    MPI_Type_free(&tile);
    MPI_Type_free(&inner);
    return p;
}

static struct pair empty_pieces(void)
{
    MPI_Datatype none, parts[] = {MPI_DATATYPE_NULL, MPI_INT};
    static const int lengths[] = {5, 24};
    static const MPI_Aint places[] = {800, 12};
    struct pair p = {.send_count = 1, .receive_count = 24};
    MPI_Type_contiguous(0, MPI_INT, &none);
    parts[0] = none;
    MPI_Type_create_struct(2, lengths, places, parts, &p.send);
    MPI_Type_dup(MPI_INT, &p.receive);
    MPI_Type_free(&none);
    return p;
}

/* {char, int, double, 2 floats} packed tightly on one side and spread on the other. */
static struct pair structures(void)
{
    static const int lengths[] = {1, 3, 1, 2};
    static const MPI_Aint tight[] = {0, 1, 13, 21}, spread[] = {40, 8, 56, 24};
    MPI_Datatype parts[] = {MPI_CHAR, MPI_INT, MPI_DOUBLE, MPI_FLOAT}, type;
    struct pair p = {.send_count = 4, .receive_count = 4};
    MPI_Type_create_struct(4, lengths, tight, parts, &p.send);
    MPI_Type_create_struct(4, lengths, spread, parts, &type);
    MPI_Type_create_resized(type, 0, 80, &p.receive);
    MPI_Type_free(&type);
    return p;
}

/* Types made of pairs (value, index), which have holes of their own. */
static struct pair value_and_index(void)
{
    struct pair p = {.send_count = 5, .receive_count = 1};
    MPI_Type_dup(MPI_DOUBLE_INT, &p.send);
    MPI_Type_vector(5, 1, 2, MPI_DOUBLE_INT, &p.receive);
    return p;
}

static struct pair mixed_pairs(void)
{
    static const int lengths[] = {1, 2, 1};
    MPI_Datatype parts[] = {MPI_SHORT_INT, MPI_LONG_INT, MPI_2INT};
    static const MPI_Aint a[] = {0, 16, 64}, b[] = {96, 48, 0};
    struct pair p = {.send_count = 1, .receive_count = 1};
    MPI_Type_create_struct(3, lengths, a, parts, &p.send);
    MPI_Type_create_struct(3, lengths, b, parts, &p.receive);
    return p;
}

static struct pair large_strides(void)
{
    struct pair p = {.send_count = 1, .receive_count = 1};
    MPI_Type_vector(5000, 3, 5, MPI_SHORT, &p.send);
    MPI_Type_vector(3000, 5, 8, MPI_SHORT, &p.receive);
    return p;
}

static struct pair (*const cases[])(void) = {
    contiguous_and_vector, vector_and_hvector, indexed_and_block, hindexed_and_hblock, subarrays,
    darrays, resized_and_dup, negative_bounds, nested, empty_pieces, structures, value_and_index, mixed_pairs, large_strides};
enum { CASES = sizeof cases / sizeof *cases, ARENA = 1 << 18, MIDDLE = 4096 };

/* The bytes of `count` elements, in the order of the type map, as the vendor packs them. */
static int packed(const void *buffer, int count, MPI_Datatype type, char **out)
{
    int room, at = 0;
    MPI_Pack_size(count, type, MPI_COMM_SELF, &room);
    *out = need(room);
    MPI_Pack(buffer, count, type, *out, room, &at, MPI_COMM_SELF);
    return at;
}

/* Bytes of `after` that differ from `before` lie inside the type: nothing else was touched. */
static void untouched(const char *before, const char *after, int count, MPI_Datatype type, int which)
{
    char *scratch = need(ARENA), *data;
    int length = packed(after + MIDDLE, count, type, &data), at = 0;
    memcpy(scratch, before, ARENA);
    MPI_Unpack(data, length, &at, scratch + MIDDLE, count, type, MPI_COMM_SELF);
    CHECK(memcmp(scratch, after, ARENA) == 0, "case %d: bytes outside the receive type changed", which);
    free(scratch);
    free(data);
}

static void exchange(struct pair p, int to, int from, int which)
{
    char *out = need(ARENA), *in = need(ARENA), *before = need(ARENA), *want, *got;
    MPI_Status status;
    fill(out, ARENA, rank * 100 + which);
    fill(in, ARENA, 7777);
    memcpy(before, in, ARENA);
    MPI_Sendrecv(out + MIDDLE, p.send_count, p.send, to, which, in + MIDDLE, p.receive_count, p.receive, from, which,
                 MPI_COMM_WORLD, &status);
    STATUS_IS(status, from, which, p.receive, p.receive_count);

    fill(out, ARENA, from * 100 + which); /* what the other side had */
    int want_length = packed(out + MIDDLE, p.send_count, p.send, &want);
    int got_length = packed(in + MIDDLE, p.receive_count, p.receive, &got);
    SAME(got_length, want_length);
    CHECK(memcmp(want, got, want_length) == 0, "case %d from rank %d: other data", which, from);
    untouched(before, in, p.receive_count, p.receive, which);
    free(out);
    free(in);
    free(before);
    free(want);
    free(got);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "types");
    for (int which = 0; which < CASES; which++) {
        struct pair p = cases[which]();
        p.send = committed(p.send);
        p.receive = committed(p.receive);
        for (int distance = 0; distance < size; distance++)
            exchange(p, (rank + distance) % size, (rank + size - distance) % size, which);
        MPI_Type_free(&p.send);
        MPI_Type_free(&p.receive);
    }
    return finish();
}
