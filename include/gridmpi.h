/* GridMPI: what a program may ask of it beyond the MPI standard. The file needs nothing but <mpi.h>, and a program built with it runs
 * without GridMPI, too, as long as it does not use these keys there (GRIDMPI_JOB is set in the environment of ranks of a job).
 *
 * Attributes of MPI_COMM_WORLD; both values are ints, in KB/s of 1000 bytes, headers included:
 *
 *   YAMPI_PSP_MAXRATE  get: the bandwidth of the link that the nodes of this cluster share, as the job file says it (the least, if there are
 *                      several); flag is 0 where it is not known, and in a job of one cluster, where nothing is sent to another.
 *   YAMPI_PSP_MATB     get: what this node may send to each other cluster now (maximum allowable transmission bandwidth).
 *                      put: sets it, at once, whatever was found or granted; every process of the node puts the same value, and has an
 *                      equal part of it. delete: the job's own choice counts again (gridmpi run --pacing).
 *
 * Hints to MPI_Comm_set_info on a communicator across clusters: gridmpi_matb, bits per second ("20M"); gridmpi_pattern, "all", "half" or how
 * many nodes of a cluster send at once, each of which gets MAXRATE by that. MPI_Comm_get_info returns the one that the node keeps to.
 *
 * The tools interface has the same as the control variable gridmpi_matb, and performance variables gridmpi_* (docs/rates.md).
 *
 *   int *rate, matb, flag;
 *   MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, &rate, &flag);
 *   if (flag) {
 *       matb = *rate / nodes_that_send_at_once;
 *       MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, &matb);
 *   }
 */
#ifndef GRIDMPI_H
#define GRIDMPI_H

#define YAMPI_PSP_MAXRATE 0x50535001
#define YAMPI_PSP_MATB 0x50535002

#endif
