/* 64 MB messages both ways at once, dense and strided. `large --huge`: one message of more than 2 GiB. `large --replace`: two such, each in
 * the place of the other. `large --for SECONDS`: messages of 2 MB, one after another. */
#include "check.h"

static void dense(int peer, size_t bytes, int stamp)
{
    char *out = need(bytes), *in = need(bytes);
    MPI_Status status;
    fill(out, bytes, stamp + rank);
    MPI_Sendrecv(out, (int)bytes, MPI_BYTE, peer, 1, in, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &status);
    STATUS_IS(status, peer, 1, MPI_BYTE, (int)bytes);
    VERIFY(in, bytes, stamp + peer);
    free(out);
    free(in);
}

/* Every other block of 1000 doubles goes out, and lands in every third. */
static void strided(int peer, int blocks)
{
    enum { BLOCK = 1000 };
    MPI_Datatype second, third;
    double *out = need(sizeof *out * BLOCK * 2 * blocks), *in = need(sizeof *in * BLOCK * 3 * blocks);
    MPI_Type_vector(blocks, BLOCK, 2 * BLOCK, MPI_DOUBLE, &second);
    MPI_Type_vector(blocks, BLOCK, 3 * BLOCK, MPI_DOUBLE, &third);
    MPI_Type_commit(&second);
    MPI_Type_commit(&third);
    for (int i = 0; i < 2 * BLOCK * blocks; i++) out[i] = rank * 1e9 + i;
    for (int i = 0; i < 3 * BLOCK * blocks; i++) in[i] = -1;
    MPI_Sendrecv(out, 1, second, peer, 2, in, 1, third, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < BLOCK; i++) {
            double got = in[b * 3 * BLOCK + i], want = peer * 1e9 + b * 2 * BLOCK + i;
            CHECK(got == want, "block %d element %d is %.0f, not %.0f", b, i, got, want);
            if (b + 1 < blocks)
                CHECK(in[b * 3 * BLOCK + BLOCK + i] == -1, "the gap after block %d was written", b);
        }
    MPI_Type_free(&second);
    MPI_Type_free(&third);
    free(out);
    free(in);
}

/* A size that does not fit an int, by a count that does. */
enum { BLOCK = 1 << 20, BLOCKS = 2049 };

static MPI_Datatype block_type(void)
{
    MPI_Datatype block;
    MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
    MPI_Type_commit(&block);
    return block;
}

/* Rank 0 to the last one: a count that fits an int, a size that does not. */
static void huge(void)
{
    size_t bytes = (size_t)BLOCK * BLOCKS;
    MPI_Datatype block = block_type();
    if (rank == 0 || rank == size - 1) {
        char *data = need(bytes);
        if (rank == 0) {
            for (size_t at = 0; at < bytes; at += BLOCK) fill(data + at, 64, at);
            MPI_Send(data, BLOCKS, block, size - 1, 9, MPI_COMM_WORLD);
        } else {
            MPI_Status status;
            MPI_Count elements;
            MPI_Recv(data, BLOCKS, block, 0, 9, MPI_COMM_WORLD, &status);
            STATUS_IS(status, 0, 9, block, BLOCKS);
            MPI_Get_elements_x(&status, MPI_BYTE, &elements);
            SAME(elements, bytes);
            for (size_t at = 0; at < bytes; at += BLOCK) VERIFY(data + at, 64, at);
        }
        free(data);
    }
    MPI_Type_free(&block);
}

/* Rank 0 and the last one change what they have in place. */
static void replace(void)
{
    size_t bytes = (size_t)BLOCK * BLOCKS;
    MPI_Datatype block = block_type();
    int peer = size - 1 - rank;
    if (rank == 0 || peer == 0) {
        MPI_Status status;
        char *data = need(bytes);
        for (size_t at = 0; at < bytes; at += BLOCK) fill(data + at, 64, at + rank);
        MPI_Sendrecv_replace(data, BLOCKS, block, peer, 9, peer, 9, MPI_COMM_WORLD, &status);
        STATUS_IS(status, peer, 9, block, BLOCKS);
        for (size_t at = 0; at < bytes; at += BLOCK) VERIFY(data + at, 64, at + peer);
        free(data);
    }
    MPI_Type_free(&block);
}

/* Both ways between the members of each pair, all pairs at once, until rank 0 says that the time is over. */
static void stream(int peer, double seconds)
{
    if (rank == 0) printf("large begins\n"), fflush(stdout);
    double since = MPI_Wtime();
    int goes_on = 1, done = 0;
    for (; goes_on; done++) {
        if (peer != rank) dense(peer, 2000000, done * size);
        goes_on = MPI_Wtime() - since < seconds;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("large: %d messages\n", done);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "large");
    int peer = size - 1 - rank, pairs = size / 2;
    size_t each = (size_t)64000000 / pairs; /* 64 MB both ways in all, however many ranks */
    if (argc > 1 && strcmp(argv[1], "--huge") == 0) huge();
    else if (argc > 1 && strcmp(argv[1], "--replace") == 0) replace();
    else if (argc > 2 && strcmp(argv[1], "--for") == 0) stream(peer, atof(argv[2]));
    else if (peer != rank) {
        dense(peer, each, 0);
        strided(peer, (int)(each / 8000 / 4));
        if (rank == 0 || peer == 0) dense(peer, 64000000, 0);
    }
    return finish();
}
