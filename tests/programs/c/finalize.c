/* Delete callbacks on MPI_COMM_SELF run first in MPI_Finalize and may still talk to everybody (MPI 4.1 §11.4.1). */
#include "check.h"

static int last_words(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int sum = -1, got = -1;
    (void)comm, (void)keyval, (void)extra;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    SAME(sum, size * (size - 1) / 2);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SAME(got, (rank + size - 1) % size);
    ++*(int *)value;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    static int called;
    int keyval, data = rank, done;
    start(&argc, &argv, "finalize");
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &called);
    /* A message that is still on its way when its sender finalizes must arrive. */
    data = rank * 3;
    if (rank == 0)
        for (int peer = 1; peer < size; peer++) {
            int got;
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            SAME(got % 3, 0);
        }
    else MPI_Send(&data, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    MPI_Finalize();
    MPI_Finalized(&done);
    if (!done || called != 1) {
        fprintf(stderr, "FAIL finalize: rank %d: the callback ran %d times\n", rank, called);
        return 1;
    }
    if (rank == 0) printf("ok finalize on %d ranks\n", size);
    return 0;
}
