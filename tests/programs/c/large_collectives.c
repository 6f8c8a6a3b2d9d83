/* Collectives that move more bytes than an int counts. */
#include "check.h"

enum { ROWS = 140000008, EACH = 16 }; /* 2.24e9 bytes */

static unsigned char mark(uint64_t at, int of) { return (unsigned char)(at * 31 + (at >> 20) + of); }

int main(int argc, char **argv)
{
    const uint64_t all = (uint64_t)ROWS * EACH;
    MPI_Datatype row;
    start(&argc, &argv, "large_collectives");
    unsigned char *data = need(all);
    MPI_Type_contiguous(EACH, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    if (rank == size - 1) for (uint64_t at = 0; at < all; at++) data[at] = mark(at, 1);
    else memset(data, 0, all);
    MPI_Bcast(data, ROWS, row, size - 1, MPI_COMM_WORLD);
    for (uint64_t at = 0; at < all; at += at < 4096 || at > all - 8192 ? 1 : 4093) SAME(data[at], mark(at, 1));

    /* A part of each, so that the whole is too much for an int. */
    const uint64_t part = (uint64_t)(ROWS / size) * EACH;
    for (uint64_t at = 0; at < part; at++) data[rank * part + at] = mark(at, rank + 2);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, ROWS / size, row, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        for (uint64_t at = 0; at < part; at += at < 4096 || at > part - 8192 ? 1 : 4093) SAME(data[r * part + at], mark(at, r + 2));
    MPI_Type_free(&row);
    free(data);
    return finish();
}
