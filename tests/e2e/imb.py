"""Intel's MPI benchmarks, unmodified: which there are, how they are called, and whether they came to their end.

IMB-MPI1 comes with Intel MPI from PyPI, built for the MPICH ABI and without its check of data (a choice of whoever compiles it).
"""

import re
from pathlib import Path

from . import place
from .process import Result
from .vendors import Vendor

PROGRAM = place.VENDORS / "impi" / "bin" / "IMB-MPI1"
BENCHMARKS = """PingPong PingPing PingPongSpecificSource PingPingSpecificSource PingPongAnySource PingPingAnySource Sendrecv
    Exchange Uniband Biband Bcast Allgather Allgatherv Alltoall Alltoallv Scatter Scatterv Gather Gatherv Reduce
    Reduce_scatter Reduce_scatter_block Allreduce Reduce_local Barrier""".split()
#: A few of each kind.
SOME = ["PingPongAnySource", "Sendrecv", "Exchange", "Bcast", "Alltoallv", "Reduce_scatter", "Allreduce", "Barrier"]
#: Their pairs are the first and the second half of the ranks.
_HALVES = ("Uniband", "Biband")
_ONCE = ["-iter_policy", "off", "-time", "60"]
QUICK = ["-msglog", "0:16", "-iter", "10", *_ONCE]
#: Lengths from nothing to what takes 50 ms on a link of 160 Mbit/s.
FEW = ["-msgsize", "0,4,1000,65536,1048576", "-iter", "4", *_ONCE]


def arguments(benchmark: str, clusters: int, lengths: list[str]) -> list[str]:
    """For two ranks in each cluster, those of a pair in different ones; other pairs than halves are ranks 0 and 1, 2 and 3."""
    places = [] if benchmark in _HALVES else ["-map", f"2x{clusters}"]
    return ["-npmin", str(2 * clusters), *places, *lengths]


#: Programs of the user's own, by vendor.
OWN: dict[str, Path] = {}


def program(vendor: Vendor) -> Path:
    """The one to run over this vendor."""
    return OWN.get(vendor.tag, PROGRAM)


def variables(vendor: Vendor) -> dict[str, str]:
    """Over the PyPI MPICH the library is found by path, as no run path leads to it."""
    library = {"m5": {"LD_LIBRARY_PATH": str(place.VENDORS / "mpich5" / "lib")}}
    return {**vendor.env, **library.get(vendor.tag, {})}


def problem(benchmarks: list[str], result: Result, seconds: float) -> str | None:
    """What is wrong with how a run of these ended; None if nothing is."""
    if result.timed_out:
        return f"not done within {seconds:.0f} s"
    if result.left:
        return f"left running: {result.left[0]}"
    if result.code != 0:
        return f"exit code {result.code}"
    for benchmark in benchmarks:
        if not _rows(benchmark, result.output):
            return f"{benchmark} printed no table"
        if defects := [value for value in _column("defects", benchmark, result.output) if value != 0]:
            return f"{benchmark} found {defects[0]:g} defects in its data"
    if "# All processes entering MPI_Finalize" not in result.output:
        return "it did not come to its end"
    if "time-out" in result.output:
        return "a length took longer than IMB's own limit"
    return None


def _table(benchmark: str, output: str) -> list[list[str]]:
    """A benchmark's table: its head and rows, by words."""
    table = re.search(rf"# Benchmarking {benchmark}\s*$(.*?)(?:^.*# (?:Benchmarking|All processes)|\Z)", output, re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"^\[[^]]*\] ?", "", line).split() for line in table[1].splitlines()] if table else []
    head = next((words for words in lines if "#repetitions" in words), [])
    return [head, *(words for words in lines if len(words) == len(head) and all(re.fullmatch(r"[\d.]+", word) for word in words))]


def _rows(benchmark: str, output: str) -> int:
    return len(_table(benchmark, output)) - 1


def _column(name: str, benchmark: str, output: str) -> list[float]:
    """A column of the table; nothing if it has none of this name."""
    head, *rows = _table(benchmark, output)
    return [float(row[head.index(name)]) for row in rows] if name in head else []
