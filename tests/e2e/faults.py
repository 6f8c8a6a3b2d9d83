"""Jobs in labs where everything goes wrong again and again, by seed: links are cut or lose packets, machines fall silent, connections are
reset, addresses change, relays are killed and come again. Each job must end as if nothing had been.

Three sorts of lab: `relays`, private clusters that meet only through relays on their gateways and two public hosts; `closed`, the same where
`gridmpi run` is reached only through relays as well; and `direct`, clusters whose processes connect to each other.
"""

import fnmatch
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from . import judge, place, remote
from .build import build, command_of
from .place import LOGS, gridmpi
from .process import Result, run
from .programs import ALL, Program
from .report import Tally
from .vendors import BY_TAG, Vendor

PUBLICS = ("pub1", "pub2")
GATEWAYS = (*remote.gateways("a"), *remote.gateways("b"))
#: Where `gridmpi run` is, by sort of lab. Faults meet it like all others.
HOMES = {"relays": "home", "closed": "home", "direct": "a1"}
HOME = HOMES["relays"]
LINKS = tuple(f"{end}-{host}" for end in "ab" for host in (*PUBLICS, HOME))
#: What relays are found by.
PATTERN = "relay --listen"
#: How long what lasts does so at most, seconds: longer than it takes to give up a silent relay.
LASTS = 2.5
#: Relays that come when the job is under way, and when, seconds.
LATE, LATE_BY = ("b-gw2",), 8
#: The most that a relay is away when it was killed, seconds.
AWAY = 0.5
IMB = place.VENDORS / "impi" / "bin" / "IMB-MPI1"


@dataclass(frozen=True)
class Case:
    """A job under faults."""

    lab: str
    vendors: str
    program: str
    seed: int
    #: How long the program goes on.
    seconds: int
    #: From one fault to the next on the average.
    every: float = 0.4

    @property
    def name(self) -> str:
        return f"faults {self.lab} {self.vendors}"

    @property
    def label(self) -> str:
        return f"{self.program} seed {self.seed}"


QUICK = [Case("relays", "dm+do", "storm", 1, 20), Case("relays", "do+im", "mpi1", 2, 20), Case("direct", "do+dm", "storm", 3, 15, 0.8), Case("closed", "dm+do", "mpi1", 4, 20)]
#: What long runs take by turns, each with a seed of its own.
TURNS = [
    ("relays", "dm+do", "storm"),
    ("relays", "im+do", "mpi1"),
    ("direct", "do+dm", "mpi1"),
    ("relays", "m5+o5", "storm"),
    ("relays", "im+im", "IMB-MPI1"),
    ("direct", "im+o5", "storm"),
    ("closed", "do+do", "mpi1"),
    ("direct", "im+m5", "IMB-MPI1"),
]


@dataclass(frozen=True)
class Layout(remote.Layout):
    """Where clusters meet at two public hosts, or directly."""

    seed: int = 0

    def lab(self) -> str:
        parts = [f"seed = {self.seed}\n", *(self.cluster(site) for site in self.sites)]
        paths = [(end, host) for end in "ab" for host in (*PUBLICS, HOME)] if self.dials else [("a", "b")]
        if self.dials:
            parts += [f'[[host]]\nname = "{host}"\n' for host in (*PUBLICS, HOME)]
        parts += [f'[[link]]\nbetween = ["{one}", "{other}"]\ndelay = "5 ms"\nbandwidth = "160 Mbit/s"\n' for one, other in paths]
        return "".join(parts)


def _layout(kind: str, seed: int) -> Layout:
    if kind == "direct":
        return Layout((remote.Site("a", ()), remote.Site("b", ())), (), seed=seed)
    dials = tuple((near, far) for near in GATEWAYS for far in PUBLICS)
    meeting = PUBLICS if kind == "closed" else ()
    return Layout((remote.own_relays("a"), remote.own_relays("b")), dials, nat=kind != "closed", meeting=meeting, seed=seed)


