/* More about datatypes: MPI_BOTTOM, partial receives and element counts, types freed in flight, packed data. */
#include "check.h"

static int next, previous;

/* Absolute addresses of unrelated variables, from and to MPI_BOTTOM. */
static void bottom(void)
{
    static double real[4];
    int local[3], lengths[] = {3, 4};
    MPI_Aint places[2];
    MPI_Datatype parts[] = {MPI_INT, MPI_DOUBLE}, type;
    MPI_Request request;
    MPI_Get_address(local, &places[0]);
    MPI_Get_address(real, &places[1]);
    MPI_Type_create_struct(2, lengths, places, parts, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < 3; i++) local[i] = rank * 10 + i;
    for (int i = 0; i < 4; i++) real[i] = rank + i / 8.0;
    MPI_Isend(MPI_BOTTOM, 1, type, next, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(MPI_BOTTOM, 1, type, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++) SAME(local[i], previous * 10 + i);
    for (int i = 0; i < 4; i++) CHECK(real[i] == previous + i / 8.0, "%f", real[i]);
    MPI_Type_free(&type);
}

/* Fewer elements than the receive has room for, and a part of an element at the end. */
static void partial(void)
{
    MPI_Datatype triple;
    int out[8], in[12], count, elements;
    MPI_Status status;
    MPI_Type_contiguous(3, MPI_INT, &triple);
    MPI_Type_commit(&triple);
    for (int sent = 0; sent <= 8; sent++) {
        for (int i = 0; i < 8; i++) out[i] = rank + i;
        for (int i = 0; i < 12; i++) in[i] = -1;
        MPI_Sendrecv(out, sent, MPI_INT, next, 2, in, 4, triple, previous, 2, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, triple, &count);
        MPI_Get_elements(&status, triple, &elements);
        SAME(elements, sent);
        SAME(count, sent % 3 ? MPI_UNDEFINED : sent / 3);
        for (int i = 0; i < 12; i++) SAME(in[i], i < sent ? previous + i : -1);
    }
    MPI_Type_free(&triple);
}

/* A type may be freed while communication that uses it is pending. */
static void freed_in_flight(void)
{
    enum { BLOCKS = 40000 };
    MPI_Datatype send, receive;
    MPI_Request request[2];
    int *out = need(sizeof *out * BLOCKS * 2), *in = need(sizeof *in * BLOCKS * 3);
    for (int i = 0; i < 2 * BLOCKS; i++) out[i] = rank * 7 + i;
    for (int i = 0; i < 3 * BLOCKS; i++) in[i] = -1;
    MPI_Type_vector(BLOCKS, 1, 3, MPI_INT, &receive);
    MPI_Type_commit(&receive);
    MPI_Irecv(in, 1, receive, previous, 3, MPI_COMM_WORLD, &request[0]);
    MPI_Type_free(&receive);
    MPI_Type_vector(BLOCKS, 1, 2, MPI_INT, &send);
    MPI_Type_commit(&send);
    MPI_Isend(out, 1, send, next, 3, MPI_COMM_WORLD, &request[1]);
    MPI_Type_free(&send);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3 * BLOCKS; i++) {
        int want = i % 3 ? -1 : previous * 7 + i / 3 * 2;
        if (in[i] != want) SAME(in[i], want);
    }
    free(out);
    free(in);
}

/* Packed by hand, sent as MPI_PACKED, received as MPI_PACKED and unpacked. */
static void pack(void)
{
    char buffer[256];
    int at = 0, number = rank, got = -1;
    double real = rank / 4.0, got_real = 0;
    MPI_Status status;
    MPI_Pack(&number, 1, MPI_INT, buffer, sizeof buffer, &at, MPI_COMM_WORLD);
    MPI_Pack(&real, 1, MPI_DOUBLE, buffer, sizeof buffer, &at, MPI_COMM_WORLD);
    int length = at;
    MPI_Sendrecv_replace(buffer, length, MPI_PACKED, next, 4, previous, 4, MPI_COMM_WORLD, &status);
    at = 0;
    MPI_Unpack(buffer, length, &at, &got, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Unpack(buffer, length, &at, &got_real, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    SAME(got, previous);
    CHECK(got_real == previous / 4.0, "%f", got_real);
}

/* Types without data: of no blocks, and made of such. */
static void nothing(void)
{
    MPI_Datatype type[4];
    MPI_Aint place = 8;
    int one = 1, bytes = -1;
    char in = 1, out = 2;
    MPI_Type_create_struct(0, NULL, NULL, NULL, &type[0]);
    MPI_Type_create_struct(1, &one, &place, &type[0], &type[1]);
    MPI_Type_contiguous(3, type[0], &type[2]);
    MPI_Type_indexed(0, NULL, NULL, MPI_INT, &type[3]);
    for (int t = 0; t < 4; t++) {
        MPI_Status status;
        MPI_Request request[2];
        MPI_Type_commit(&type[t]);
        MPI_Type_size(type[t], &bytes);
        SAME(bytes, 0);
        MPI_Sendrecv(&out, 3, type[t], next, 5, &in, 2, type[t], previous, 5, MPI_COMM_WORLD, &status);
        STATUS_IS(status, previous, 5, MPI_BYTE, 0);
        MPI_Irecv(&in, 3, type[t], MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &request[0]);
        MPI_Isend(&out, 0, MPI_BYTE, next, 6, MPI_COMM_WORLD, &request[1]);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        MPI_Bcast(&in, 1, type[t], 0, MPI_COMM_WORLD);
        SAME(in, 1);
    }
    for (int t = 0; t < 4; t++) MPI_Type_free(&type[t]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "types_more");
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    bottom();
    partial();
    freed_in_flight();
    pack();
    nothing();
    return finish();
}
