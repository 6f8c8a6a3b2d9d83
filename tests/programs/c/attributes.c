/* Attributes on communicators and datatypes: copy and delete callbacks, some of which call MPI themselves. */
#include "check.h"

static int copies, deletions, refusals;

static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    int n;
    (void)keyval;
    CHECK(extra == &copies, "another extra state");
    MPI_Comm_size(comm, &n); /* a callback may call MPI, and sees the spanning communicator */
    SAME(n, size);
    copies++;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int drop(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int me;
    (void)keyval, (void)value, (void)extra;
    MPI_Comm_rank(comm, &me);
    SAME(me, rank);
    deletions++;
    return MPI_SUCCESS;
}

static int do_not_copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)in, (void)out;
    refusals++;
    *flag = 0;
    return MPI_SUCCESS;
}

static void expect(MPI_Comm comm, int keyval, void *want)
{
    void *value;
    int found;
    MPI_Comm_get_attr(comm, keyval, &value, &found);
    SAME(found, want != NULL);
    if (want) CHECK(value == want, "another value");
}

static void callbacks(void)
{
    static char value[8];
    int copied, kept, dup_fn, null_fn;
    MPI_Comm comm, dup;
    MPI_Comm_create_keyval(copy, drop, &copied, &copies);
    MPI_Comm_create_keyval(do_not_copy, drop, &kept, NULL);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup_fn, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &null_fn, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_attr(comm, copied, value);
    MPI_Comm_set_attr(comm, kept, value + 2);
    MPI_Comm_set_attr(comm, dup_fn, value + 3);
    MPI_Comm_set_attr(comm, null_fn, value + 4);
    SAME(copies + deletions + refusals, 0);

    MPI_Comm_dup(comm, &dup);
    SAME(copies, 1);
    SAME(refusals, 1);
    expect(dup, copied, value + 1);
    expect(dup, kept, NULL);
    expect(dup, dup_fn, value + 3);
    expect(dup, null_fn, NULL);

    MPI_Comm split;
    MPI_Comm_split(comm, 0, rank, &split); /* attributes do not go with a split */
    expect(split, copied, NULL);
    MPI_Comm_free(&split);
    SAME(deletions, 0);

    MPI_Comm_set_attr(dup, copied, value + 5); /* replacing deletes the old value */
    SAME(deletions, 1);
    MPI_Comm_delete_attr(dup, copied);
    SAME(deletions, 2);
    expect(dup, copied, NULL);
    MPI_Comm_free(&dup);
    SAME(deletions, 2);
    MPI_Comm_free(&comm);
    SAME(deletions, 4);
    MPI_Comm_free_keyval(&copied);
    MPI_Comm_free_keyval(&kept);
    MPI_Comm_free_keyval(&dup_fn);
    MPI_Comm_free_keyval(&null_fn);
    SAME(copied, MPI_KEYVAL_INVALID);
}

static void on_types(void)
{
    static int value;
    int keyval, found;
    void *got;
    MPI_Datatype type, dup;
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL);
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_set_attr(type, keyval, &value);
    MPI_Type_dup(type, &dup);
    MPI_Type_get_attr(dup, keyval, &got, &found);
    CHECK(found && got == &value, "the type's attribute is lost");
    MPI_Type_free(&type);
    MPI_Type_free(&dup);
    MPI_Type_free_keyval(&keyval);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "attributes");
    callbacks();
    on_types();
    return finish();
}
