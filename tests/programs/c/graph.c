/* Graph and distributed-graph topologies: creation by every form, queries, messages along the edges (MPI 4.1 §8.5). */
#include "check.h"

/* Everybody is joined with the next and the previous; rank 0 with all. */
static void graph(void)
{
    int index[size], edges[4 * size], at = 0, nnodes, nedges, kind, count;
    MPI_Comm comm;
    for (int r = 0; r < size; r++) {
        if (r == 0)
            for (int s = 1; s < size; s++) edges[at++] = s;
        else edges[at++] = 0;
        index[r] = at;
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &comm);
    MPI_Topo_test(comm, &kind);
    SAME(kind, MPI_GRAPH);
    MPI_Graphdims_get(comm, &nnodes, &nedges);
    SAME(nnodes, size);
    SAME(nedges, at);
    int got_index[size], got_edges[4 * size];
    MPI_Graph_get(comm, size, at, got_index, got_edges);
    for (int r = 0; r < size; r++) SAME(got_index[r], index[r]);
    for (int e = 0; e < at; e++) SAME(got_edges[e], edges[e]);
    for (int r = 0; r < size; r++) {
        int neighbors[size];
        MPI_Graph_neighbors_count(comm, r, &count);
        SAME(count, r ? 1 : size - 1);
        MPI_Graph_neighbors(comm, r, count, neighbors);
        for (int i = 0; i < count; i++) SAME(neighbors[i], r ? 0 : i + 1);
    }
    int sum;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    SAME(sum, size * (size - 1) / 2);
    MPI_Comm dup;
    MPI_Comm_dup(comm, &dup);
    MPI_Topo_test(dup, &kind);
    SAME(kind, MPI_GRAPH);
    MPI_Comm_free(&dup);
    MPI_Comm_free(&comm);
}

static void along_the_edges(MPI_Comm comm, int in, const int *sources, int out, const int *destinations)
{
    MPI_Request request[in + out];
    int values[in];
    for (int i = 0; i < in; i++) MPI_Irecv(&values[i], 1, MPI_INT, sources[i], 4, comm, &request[i]);
    for (int i = 0; i < out; i++) MPI_Isend(&rank, 1, MPI_INT, destinations[i], 4, comm, &request[in + i]);
    MPI_Waitall(in + out, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < in; i++) SAME(values[i], sources[i]);
}

static void adjacent(int weighted)
{
    int sources[] = {(rank + size - 1) % size, (rank + size - 2) % size}, destinations[] = {(rank + 1) % size, (rank + 2) % size};
    int in_weights[] = {1, 2}, out_weights[] = {1, 2}, in, out, has_weights, kind;
    MPI_Comm comm;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, weighted ? in_weights : MPI_UNWEIGHTED, 2, destinations,
                                   weighted ? out_weights : MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    MPI_Topo_test(comm, &kind);
    SAME(kind, MPI_DIST_GRAPH);
    MPI_Dist_graph_neighbors_count(comm, &in, &out, &has_weights);
    SAME(in, 2);
    SAME(out, 2);
    SAME(!!has_weights, weighted);
    int got_sources[2], got_destinations[2], got_in[2] = {0}, got_out[2] = {0};
    MPI_Dist_graph_neighbors(comm, 2, got_sources, weighted ? got_in : MPI_UNWEIGHTED, 2, got_destinations, weighted ? got_out : MPI_UNWEIGHTED);
    for (int i = 0; i < 2; i++) {
        SAME(got_sources[i], sources[i]);
        SAME(got_destinations[i], destinations[i]);
        SAME(got_in[i], weighted ? i + 1 : 0);
        SAME(got_out[i], weighted ? i + 1 : 0);
    }
    along_the_edges(comm, 2, got_sources, 2, got_destinations);
    MPI_Comm_free(&comm);
}

/* Rank 0 describes the edges of everybody: a star with edges to rank 0. */
static void general(void)
{
    int nodes[size], degrees[size], targets[size], weights[size], in, out, has_weights;
    MPI_Comm comm;
    for (int r = 0; r < size; r++) nodes[r] = r, degrees[r] = 1, targets[r] = 0, weights[r] = 10 + r;
    MPI_Dist_graph_create(MPI_COMM_WORLD, rank ? 0 : size, nodes, degrees, targets, weights, MPI_INFO_NULL, 0, &comm);
    MPI_Dist_graph_neighbors_count(comm, &in, &out, &has_weights);
    SAME(in, rank ? 0 : size);
    SAME(out, 1);
    int sources[size], in_weights[size], destinations[1], out_weights[1], seen = 0;
    MPI_Dist_graph_neighbors(comm, in, sources, in_weights, out, destinations, out_weights);
    SAME(destinations[0], 0);
    SAME(out_weights[0], 10 + rank);
    for (int i = 0; i < in; i++) {
        SAME(in_weights[i], 10 + sources[i]);
        seen += sources[i];
    }
    SAME(seen, rank ? 0 : size * (size - 1) / 2);
    along_the_edges(comm, in, sources, out, destinations);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    start(&argc, &argv, "graph");
    graph();
    adjacent(0);
    adjacent(1);
    general();
    return finish();
}
