"""Compiles the test programs with each vendor's own compiler."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from .place import BUILD, PROGRAMS
from .programs import Program
from .vendors import Vendor

# MPICH's header makes gcc believe that MPI_STATUSES_IGNORE is an array of no statuses.
_C_FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wno-stringop-overflow", "-Wno-stringop-overread", "-O1", "-g"]


class BuildError(Exception):
    """A program does not compile."""


def command_of(program: Program, vendor: Vendor) -> list[str]:
    """Program and arguments, as a launcher takes them."""
    if program.language == "python":
        return [str(vendor.python), "-B", str(program.source), *program.args]
    return [str(_binary(program, vendor)), *program.args]


def _binary(program: Program, vendor: Vendor):
    return BUILD / vendor.tag / program.name


def _compile(program: Program, vendor: Vendor) -> None:
    binary = _binary(program, vendor)
    sources = [program.source]
    if program.language == "c":
        sources.append(PROGRAMS / "c" / "check.h")
    if binary.exists() and all(binary.stat().st_mtime > source.stat().st_mtime for source in sources):
        return
    binary.parent.mkdir(parents=True, exist_ok=True)
    if program.language == "c":
        command = [*vendor.cc, *_C_FLAGS, str(program.source), "-o", str(binary), "-lm", "-pthread"]
    else:
        modules = binary.parent / f"modules-{program.name}"
        modules.mkdir(exist_ok=True)
        command = [*vendor.fc, f"-J{modules}", str(program.source), "-o", str(binary)]
    done = subprocess.run(
        command, env={**os.environ, **vendor.env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        raise BuildError(f"{vendor.tag}: {' '.join(command)}\n{done.stderr}")


def build(programs: list[Program], vendors: list[Vendor]) -> None:
    """Everything that is older than its source, for every vendor."""
    todo = {
        (program.name, vendor.tag): (program, vendor)
        for program in programs
        for vendor in vendors
        if program.language != "python" and program.runs_under(vendor)
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda pair: _compile(*pair), todo.values()))
