/* MPI_PROC_NULL as a peer: every call returns at once with the empty status (MPI 4.1 §3.10). */
#include "check.h"

#define EMPTY(status) STATUS_IS(status, MPI_PROC_NULL, MPI_ANY_TAG, MPI_INT, 0)

/* Not all vendors set the source in the status of a nonblocking receive from nobody (MPICH 4.0.2 and 5.0.2 do not). */
#define NOTHING(status)                                                                           \
    do {                                                                                          \
        int count_ = -1;                                                                          \
        MPI_Get_count(&(status), MPI_INT, &count_);                                               \
        SAME(count_, 0);                                                                          \
    } while (0)

int main(int argc, char **argv)
{
    start(&argc, &argv, "procnull");
    int value = 42, flag;
    MPI_Status status;
    MPI_Request request[3];
    MPI_Message message;

    MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Ssend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Rsend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    EMPTY(status);
    MPI_Probe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status);
    EMPTY(status);
    MPI_Iprobe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    SAME(flag, 1);
    EMPTY(status);

    MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC, "matched a message of nobody");
    EMPTY(status);
    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
    CHECK(message == MPI_MESSAGE_NULL, "the message handle is still set");
    EMPTY(status);
    MPI_Improbe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &message, &status);
    SAME(flag, 1);
    MPI_Imrecv(&value, 1, MPI_INT, &message, &request[0]);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);

    MPI_Isend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request[0]);
    MPI_Issend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request[1]);
    MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request[2]);
    MPI_Wait(&request[2], &status);
    NOTHING(status);
    MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
    SAME(value, 42);

    MPI_Send_init(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request[0]);
    MPI_Recv_init(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request[1]);
    for (int i = 0; i < 3; i++) {
        MPI_Status both[2];
        MPI_Startall(2, request);
        MPI_Waitall(2, request, both);
        NOTHING(both[1]);
    }
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
    return finish();
}
