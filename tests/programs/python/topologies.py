"""mpi4py on groups, grids and graphs, and what is refused across clusters works inside one."""

import os

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size


def same(got, want):
    if got != want:
        print(f"FAIL topologies: rank {rank}: {got!r}, not {want!r}", flush=True)
        world.Abort(1)


def grid():
    cart = world.Create_cart(MPI.Compute_dims(size, 2), [True, False])
    same(cart.Get_cart_rank(cart.coords), cart.rank)
    source, dest = cart.Shift(0, 1)
    same(cart.sendrecv(cart.rank, dest, 0, None, source, 0), source)
    line = cart.Sub([False, True])
    same(line.allreduce(1), cart.dims[1])
    line.Free()
    cart.Free()


def graph():
    ring = world.Create_dist_graph_adjacent([(rank - 1) % size], [(rank + 1) % size])
    sources, destinations, _ = ring.Get_dist_neighbors()
    same((sources, destinations), ([(rank - 1) % size], [(rank + 1) % size]))
    ring.Free()


def groups():
    group = world.Get_group()
    odd = group.Excl(list(range(0, size, 2)))
    comm = world.Create(odd)
    if rank % 2:
        same(comm.allgather(rank), list(range(1, size, 2)))
        comm.Free()
    else:
        same(comm == MPI.COMM_NULL, True)
    odd.Free()
    group.Free()


def one_cluster():
    clusters = world.allgather(os.environ.get("GRIDMPI_CLUSTER"))
    local = world.Split(sorted(set(clusters)).index(clusters[rank]) if clusters[rank] else 0, rank)
    request = local.Ibarrier()
    request.Wait()
    world.Set_errhandler(MPI.ERRORS_RETURN)
    if len(set(clusters)) > 1:
        try:
            world.Ibarrier()
        except MPI.Exception as error:
            same(error.Get_error_class(), MPI.ERR_UNSUPPORTED_OPERATION)
        else:
            same("MPI_Ibarrier across clusters", "refused")
    else:
        world.Ibarrier().Wait()
    local.Free()


for part in (grid, graph, groups, one_cluster):
    part()
    world.barrier()
if rank == 0:
    print(f"ok topologies on {size} ranks", flush=True)