class Lab(remote.Lab):
    """Relays that are killed are started again."""

    def __init__(self, case: Case, scratch: Path) -> None:
        super().__init__(scratch, _layout(case.lab, case.seed))
        self.seed = case.seed
        self.over = threading.Event()
        self.keepers: list[threading.Thread] = []

    def relay(self, host: str, words: list[str]) -> None:
        keeper = threading.Thread(target=self._keep, args=(host, words), daemon=True)
        self.keepers.append(keeper)
        keeper.start()

    def _keep(self, host: str, words: list[str]) -> None:
        pauses = random.Random(f"{self.seed} {host}")
        if host in LATE:
            self.over.wait(LATE_BY)
        while not self.over.is_set():
            self.start_relay(host, words).wait()
            self.over.wait(pauses.uniform(0, AWAY))

    def __exit__(self, *_: object) -> None:
        self.over.set()
        super().__exit__()  # ends everything that runs in the lab
        for keeper in self.keepers:
            keeper.join()


@dataclass(frozen=True)
class Sort:
    """Faults that are drawn together."""

    kinds: str
    machines: tuple[str, ...]
    links: tuple[str, ...]
    #: How many times as long as the case says from one to the next.
    slower: float = 1


#: Who is dialled cannot move: of two processes that know each other's addresses one, and `gridmpi run`.
BEHIND_GATEWAYS = (
    Sort("cut,silence,reset,loss,kill", (*PUBLICS, *GATEWAYS, HOME), LINKS),
    Sort("forget,renumber", GATEWAYS, LINKS, 4),
)
SORTS = {
    "relays": BEHIND_GATEWAYS,
    "closed": BEHIND_GATEWAYS,
    "direct": (Sort("cut,silence,reset,loss", ("a1", "a2", "b1", "b2"), ("a-b",)), Sort("renumber", ("a2",), ("a-b",), 8)),
}


