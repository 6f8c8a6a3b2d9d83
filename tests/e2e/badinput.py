"""Bad input and bad luck: each must end within seconds, with a message that names the thing, a code that is not 0, and
nothing left running."""

import fnmatch
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import jobs
from .build import build, command_of
from .noise import NOISE_SECONDS, Noise
from .place import LOGS, OUT, gridmpi
from .process import Result, run
from .programs import ALL, Program
from .report import Tally
from .vendors import BY_TAG, Vendor

SCRATCH = OUT / "tests" / "bad"


@dataclass(frozen=True)
class Bad:
    """A command that must fail, unless `code` is 0."""

    name: str
    command: Callable[[], list[str]]
    expect: tuple[str, ...]
    code: int | None = None  # None: any but 0
    seconds: float = 20
    env: tuple[tuple[str, str], ...] = ()
    noise: Noise | None = None


def _program(name: str) -> Program:
    return next(program for program in ALL if program.name == name)


def _pair(tags: str) -> list[Vendor]:
    return [BY_TAG[tag] for tag in tags.split("+")]


def _file(name: str, text: str) -> list[str]:
    path = SCRATCH / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [str(gridmpi()), "run", str(path)]


def _ring(tag: str) -> str:
    return command_of(_program("ring"), BY_TAG[tag])[0]


def _run(*words: str) -> list[str]:
    return [str(gridmpi()), "run", *words]


def _static_program() -> str:
    source, binary = SCRATCH / "static.c", SCRATCH / "static"
    SCRATCH.mkdir(parents=True, exist_ok=True)
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", binary, source], check=True, timeout=60)
    return str(binary)


def _never_joins() -> list[str]:
    return _run("--wait", "3", "--listen", "127.0.0.1:0", "--cluster", "a=mpiexec.mpich:2", "--cluster", "b=join", "--", _ring("dm"))


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _join(address: str, cluster: str = "b") -> list[str]:
    return [str(gridmpi()), "join", "--cluster", cluster, address, "--", "mpiexec.mpich", "-n", "2", _ring("dm")]


def _refusals() -> list[Bad]:
    """What is refused before anything is started."""
    a = '[[cluster]]\nname = "a"\n'
    mpich, openmpi = "a=mpiexec.mpich:2", "b=mpiexec.openmpi:2"
    return [
        Bad("typo", lambda: _file("typo", f'{a}lancher = "mpiexec.mpich"\n'), (r"typo\.toml:3", "lancher", "launcher"), 2),
        Bad("unknown-cluster", lambda: _file("link", f'{a}[[link]]\nbetween = ["a", "nowhere"]\n'), ("nowhere", "a"), 2),
        Bad("no-such-file", lambda: _run("/nowhere/job.toml"), ("/nowhere/job.toml",), 2),
        Bad("missing-launcher", lambda: _run("--cluster", "a=mpiexec.nowhere:2", "--", _ring("dm")), ("mpiexec.nowhere",), 2),
        Bad("missing-program", lambda: _run("--cluster", mpich, "--", "./nowhere"), (r"\./nowhere",), 2),
        Bad("not-mpi", lambda: _run("--cluster", mpich, "--", "/bin/true"), ("/bin/true",)),
        Bad("static", lambda: _run("--cluster", mpich, "--", _static_program()), ("static", "linked"), 2),
        Bad("mismatch", lambda: _run("--cluster", mpich, "--cluster", openmpi, "--", _ring("dm")), ("ring", "Open MPI", "MPICH"), 2),
        Bad("no-library", lambda: _run("--cluster", mpich, "--", _ring("dm")), ("libgridmpi-mpich.so", "/nowhere"), 2, env=(("GRIDMPI_LIBDIR", "/nowhere"),)),
        Bad("pacing-word", lambda: _run("--pacing", "warp", "--cluster", mpich, "--", _ring("dm")), ("--pacing", "'warp'", "off, static, auto"), 2),
        Bad("pacing-variable", lambda: _run("--cluster", mpich, "--", _ring("dm")), ("GRIDMPI_PACING", '"warp"', "off, static, auto"), 2,
            env=(("GRIDMPI_PACING", "warp"),)),
        Bad("pacing-key", lambda: _file("pacing", f'{a}launcher = "mpiexec.mpich"\n[job]\npacing = "warp"\n'), (r"pacing\.toml:5", "`pacing`", "off, static, auto"), 2),
        Bad("never-joins", _never_joins, ("`b`",)),
        Bad("probe-nobody", lambda: [str(gridmpi()), "probe", f"127.0.0.1:{_closed_port()}"], ("127.0.0.1", "refused"), 1, env=(("GRIDMPI_TOKEN", "0" * 32),)),
        Bad("probe-no-token", lambda: [str(gridmpi()), "probe", "127.0.0.1:9"], ("GRIDMPI_TOKEN",), 2),
        Bad("probe-unknown-host", lambda: _measured("nosuch-host.invalid"), ("nosuch-host|`b`",), 1),
        Bad("probe-dead-launcher", lambda: _measured("x", "missing-shell"), ("`b`", "missing-shell"), 1),
        Bad("unreachable", lambda: _join(f"127.0.0.1:{_closed_port()}"), ("127.0.0.1",), seconds=40, env=(("GRIDMPI_TOKEN", "0" * 32),)),
    ]


