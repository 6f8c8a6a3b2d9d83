"""transpose.py SIZE COUNT: Fourier transforms of a SIZE x SIZE matrix in two dimensions, COUNT there and back, by rows and
transposition among all ranks (MPI_Alltoall). Says `seconds`; what comes back must be what was sent."""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, ranks = comm.Get_rank(), comm.Get_size()
size, count = int(sys.argv[1]), int(sys.argv[2])
if size % ranks:
    sys.exit(f"{size} rows do not divide among {ranks} ranks")
rows = size // ranks


def transposed(block):
    out = np.ascontiguousarray(block.reshape(rows, ranks, rows).transpose(1, 2, 0))
    back = np.empty_like(out)
    comm.Alltoall(out, back)
    # back[p][j][i] is row i of rank p's, column j of my part.
    return np.ascontiguousarray(back.transpose(1, 0, 2).reshape(rows, size))


first = np.random.default_rng(me).random((rows, size)) + 0j
block = first
comm.Barrier()
begin = MPI.Wtime()
for _ in range(count):
    block = np.fft.fft(transposed(np.fft.fft(block, axis=1)), axis=1)
    block = np.fft.ifft(transposed(np.fft.ifft(block, axis=1)), axis=1)
comm.Barrier()
seconds = MPI.Wtime() - begin
if not np.allclose(block, first):
    print(f"transpose.py: rank {me}: wrong data", file=sys.stderr)
    comm.Abort(1)
if me == 0:
    print("@seconds", seconds, flush=True)