class Faults:
    """What goes wrong in a lab, from when the program begins to its end."""

    def __init__(self, case: Case, lab: Lab, log: Path) -> None:
        self.case, self.lab, self.log = case, lab, log
        self.running: list[subprocess.Popen] = []

    def begin(self, _mark: str) -> None:
        """Waits until the program says that it begins."""
        while not self.lab.over.wait(0.05):
            said = self.log.read_bytes() if self.log.exists() else b""
            if b" begins\n" in said or b"# Benchmarking" in said:
                self.running = [self._start(number, sort) for number, sort in enumerate(SORTS[self.case.lab])]
                return

    def _start(self, number: int, sort: Sort) -> subprocess.Popen:
        words = ["lab", "faults", "--name", self.lab.name, "--seed", str(self.case.seed), "--kinds", sort.kinds, "--pattern", PATTERN]
        words += ["--every", f"{self.case.every * sort.slower} s", "--lasts", f"{LASTS} s"]
        words += ["--on", ",".join(sort.machines), "--links", ",".join(sort.links)]
        with self._said(number).open("wb") as said:
            return subprocess.Popen([str(gridmpi()), *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def _said(self, number: int) -> Path:
        return self.lab.scratch / f"faults-{number}.log"

    def end(self) -> Counter:
        """How many there were of each kind."""
        counts: Counter = Counter()
        for number, one in enumerate(self.running):
            one.send_signal(signal.SIGINT)
            one.wait(20)
            text = self._said(number).read_text()
            if one.returncode != 0:
                raise RuntimeError(f"faults came to an end of their own: {text.splitlines()[-1]}")
            counts.update(re.findall(r"^ *[0-9.]+ s  (?!restore)(\w+) ", text, re.MULTILINE))
        return counts


def _program(case: Case) -> Program:
    limit = case.seconds * 4 + 120
    if case.program == "IMB-MPI1":
        return Program("IMB-MPI1", IMB, seconds=limit)
    known = next(program for program in ALL if program.label == case.program)
    rounds = ("10",) if case.program == "storm" else ()
    return Program(known.name, known.source, args=(str(case.seed), *rounds, str(case.seconds)), seconds=limit)


def _job_file(case: Case, lab: Lab, program: Program, vendors: list[Vendor]) -> Path:
    path = lab.scratch / "job.toml"
    if case.program == "IMB-MPI1":
        # It reckons from a trial how often a message goes in a time, which says nothing where faults come and go. So many lengths and
        # benchmarks, so often each, take about the time that is wanted; without relays there is no other way around a fault, and each takes longer.
        often = max(case.seconds // 60, 1)
        lengths = "13:15" if case.lab == "direct" else "4:15"
        imb = [str(IMB), "-npmin", "4", "-map", "2x2", "-msglog", lengths, "-time", "60", "-iter", str(often), "-iter_policy", "off"]
        commands = [imb for _ in vendors]
        env = {"LD_LIBRARY_PATH": f"{place.VENDORS / 'impi' / 'lib'}:{place.VENDORS / 'mpich5' / 'lib'}"}
    else:
        commands, env = [command_of(program, vendor) for vendor in vendors], {}
    variables = [{**vendor.env, **env} for vendor in vendors]
    path.write_text(lab.layout.job(commands, vendors, lab.token, variables))
    return path


def _problem(case: Case, program: Program, result: Result, count: int) -> str | None:
    if case.program == "IMB-MPI1":
        if result.timed_out:
            return f"not done within {program.seconds} s"
        if result.code != 0 or "# All processes entering MPI_Finalize" not in result.output:
            return f"exit code {result.code}, or no end of its own"
    elif wrong := judge.problem(program, result, "lab"):
        return wrong
    return None if count > 2 else f"it was over after {count} faults, which proves nothing"


def run_case(tally: Tally, case: Case) -> Counter:
    """One job under faults; returns how many there were of each kind."""
    vendors = [BY_TAG[tag] for tag in case.vendors.split("+")]
    program = _program(case)
    scratch = LOGS / "faults" / f"{case.lab}-{case.vendors}-{case.program}-{case.seed}"
    with Lab(case, scratch) as lab:
        log = scratch / "job.log"
        faults = Faults(case, lab, log)
        path = _job_file(case, lab, program, vendors)
        result = run(lab.on(HOMES[case.lab], ["run", str(path)]), log=log, seconds=program.seconds, env=remote.roots(vendors), during=faults.begin)
        lab.over.set()
        counts = faults.end()
    count = counts.total()
    label = f"{case.label}, {count} faults"
    if wrong := _problem(case, program, result, count):
        tally.fails(case.name, label, result.seconds, wrong, os.path.relpath(log))
    else:
        tally.passes(case.name, label, result.seconds)
    return counts


def _missing(case: Case) -> str | None:
    needed = case.vendors.split("+") + (["im"] if case.program == "IMB-MPI1" else [])
    return next((missing for tag in needed if (missing := BY_TAG[tag].missing())), None)


def _prepare(cases: list[Case], tally: Tally) -> list[Case]:
    """Builds what they need; those that can be run."""
    usable = []
    for case in cases:
        if missing := _missing(case):
            tally.skips(case.name, case.label, f"{missing} is not installed; run tools/setup")
        else:
            usable.append(case)
            if case.program != "IMB-MPI1":
                build([_program(case)], [BY_TAG[tag] for tag in case.vendors.split("+")])
    return usable


def run_all(tally: Tally, patterns: list[str]) -> None:
    """The short selection."""
    cases = [case for case in QUICK if not patterns or any(fnmatch.fnmatch(f"faults-{case.seed}", pattern) for pattern in patterns)]
    for case in _prepare(cases, tally):
        run_case(tally, case)


def run_many(tally: Tally, least: int, seed: int, seconds: int = 60) -> None:
    """Jobs by turns, from this seed on, until so many faults have been."""
    cases = [Case(*turn, 0, seconds) for turn in TURNS]
    usable = _prepare(cases, tally)
    counts, began = Counter(), time.monotonic()
    while usable and counts.total() < least:
        turn = usable[seed % len(usable)]
        counts += run_case(tally, Case(turn.lab, turn.vendors, turn.program, seed, seconds))
        seed += 1
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    print(f"{counts.total()} faults while jobs ran, in {time.monotonic() - began:.0f} s: {kinds}")
