"""mpi4py with pickled objects: send, receive, wild receives, matched probes, collectives of objects."""

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
right, left = (rank + 1) % size, (rank - 1) % size


def same(got, want):
    if got != want:
        print(f"FAIL objects: rank {rank}: {got!r}, not {want!r}", flush=True)
        world.Abort(1)


def thing(r):
    return {"rank": r, "text": "ä" * (r + 1), "list": list(range(r * 1000))}


def point_to_point():
    same(world.sendrecv(thing(rank), right, 1, None, left, 1), thing(left))
    request = world.isend(thing(rank), right, 2)
    same(world.irecv(1 << 20, left, 2).wait(), thing(left))
    request.wait()
    status = MPI.Status()
    if rank == 0:
        for _ in range(size - 1):
            same(world.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status), thing(status.source))
            same(status.tag, status.source + 5)
        world.barrier()
        for _ in range(size - 1):
            message = world.mprobe(source=MPI.ANY_SOURCE, tag=99, status=status)
            same(message.recv(), [status.source] * 3)
    else:
        world.send(thing(rank), 0, rank + 5)
        world.barrier()
        world.ssend([rank] * 3, 0, 99)
    world.barrier()
    same(world.iprobe(), False)
    world.barrier()


def collectives():
    for root in range(size):
        same(world.bcast(thing(root) if rank == root else None, root), thing(root))
        same(world.gather(thing(rank), root), [thing(r) for r in range(size)] if rank == root else None)
        same(world.scatter([thing(r) for r in range(size)] if rank == root else None, root), thing(rank))
    same(world.allgather(rank * "x"), [r * "x" for r in range(size)])
    same(world.alltoall([(rank, r) for r in range(size)]), [(r, rank) for r in range(size)])
    same(world.allreduce([rank]), list(range(size)))  # lists are concatenated in rank order
    same(world.allreduce(rank, MPI.MAX), size - 1)
    same(world.scan(rank + 1), (rank + 1) * (rank + 2) // 2)
    same(world.exscan([rank]), list(range(rank)) if rank else None)


def communicators():
    with_color = world.Split(rank % 2, -rank)
    same(with_color.allgather(rank), [r for r in reversed(range(size)) if r % 2 == rank % 2])
    dup = world.Dup()
    same(MPI.Comm.Compare(dup, world), MPI.CONGRUENT)
    dup.Set_name("copy")
    same(dup.Get_name(), "copy")
    keyval = MPI.Comm.Create_keyval(copy_fn=lambda comm, key, value: value + [rank])
    dup.Set_attr(keyval, ["here"])
    again = dup.Dup()
    same(again.Get_attr(keyval), ["here", rank])
    for comm in (again, dup, with_color):
        comm.Free()
    MPI.Comm.Free_keyval(keyval)


point_to_point()
collectives()
communicators()
world.barrier()
if rank == 0:
    print(f"ok objects on {size} ranks", flush=True)
