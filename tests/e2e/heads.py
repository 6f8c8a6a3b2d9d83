"""A cluster behind a head node that a real sshd of this machine plays, on a port of its own, with keys of its own."""

import fnmatch
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import jobs
from .build import build, command_of
from .place import LOGS, OUT, gridmpi
from .process import free_ports, left_after, run
from .programs import ALL, Program
from .report import Tally
from .vendors import BY_TAG

SCRATCH = OUT / "tests" / "ssh"
SSHD = "/usr/sbin/sshd"
VENDOR = BY_TAG["dm"]


@dataclass(frozen=True)
class Case:
    """A job with a head node, and what must come of it."""

    name: str
    program: str
    code: int
    expect: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    #: As the client's settings know it.
    host: str = "far"
    #: More keys of the cluster.
    keys: str = ""
    #: What to do to the client, its sshd's sessions or `gridmpi run` when the far rank runs.
    strike: Callable[["Sshd", str], None] | None = None


def _children(pid: int, name: str) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid=,comm="], capture_output=True, text=True, timeout=10).stdout
    return [int(line.split()[0]) for line in found.splitlines() if line.split()[1] == name]


def _holding(word: str) -> list[int]:
    """Processes with this in their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def _run_of(mark: str) -> int:
    return next(pid for pid in _holding(f"{mark}.toml") if b"\0run\0" in Path(f"/proc/{pid}/cmdline").read_bytes())


def _kill_session(sshd: "Sshd", _: str) -> None:
    for pid in _children(sshd.process.pid, "sshd"):
        os.kill(pid, signal.SIGKILL)


def _kill_client(_: "Sshd", name: str) -> None:
    for pid in _children(_run_of(name), "ssh"):
        os.kill(pid, signal.SIGKILL)


def _kill_run(_: "Sshd", name: str) -> None:
    os.kill(_run_of(name), signal.SIGKILL)


_TRY = "`ssh -o BatchMode=yes {} true` must work here"
_ALONE = "the cluster is still connected and goes on"
_SHORT, _LONG = ("-n", "300", "-t", "20000"), ("-n", "300", "-t", "100000000")

CASES = [
    Case("ring", "ring", 0),
    Case("exit-code", "exitcode", 5, args=("-1", "5")),
    Case("wrong-host-key", "ring", 255, ("Host key verification failed", _TRY.format("stranger")), host="stranger"),
    Case("refused-key", "ring", 255, ("Permission denied", _TRY.format("refused")), host="refused"),
    Case("closed-port", "ring", 255, ("Connection refused", _TRY.format("closed")), host="closed"),
    Case("no-gridmpi", "ring", 127, ("`head_gridmpi`",), keys='head_gridmpi = "/nowhere/it\'s-not-here"\n'),
    Case("session-killed", "heat", 0, (_ALONE,), args=_SHORT, strike=_kill_session),
    Case("ssh-killed", "heat", 0, (_ALONE,), args=_SHORT, strike=_kill_client),
    Case("run-killed", "heat", -signal.SIGKILL, args=_LONG, strike=_kill_run),
]


class Sshd:
    """A real one, as long as it is entered. `path` leads to an ssh that knows it under several names."""

    def __enter__(self) -> "Sshd":
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        for key in ("host", "user", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", SCRATCH / key], check=True, timeout=20)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        port, closed = free_ports(2)
        self._write_settings(port, closed)
        with (SCRATCH / "sshd.log").open("wb") as log:
            words = [SSHD, "-D", "-e", "-f", SCRATCH / "sshd.conf"]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _answers(port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _write_settings(self, port: int, closed: int) -> None:
        (SCRATCH / "sshd.conf").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {SCRATCH}/host\nAuthorizedKeysFile {SCRATCH}/user.pub\nPidFile none\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        )
        for name, key in (("known", "host"), ("wrong", "other")):
            kind, text = (SCRATCH / f"{key}.pub").read_text().split()[:2]
            (SCRATCH / name).write_text("".join(f"[127.0.0.1]:{number} {kind} {text}\n" for number in (port, closed)))
        hosts = [("far", port, "user", "known"), ("stranger", port, "user", "wrong"), ("refused", port, "other", "known"),
                 ("closed", closed, "user", "known")]  # fmt: skip
        parts = [
            f"Host {name}\n  HostName 127.0.0.1\n  Port {at}\n  IdentityFile {SCRATCH}/{key}\n  UserKnownHostsFile {SCRATCH}/{known}\n"
            for name, at, key, known in hosts
        ]
        common = "Host *\n  IdentitiesOnly yes\n  GlobalKnownHostsFile none\n"
        (SCRATCH / "ssh.conf").write_text("".join([*parts, common]))
        # ssh finds its own settings by the user's entry in the password file, whatever HOME is.
        client = SCRATCH / "bin" / "ssh"
        client.parent.mkdir()
        client.write_text(f"#!/bin/sh\nexec {shutil.which('ssh')} -F {SCRATCH}/ssh.conf \"$@\"\n")
        client.chmod(0o755)
        self.path = f"{client.parent}:{os.environ['PATH']}"

    def __exit__(self, *_: object) -> None:
        _kill_session(self, "")
        self.process.terminate()
        self.process.wait(10)


def _answers(port: int) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as first:
                first.recv(1)
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _program(name: str) -> Program:
    return next(program for program in ALL if program.name == name)


def _job(case: Case) -> tuple[Path, str]:
    """Its file, and a word by which the far ranks are known among all processes."""
    program = command_of(_program(case.program), VENDOR)[0]
    far = SCRATCH / f"far-{case.name}"
    shutil.copy(program, far)
    text = '[job]\nlisten = "127.0.0.1:0"\nwait = 30\n'
    for name, own, keys in (("a", program, ""), ("b", str(far), f'head = "{case.host}"\n{case.keys}')):
        text += f'[[cluster]]\nname = "{name}"\nlauncher = "{VENDOR.launcher}"\nranks = 2\n{keys}'
        text += jobs.own_keys(VENDOR.launcher_args, [own, *case.args], VENDOR.env)
    path = SCRATCH / f"{case.name}.toml"
    path.write_text(text)
    return path, str(far)


def _strike(case: Case, sshd: Sshd, far: str) -> None:
    """When a rank runs there, somebody has joined from there."""
    end = time.monotonic() + 20
    while not any(Path(f"/proc/{pid}/cmdline").read_bytes().startswith(far.encode()) for pid in _holding(far)):
        if time.monotonic() > end:
            return
        time.sleep(0.02)
    if case.strike:
        case.strike(sshd, case.name)


def _one(case: Case, sshd: Sshd, tally: Tally) -> None:
    path, far = _job(case)
    log = LOGS / "ssh" / f"{case.name}.log"
    during = (lambda _: _strike(case, sshd, far)) if case.strike else None
    result = run([str(gridmpi()), "run", str(path)], log=log, seconds=40, env={"PATH": sshd.path}, during=during, grace=20)
    missing = [part for part in case.expect if part not in result.output]
    left = left_after(20, lambda: _holding(far))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if result.timed_out:
        why = "it hangs"
    elif result.code != case.code:
        why = f"exit code {result.code}, not {case.code}"
    elif missing:
        why = f"it does not say {missing[0]!r}"
    elif left or result.left:
        why = f"processes are left: {left or result.left}"
    else:
        return tally.passes("ssh", case.name, result.seconds)
    tally.fails("ssh", case.name, result.seconds, why, log)


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every case whose name fits, or all."""
    absent = VENDOR.missing() or next((tool for tool in (SSHD, "ssh", "ssh-keygen") if not shutil.which(tool)), None)
    if absent:
        return tally.skips("ssh", "*", f"{absent} is not installed; run tools/setup, or install openssh-server (whose own service is not needed)")
    build([_program(name) for name in ("ring", "exitcode", "heat")], [VENDOR])
    with Sshd() as sshd:
        for case in CASES:
            if not patterns or any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns):
                _one(case, sshd, tally)
