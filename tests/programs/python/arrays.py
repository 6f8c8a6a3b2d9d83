"""mpi4py with numpy buffers: every mode, derived types, wild receives, persistent requests, collectives, user operations."""

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
right, left = (rank + 1) % size, (rank - 1) % size


def check(truth, what):
    if not truth:
        print(f"FAIL arrays: rank {rank}: {what}", flush=True)
        world.Abort(1)


def point_to_point():
    for count in (0, 1, 1000, 300_000):
        out, data = np.arange(count, dtype="d") + rank, np.zeros(count)
        world.Sendrecv(out, right, 1, data, left, 1)
        check((data == np.arange(count) + left).all(), f"{count} doubles")
        request = [world.Irecv(data, MPI.ANY_SOURCE, 2), world.Issend(out * 2, right, 2)]
        MPI.Request.Waitall(request)
        check((data == 2 * (np.arange(count) + left)).all(), f"{count} doubles, synchronous")


def strided():
    matrix = np.arange(60, dtype="i").reshape(6, 10) + 1000 * rank
    column = MPI.INT.Create_vector(6, 1, 10).Commit()
    got = np.zeros(6, dtype="i")
    world.Sendrecv([matrix.ravel()[3:], 1, column], right, 3, got, left, 3)
    check((got == np.arange(3, 60, 10) + 1000 * left).all(), "a column")
    column.Free()


def wild():
    status = MPI.Status()
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            data = np.empty(10, dtype="q")
            world.Recv(data, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            check(status.Get_count(MPI.INT64_T) == status.source, "count")
            check((data[: status.source] == status.tag).all(), "values")
            seen.add(status.source)
        check(seen == set(range(1, size)), "one from each")
    else:
        world.Send(np.full(rank, rank * 3, dtype="q"), 0, rank * 3)
    world.Barrier()


def persistent():
    out, data = np.zeros(100, dtype="i"), np.zeros(100, dtype="i")
    requests = [world.Recv_init(data, left, 4), world.Send_init(out, right, 4)]
    for turn in range(4):
        out[:] = rank * 10 + turn
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        check((data == left * 10 + turn).all(), "persistent")
    for request in requests:
        request.Free()


def collectives():
    data = np.full(1000, rank, dtype="d")
    total = np.zeros(1000)
    world.Allreduce(data, total)
    check((total == size * (size - 1) / 2).all(), "allreduce")
    world.Allreduce(MPI.IN_PLACE, data, MPI.MAX)
    check((data == size - 1).all(), "allreduce in place")
    every = np.zeros((size, 3), dtype="i")
    world.Allgather(np.full(3, rank, dtype="i"), every)
    check((every == np.arange(size)[:, None]).all(), "allgather")
    counts = [r + 1 for r in range(size)]
    ragged = np.zeros(sum(counts), dtype="i")
    world.Allgatherv(np.full(rank + 1, rank, dtype="i"), [ragged, counts])
    check((ragged == np.repeat(np.arange(size), counts)).all(), "allgatherv")
    exchanged = np.zeros(size, dtype="i")
    world.Alltoall(np.arange(size, dtype="i") + 100 * rank, exchanged)
    check((exchanged == 100 * np.arange(size) + rank).all(), "alltoall")
    for root in range(size):
        value = np.full(5000, root if rank == root else -1, dtype="i")
        world.Bcast(value, root)
        check((value == root).all(), "bcast")


def user_operation():
    def last_nonzero(left_memory, right_memory, datatype):  # not commutative
        a, b = np.frombuffer(left_memory, "i"), np.frombuffer(right_memory, "i")
        b[:] = np.where(b, b, a)

    op = MPI.Op.Create(last_nonzero, commute=False)
    mine = np.array([rank + 1 if rank <= turn else 0 for turn in range(size)], dtype="i")
    result = np.zeros(size, dtype="i")
    world.Allreduce(mine, result, op)
    check((result == np.arange(size) + 1).all(), f"last of those that are not zero: {result}")
    op.Free()


check(MPI.Query_thread() == MPI.THREAD_MULTIPLE, "mpi4py asks for MPI_THREAD_MULTIPLE")
for part in (point_to_point, strided, wild, persistent, collectives, user_operation):
    part()
    world.Barrier()
if rank == 0:
    print(f"ok arrays on {size} ranks", flush=True)
