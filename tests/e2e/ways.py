"""The ways a program is run: alone, preloaded in one cluster, across two or three, and in the lab."""

import os
from dataclasses import dataclass
from pathlib import Path

from . import jobs, judge
from .build import command_of
from .place import LOGS, gridmpi
from .process import run
from .programs import ALL, EXTRA, Program
from .relaying import Relays
from .report import Tally
from .vendors import Vendor


@dataclass(frozen=True)
class Way:
    """Vendors of the clusters, and ranks in each."""

    kind: str
    vendors: tuple[Vendor, ...]
    ranks: tuple[int, ...]
    delay_ms: int = 0
    #: Through which the clusters meet.
    relays: Relays | None = None

    @property
    def name(self) -> str:
        pair = "+".join(vendor.tag for vendor in self.vendors)
        return f"lab {self.delay_ms} ms {pair}" if self.kind == "lab" else f"{self.kind} {pair}"

    @property
    def vendor_of_ranks(self) -> list[Vendor]:
        """By rank of MPI_COMM_WORLD, which has the clusters one after another."""
        return [vendor for vendor, count in zip(self.vendors, self.ranks, strict=True) for _ in range(count)]

    def command(self, program: Program, scratch: Path) -> list[str]:
        vendors = list(self.vendors)
        if self.kind == "alone":
            return jobs.alone(program, vendors[0], self.ranks[0])
        job = scratch.with_suffix(".toml")
        if self.kind == "lab":
            commands = [command_of(program, vendor) for vendor in vendors]
            command = lab_command(scratch, vendors, list(self.ranks), commands, self.delay_ms, dict(program.env), program.loss)
        else:
            command = [str(gridmpi()), "run", *program.options, str(jobs.across(job, program, vendors, list(self.ranks)))]
        if program.bandwidth:
            jobs.add_links(job, len(vendors), program.bandwidth)
        if program.interface:
            jobs.add_interfaces(job, program.interface)
        if program.uplinks:
            jobs.add_uplinks(job, program.uplinks)
        jobs.add_settings(job, program.matb, program.connections, program.pacing)
        if self.relays:
            self.relays.add_to(job)
        return command

    def env(self, program: Program) -> dict[str, str]:
        own = jobs.variables(program, self.vendors[0]) if self.kind == "alone" else {}
        # Launchers refuse to run as root unless told; ranks get theirs through the job file.
        allowed = {key: value for vendor in self.vendors for key, value in vendor.env.items() if "_ROOT" in key}
        return {**own, **allowed, **dict(program.run_env)}


def lab_command(
    scratch: Path,
    vendors: list[Vendor],
    ranks: list[int],
    commands: list[list[str]],
    delay_ms: int,
    env: dict[str, str],
    loss: str = "",
) -> list[str]:
    """A job in a lab of its own, both described beside `scratch`."""
    lab = scratch.with_suffix(".lab.toml")
    clusters = [
        f'[[cluster]]\nname = "{chr(ord("a") + i)}"\nnodes = {len(jobs.lab_nodes(vendor, count))}\n'
        for i, (vendor, count) in enumerate(zip(vendors, ranks, strict=True))
    ]
    link = f'[[link]]\ndelay = "{delay_ms} ms"\nbandwidth = "160 Mbit/s"\n' if delay_ms else "[[link]]\n"
    # What loses packets is emulated, also without a delay.
    link += f'emulate = true\nloss = "{loss}"\n' if loss else ""
    lab.parent.mkdir(parents=True, exist_ok=True)
    lab.write_text("\n".join([*clusters, link]))
    job = jobs.in_lab(scratch.with_suffix(".toml"), vendors, ranks, commands, env)
    return [str(gridmpi()), "lab", "run", "--quiet", str(lab), "--", str(gridmpi()), "run", str(job)]


def makes_sense(program: Program, kind: str) -> bool:
    """Whether the program makes sense in ways of this kind."""
    return ("two" if kind == "relay" else kind) in program.ways


def unnamed(full: bool) -> list[Program]:
    """The programs that run where nobody has named any."""
    return [*ALL, *EXTRA] if full else ALL


def is_due(program: Program, kind: str) -> bool:
    """Whether the program runs in ways of this kind though nobody has named it."""
    if program in EXTRA:
        return kind == "two"
    return program.chosen or kind not in ("three", "relay", "lab")


def _free_memory() -> int:
    """GB that programs can have."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024 // 10**9


def run_one(program: Program, way: Way, tally: Tally) -> None:
    """Runs and judges one program."""
    if not all(program.runs_under(vendor) for vendor in way.vendors):
        return
    if program.memory and program.memory > (free := _free_memory()):
        tally.skips(way.name, program.label, f"it takes {program.memory} GB of memory, and {free} are free")
        return
    scratch = LOGS / way.name.replace(" ", "-") / program.label.replace("/", "-")
    scratch.parent.mkdir(parents=True, exist_ok=True)
    log = scratch.with_suffix(".log")
    result = run(
        way.command(program, scratch),
        log=log,
        seconds=program.seconds * (3 if way.kind == "lab" else 1),
        env=way.env(program),
        stdin=program.stdin,
    )
    wrong = judge.problem(program, result, way.kind, way.ranks)
    if wrong is None:
        tally.passes(way.name, program.label, result.seconds)
    elif judge.is_known(program, result, way.kind, way.vendor_of_ranks):
        tally.knows(way.name, program.label, result.seconds)
    else:
        tally.fails(way.name, program.label, result.seconds, wrong, os.path.relpath(log))