def _measured(host: str, shell: str = "") -> list[str]:
    """`gridmpi probe` of a job one of whose hosts is wrong."""
    line = f'remote_shell = "{shell}"\n' if shell else ""
    text = f'[[cluster]]\nname = "a"\nlauncher = "mpiexec.mpich"\n[[cluster]]\nname = "b"\nlauncher = "mpiexec.mpich"\nhosts = ["{host}"]\n{line}[job]\nwait = 5\n'
    run_it = _file("probe-host", text)
    return [run_it[0], "probe", run_it[-1]]


def _dies(when: str, cluster: str, tags: str) -> Bad:
    """One rank of a cluster is killed, or leaves, at some moment; all others wait for it."""
    vendor = _pair(tags)["ab".index(cluster)]
    # Intel's mpiexec waits for ever when a rank dies before all have met, Open MPI's once in a while; then it is we who stop waiting.
    waits = when in ("before", "in") and vendor.tag != "dm"

    def command() -> list[str]:
        path = SCRATCH / f"dies-{when}-{cluster}-{tags}.toml"
        base = _dies_program()
        program = Program(base.name, base.source, (when, "1"), env=(("DIES_IN", cluster),))
        job = str(jobs.across(path, program, _pair(tags), [2, 2]))
        return _run("--wait", "8", job) if waits else _run(job)

    # While it lasts, what is missing is said as well; this is the line of the end.
    end = f"cluster `{cluster}` (ended with exit code|aborted with code|ended without calling MPI_Finalize)"
    return Bad(f"dies-{when}-{cluster}-{tags}", command, (f"{end}|gave up after .*cluster `{cluster}`" if waits else end,), seconds=30)


def _dies_program() -> Program:
    ring = _program("ring")
    return Program("dies", ring.source.with_name("dies.c"))


def deaths() -> list[Bad]:
    """A rank of either cluster, at every moment."""
    return [_dies(when, cluster, tags)
            for tags in ("dm+do", "do+im")
            for when in ("before", "in", "after", "finalize")
            for cluster in ("a", "b")]


def _noise() -> Bad:
    """Port scanners and noise on every listening port of a running job: it goes on and ends well."""

    def command() -> list[str]:
        large = _program("large")
        # Open MPI's own TCP transport would listen in the ranks as well.
        program = Program(large.name, large.source, ("--for", str(NOISE_SECONDS + 4)), env=(("OMPI_MCA_btl", "vader,self"),))
        return _run(str(jobs.across(SCRATCH / "noise.toml", program, _pair("dm+do"), [2, 2])))

    # The ports of `gridmpi run` and of four ranks.
    noise = Noise(("gridmpi", "large"), 5)
    return Bad("noise", command, ("ok large on 4 ranks",), code=0, seconds=120, noise=noise)


