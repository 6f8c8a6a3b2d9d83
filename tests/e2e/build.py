"""Compiles the test programs with each vendor's own compiler."""

import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .place import BUILD
from .programs import Program
from .vendors import Vendor

# MPICH's header makes gcc believe that MPI_STATUSES_IGNORE is an array of no statuses.
_C_FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wno-stringop-overflow", "-Wno-stringop-overread", "-O1", "-g"]

#: In C and in Fortran.
_INCLUDE = re.compile(r"""^\s*#?\s*include\s+["']([^"']+)["']""", re.MULTILINE)


class BuildError(Exception):
    """A program does not compile."""


def command_of(program: Program, vendor: Vendor) -> list[str]:
    """Program and arguments, as a launcher takes them."""
    if program.language == "python":
        return [str(vendor.python), "-B", str(program.source), *program.args]
    return [str(_binary(program, vendor)), *program.args]


def _binary(program: Program, vendor: Vendor) -> Path:
    return BUILD / vendor.tag / program.name


def _command(program: Program, vendor: Vendor) -> list[str]:
    binary = _binary(program, vendor)
    if program.language == "c":
        return [*vendor.cc, *_C_FLAGS, str(program.source), "-o", str(binary), "-lm", "-pthread"]
    return [*vendor.fc, f"-J{_modules(binary)}", str(program.source), "-o", str(binary)]


def _modules(binary: Path) -> Path:
    return binary.parent / f"modules-{binary.name}"


def sources(source: Path) -> set[Path]:
    """The file, and what it includes by a path from itself: all of ours."""
    found, todo = set(), [source]
    while todo:
        file = todo.pop().resolve()
        if file not in found and file.exists():
            found.add(file)
            todo += [file.parent / name for name in _INCLUDE.findall(file.read_text())]
    return found


def _recorded(binary: Path) -> Path:
    """Where the command stands by which the program was made."""
    return binary.with_name(f"{binary.name}.command")


def record(binary: Path, command: list[str]) -> None:
    """The program has been made by it."""
    _recorded(binary).write_text(shlex.join(command))


def is_made(binary: Path, source: Path, command: list[str]) -> bool:
    """Whether the program is there, by this very command, and newer than all that it is made of."""
    recorded = _recorded(binary)
    if not binary.exists() or not recorded.exists() or recorded.read_text() != shlex.join(command):
        return False
    return all(binary.stat().st_mtime > file.stat().st_mtime for file in sources(source))


def _compile(program: Program, vendor: Vendor) -> None:
    binary, command = _binary(program, vendor), _command(program, vendor)
    if is_made(binary, program.source, command):
        return
    (binary.parent if program.language == "c" else _modules(binary)).mkdir(parents=True, exist_ok=True)
    _recorded(binary).unlink(missing_ok=True)
    done = subprocess.run(
        command, env={**os.environ, **vendor.env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        raise BuildError(f"{vendor.tag}: {' '.join(command)}\n{done.stderr}")
    record(binary, command)


def build(programs: list[Program], vendors: list[Vendor]) -> None:
    """Everything that is older than its sources, or was made by another command, for every vendor."""
    todo = {
        (program.name, vendor.tag): (program, vendor)
        for program in programs
        for vendor in vendors
        if program.language != "python" and program.runs_under(vendor)
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda pair: _compile(*pair), todo.values()))
