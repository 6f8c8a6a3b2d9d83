"""Clusters that nobody can dial: private addresses, the same in all of them, behind gateways with NAT that let nothing in. Relays on the
gateways dial public ones; other clusters have public addresses.

Each case is one lab in which several programs run one after another, a whole job each.
"""

import fnmatch
import os
from dataclasses import dataclass

from . import imb, judge, remote
from .build import build, command_of
from .place import LOGS
from .process import Result, run
from .programs import ALL
from .report import Tally
from .vendors import BY_TAG, Vendor


@dataclass(frozen=True)
class Case:
    """The clusters' vendors, where they are, and what runs on them."""

    tags: str
    layout: remote.Layout
    programs: tuple[str, ...] = ()
    imb: bool = False
    #: Told from other cases of the same vendors by this.
    kind: str = ""
    #: No job comes about, and this is said.
    refused: str = ""

    @property
    def name(self) -> str:
        return f"{self.tags}{'/' + self.kind if self.kind else ''}"


CASES = [
    Case("do+do", remote.TWO, ("ring", "storm", "usempif08", "arrays")),
    Case("m5+o5", remote.TWO, ("collectives", "storm", "objects")),
    Case("dm+do+m5", remote.THREE, ("ring", "storm", "collectives")),
    Case("im+dm", remote.TWO, imb=True, kind="imb"),
    Case("m5+im", remote.TWO, imb=True, kind="imb"),
    Case("dm+m5+im", remote.MIXED, imb=True, kind="mixed-imb"),
    Case("do+dm+do", remote.MIXED, ("ring", "storm", "collectives", "usempif08", "arrays"), kind="mixed"),
    Case("m5+o5+do", remote.MIXED, ("storm", "objects"), kind="mixed"),
    Case("dm+do", remote.ONE_WAY, ("ring", "storm", "collectives", "usempif08", "arrays"), kind="one-way"),
    Case("do+m5", remote.CLOSED, ("ring", "storm"), kind="closed"),
    Case("do+do", remote.UNSAID, ("ring",), kind="unsaid", refused='`dial` in [[link]]'),
]
#: Longest that it may take to say that a process cannot be reached, seconds: one tries for 20.
REFUSAL = 45


def _imb(tally: Tally, lab: remote.Lab, way: str, vendors: list[Vendor]) -> None:
    """A few of Intel's benchmarks, in one job."""
    if not imb.PROGRAM.exists():
        tally.skips(way, "IMB-MPI1", f"there is no {imb.PROGRAM}; run tools/setup")
        return
    run_imb(tally, lab, way, vendors, imb.SOME, imb.arguments(imb.SOME[0], len(vendors), imb.FEW), seconds=240)


def run_imb(
    tally: Tally, lab: remote.Lab, way: str, vendors: list[Vendor], benchmarks: list[str], arguments: list[str], *, seconds: float
) -> None:
    """These of Intel's benchmarks, in one job; each vendor with its own program."""
    label = benchmarks[0] if len(benchmarks) == 1 else f"{len(benchmarks)} of IMB-MPI1"
    path = lab.scratch / f"IMB-{benchmarks[0] if len(benchmarks) == 1 else 'some'}.toml"
    commands = [[str(imb.program(vendor)), *benchmarks, *arguments] for vendor in vendors]
    path.write_text(lab.layout.job(commands, vendors, lab.token, [imb.variables(vendor) for vendor in vendors]))
    log = path.with_suffix(".log")
    result = run(lab.on(remote.PUBLIC, ["run", str(path)]), log=log, seconds=seconds, env=remote.roots(vendors))
    if wrong := imb.problem(benchmarks, result, seconds):
        tally.fails(way, label, result.seconds, wrong, os.path.relpath(log))
    else:
        tally.passes(way, label, result.seconds)


def _refusal(case: Case, result: Result) -> str | None:
    """A job that cannot work ends soon, with the reason and the remedy."""
    if result.timed_out or result.left or result.seconds > REFUSAL:
        return f"it took {result.seconds:.0f} s, and left {result.left}"
    if result.code == 0 or case.refused not in result.output:
        return f"exit code {result.code}, and nothing of {case.refused!r}: {result.output.strip()[-300:]}"
    return None


def _case(tally: Tally, case: Case) -> None:
    vendors = [BY_TAG[tag] for tag in case.tags.split("+")]
    programs = [next(program for program in ALL if program.label == name) for name in case.programs]
    build(programs, vendors)
    way = f"private {case.name}"
    with remote.Lab(LOGS / "private" / case.name, case.layout) as lab:
        for program in programs:
            path = lab.scratch / f"{program.name}.toml"
            variables = [{**vendor.env, **dict(program.env)} for vendor in vendors]
            path.write_text(case.layout.job([command_of(program, vendor) for vendor in vendors], vendors, lab.token, variables))
            log = path.with_suffix(".log")
            result = run(lab.on(remote.PUBLIC, ["run", str(path)]), log=log, seconds=program.seconds * 2, env=remote.roots(vendors))
            if wrong := _refusal(case, result) if case.refused else judge.problem(program, result, "lab"):
                tally.fails(way, program.label, result.seconds, wrong, os.path.relpath(log))
            else:
                tally.passes(way, program.label, result.seconds)
        if case.imb:
            _imb(tally, lab, way, vendors)


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every case, or those whose names match."""
    for case in CASES:
        if patterns and not any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns):
            continue
        if missing := next((BY_TAG[tag].missing() for tag in case.tags.split("+") if BY_TAG[tag].missing()), None):
            tally.skips("private", case.name, f"{missing} is not installed; run tools/setup")
        else:
            _case(tally, case)
