/* Error handlers on communicators: errors return, user handlers, classes and strings; inheritance by dup and split. */
#include "check.h"

static int handled, handled_class;

static void handler(MPI_Comm *comm, int *code, ...)
{
    int n;
    handled++;
    handled_class = class_of(*code);
    MPI_Comm_size(*comm, &n); /* a handler may call MPI */
    SAME(n, size);
}

static void expect(int code, int class)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    SAME(class_of(code), class);
    MPI_Error_string(code, text, &length);
    CHECK(length > 0, "error %d has no text", code);
}

static void mistakes(MPI_Comm comm)
{
    int value = 0;
    MPI_Status status;
    expect(MPI_Send(&value, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK);
    expect(MPI_Send(&value, 1, MPI_INT, -77, 0, comm), MPI_ERR_RANK);
    expect(MPI_Recv(&value, 1, MPI_INT, size + 5, 0, comm, &status), MPI_ERR_RANK);
    expect(MPI_Send(&value, 1, MPI_INT, (rank + 1) % size, -20, comm), MPI_ERR_TAG);
    expect(MPI_Send(&value, -1, MPI_INT, (rank + 1) % size, 0, comm), MPI_ERR_COUNT);
    expect(MPI_Send(&value, 1, MPI_DATATYPE_NULL, (rank + 1) % size, 0, comm), MPI_ERR_TYPE);
    expect(MPI_Bcast(&value, 1, MPI_INT, size, comm), MPI_ERR_ROOT);
}

static void errors_return(void)
{
    MPI_Errhandler was, now;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now);
    CHECK(now == MPI_ERRORS_RETURN, "another handler came back");
    MPI_Errhandler_free(&now);
    mistakes(MPI_COMM_WORLD);
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_get_errhandler(dup, &was);
    CHECK(was == MPI_ERRORS_RETURN, "dup lost the handler");
    MPI_Errhandler_free(&was);
    mistakes(dup);
    MPI_Comm_free(&dup);
}

static void user_handler(void)
{
    MPI_Errhandler errhandler;
    int value = 0;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(comm, errhandler);
    MPI_Errhandler_free(&errhandler);
    MPI_Send(&value, 1, MPI_INT, size + 1, 0, comm);
    SAME(handled, 1);
    SAME(handled_class, MPI_ERR_RANK);
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    SAME(handled, 2);
    SAME(handled_class, MPI_ERR_OTHER);
    /* A truncated message from afar and from near. */
    int out[4] = {0}, in;
    MPI_Request request;
    MPI_Isend(out, 4, MPI_INT, (rank + 1) % size, 3, comm, &request);
    MPI_Recv(&in, 1, MPI_INT, (rank + size - 1) % size, 3, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    SAME(handled, 3);
    SAME(handled_class, MPI_ERR_TRUNCATE);
    MPI_Comm_free(&comm);
}

static void own_codes(void)
{
    int class, code, got, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "the ice is too thin");
    MPI_Error_class(code, &got);
    SAME(got, class);
    MPI_Error_string(code, text, &length);
    CHECK(strcmp(text, "the ice is too thin") == 0, "%s", text);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "errors");
    errors_return();
    user_handler();
    own_codes();
    /* After all this the world still works. */
    int sum;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    SAME(sum, size * (size - 1) / 2);
    return finish();
}
