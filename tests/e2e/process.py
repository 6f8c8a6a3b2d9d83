"""Runs commands within a time limit and leaves nothing of them behind.

Every run carries a mark in its environment. What a launcher starts may leave its process group, but it keeps the mark: so
exactly the processes of a run can be found, and only they are ended.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

MARK = "GRIDMPI_TEST_RUN"
Found = TypeVar("Found", dict[int, str], list[int])


@dataclass
class Result:
    """How a command ended."""

    code: int
    output: str
    seconds: float
    timed_out: bool
    left: list[str]


def free_ports(count: int) -> list[int]:
    """So many ports of 127.0.0.1 that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def marked(mark: str) -> dict[int, str]:
    """Live processes of the run with this mark: id and command line."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text().rpartition(") ")[2][:1]
            if state != "Z":
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
        except OSError:
            continue  # it ended meanwhile, or is not ours
    return found


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def left_after(grace: float, look: Callable[[], Found]) -> Found:
    """What `look` still finds after `grace` seconds; returns at once when that is nothing."""
    end = time.monotonic() + grace
    while (left := look()) and time.monotonic() <= end:
        time.sleep(0.05)
    return left


def _end(child: subprocess.Popen[bytes]) -> None:
    """Asks it to end, and gives it the time to clean up."""
    _signal([child.pid], signal.SIGTERM)
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        pass


def _kill_all(mark: str) -> None:
    while remaining := marked(mark):
        _signal(list(remaining), signal.SIGKILL)
        time.sleep(0.05)


def run(
    command: list[str],
    *,
    log: Path,
    seconds: float,
    env: dict[str, str] | None = None,
    stdin: str = "",
    cwd: Path | None = None,
    grace: float = 5,
    during: Callable[[str], None] | None = None,
) -> Result:
    """Runs to the end or the limit. Output goes to `log`; processes that outlive the command by `grace` seconds are
    reported and killed. `during` is called with the run's mark while it runs."""
    mark = uuid.uuid4().hex
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("w+b") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {}), MARK: mark},
            cwd=cwd,
            start_new_session=True,
        )
        if during:
            threading.Thread(target=during, args=(mark,), daemon=True).start()
        timed_out = False
        try:
            child.communicate(stdin.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            _end(child)
        except BaseException:  # we are being ended ourselves
            _end(child)
            _kill_all(mark)
            raise
        took = time.monotonic() - began
        left = left_after(grace, lambda: marked(mark))
        _kill_all(mark)
        code = child.wait()
    return Result(code, log.read_bytes().decode(errors="replace"), took, timed_out, list(left.values()))