class Visitors:
    """Who comes to a job that waits for two clusters: somebody with the token of another job, then the two."""

    def __init__(self, address: str, token: Path) -> None:
        self.address, self.token = address, token
        #: What did not come about.
        self.wrong: str | None = "the job was over before all had come"
        self.gone = threading.Event()

    def come(self, _mark: str) -> None:
        """One after another."""
        self.wrong = self._intrude() or self._join()
        self.gone.set()

    def _intrude(self) -> str | None:
        end = time.monotonic() + 10
        while not (self.token.exists() and self.token.read_text().endswith("\n")):
            if time.monotonic() > end:
                return "there is no token"
            time.sleep(0.05)
        foreign = "".join("0" if c != "0" else "1" for c in self.token.read_text().strip())
        came = self._one("b", {"GRIDMPI_TOKEN": foreign}, "intruder")
        if came.code == 0 or not re.search("key|token|another job", came.output):
            return f"the intruder got code {came.code}: {came.output.strip()[-200:]}"
        return None

    def _join(self) -> str | None:
        with ThreadPoolExecutor() as pool:
            came = list(pool.map(lambda name: self._one(name, {"GRIDMPI_TOKEN": self.token.read_text().strip()}, name), "ab"))
        if any(one.code != 0 or one.left for one in came) or not any("ok ring on 4 ranks" in one.output for one in came):
            return f"those with the right token: {', '.join(f'code {one.code}, left {one.left}: {one.output.strip()[-200:]}' for one in came)}"
        return None

    def _one(self, cluster: str, env: dict[str, str], name: str) -> Result:
        log = LOGS / "bad" / f"wrong-key-{name}.log"
        return run(_join(self.address, cluster), log=log, seconds=30, env=env)


def _wrong_key(tally: Tally) -> None:
    """A cluster that joins with a token of another job is told so, and the job goes on waiting for the right ones."""
    address, token = f"127.0.0.1:{_closed_port()}", SCRATCH / "token"
    token.unlink(missing_ok=True)
    host = _run("--wait", "60", "--listen", address, "--token-file", str(token), "--cluster", "a=join", "--cluster", "b=join")
    visitors = Visitors(address, token)
    log = LOGS / "bad" / "wrong-key.log"
    hosted = run(host, log=log, seconds=60, during=visitors.come)
    visitors.gone.wait(10)
    wrong = visitors.wrong
    if hosted.code or hosted.left:
        wrong = f"the job ended with code {hosted.code}, left {hosted.left}; {wrong}"
    if wrong:
        tally.fails("bad", "wrong-key", hosted.seconds, wrong, os.path.relpath(log))
    else:
        tally.passes("bad", "wrong-key", hosted.seconds)


def problem(bad: Bad, result: Result) -> str | None:
    """What is wrong with how it ended; None if nothing is."""
    if result.timed_out:
        return f"not over within {bad.seconds:.0f} s"
    if result.left:
        return f"left running: {'; '.join(result.left[:3])}"
    if bad.code is None and result.code == 0:
        return "exit code 0"
    if bad.code is not None and result.code != bad.code:
        return f"exit code {result.code}, not {bad.code}: {result.output.strip()[-300:]}"
    for pattern in bad.expect:
        if not re.search(pattern, result.output):
            return f"its message lacks {pattern!r}: {result.output.strip()[-300:]}"
    if "panicked" in result.output:
        return "it panicked"
    return bad.noise.wrong if bad.noise else None


def _one(bad: Bad, tally: Tally) -> None:
    log = LOGS / "bad" / f"{bad.name}.log"
    allow_root = {key: value for vendor in BY_TAG.values() for key, value in vendor.env.items() if "_ROOT" in key and "I_MPI" not in key}
    during = bad.noise.make if bad.noise else None
    result = run(bad.command(), log=log, seconds=bad.seconds, env={**allow_root, **dict(bad.env)}, during=during)
    if wrong := problem(bad, result):
        tally.fails("bad", bad.name, result.seconds, wrong, os.path.relpath(log))
    else:
        tally.passes("bad", bad.name, result.seconds)


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every case, or those whose names match."""
    if missing := next((v.missing() for v in BY_TAG.values() if v.missing()), None):
        tally.skips("bad", "*", f"{missing} is not installed; run tools/setup")
        return
    SCRATCH.mkdir(parents=True, exist_ok=True)
    vendors = [BY_TAG[tag] for tag in ("dm", "do", "im")]
    build([_program("ring"), _program("large"), _dies_program()], vendors)
    wanted = lambda name: not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)  # noqa: E731
    for bad in [*_refusals(), *deaths(), _noise()]:
        if wanted(bad.name):
            _one(bad, tally)
    if wanted("wrong-key"):
        _wrong_key(tally)
