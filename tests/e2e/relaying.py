"""Relays on this machine, for jobs whose clusters meet only through them; and jobs whose relays are killed while they run.

Cluster a has the relays a1 and a2, cluster b b1 and b2. a2 dials b2; a1 and b1 both dial a third one, as two sites do that can only
dial out.
"""

import fnmatch
import os
import random
import secrets
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import jobs, judge
from .build import build
from .place import LOGS, gridmpi
from .process import free_ports, run
from .programs import ALL, Program
from .report import Tally
from .vendors import BY_TAG

#: Each relay and those it dials.
RELAYS = {"public": [], "a1": ["public"], "b1": ["public"], "b2": [], "a2": ["b2"]}
#: Vendors of the runs under faults, seed, and seconds between faults on the average.
FAULTS = [("dm+do", 1, 0.3), ("im+dm", 2, 0.15), ("do+do", 3, 0.5)]
FULL_FAULTS = [*FAULTS, *((pair, seed, 0.2) for seed, pair in enumerate(("m5+o5", "dm+dm", "o5+m5", "do+im", "dm+do", "m5+m5"), start=4))]


def make_secret(path: Path) -> Path:
    """A token of relays, for the owner's eyes only."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    return path


def make_identity(directory: Path) -> str:
    """A certificate for a relay; returns the fingerprint by which others know it."""
    shutil.rmtree(directory, ignore_errors=True)
    words = ["--directory", str(directory)]
    subprocess.run([str(gridmpi()), "relay", "init", *words], check=True, capture_output=True, timeout=20)
    said = subprocess.run([str(gridmpi()), "relay", "fingerprint", *words], check=True, capture_output=True, text=True, timeout=20)
    return said.stdout.strip()


@dataclass
class Relays:
    """All of them, as long as it is entered."""

    place: Path
    ports: dict[str, int] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen] = field(default_factory=dict)

    def __enter__(self) -> "Relays":
        self.place.mkdir(parents=True, exist_ok=True)
        self.ports = dict(zip(RELAYS, free_ports(len(RELAYS)), strict=True))
        make_secret(self.token)
        for name in RELAYS:
            self.fingerprints[name] = make_identity(self.place / name)
        for name in RELAYS:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.kill(name)

    @property
    def token(self) -> Path:
        return self.place / "token"

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def start(self, name: str) -> None:
        peers = [word for peer in RELAYS[name] for word in ("--peer", f"{self.address(peer)}={self.fingerprints[peer]}")]
        dialled_by = [other for other, peers in RELAYS.items() if name in peers]
        allowed = [word for other in dialled_by for word in ("--allow", self.fingerprints[other])]
        words = [str(gridmpi()), "relay", "--listen", self.address(name), "--token-file", str(self.token)]
        words += ["--identity", str(self.place / name), *peers, *allowed]
        with (self.place / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """SIGKILL: it says goodbye to nobody."""
        relay = self.running.pop(name)
        relay.kill()
        relay.wait()

    def add_to(self, job: Path) -> Path:
        """Lets the clusters a and b of a job file meet through them only."""
        text = job.read_text()
        for cluster in "ab":
            names = ", ".join(f'"{self.address(name)}"' for name in RELAYS if name.startswith(cluster))
            head = f'[[cluster]]\nname = "{cluster}"\n'
            assert head in text, job
            text = text.replace(head, f"{head}relays = [{names}]\n")
        own = f'relays = ["{self.address("public")}"]\nrelay_token = "{self.token}"\n'
        text = text.replace("[job]\n", f"[job]\n{own}") if "[job]\n" in text else f"[job]\n{own}\n{text}"
        job.write_text(text)
        return job


class Faults(threading.Thread):
    """Kills relays at random and starts them again, never both ways at once for long."""

    def __init__(self, relays: Relays, seed: int, every: float) -> None:
        super().__init__(daemon=True)
        self.relays, self.every, self.random = relays, every, random.Random(seed)
        self.over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self.over.wait(self.every * self.random.uniform(0.5, 1.5)):
            name = self.random.choice(sorted(RELAYS))
            self.relays.kill(name)
            time.sleep(self.random.uniform(0, 0.2))  # how long it is away is part of the fault
            self.relays.start(name)
            self.count += 1


def _fault_case(tally: Tally, tags: str, seed: int, every: float) -> int:
    """One job under faults; returns how many there were."""
    vendors = [BY_TAG[tag] for tag in tags.split("+")]
    name = f"faults {tags} seed {seed}"
    scratch = LOGS / "relay" / name.replace(" ", "-")
    storm = Program("storm", next(p for p in ALL if p.name == "storm").source, args=(str(seed), "500"), seconds=120)
    env = {key: value for vendor in vendors for key, value in vendor.env.items() if "_ROOT" in key}
    with Relays(scratch) as relays:
        job = relays.add_to(jobs.across(scratch.with_suffix(".toml"), storm, vendors, [2, 2]))
        faults = Faults(relays, seed, every)
        faults.start()
        log = scratch.with_suffix(".log")
        result = run([str(gridmpi()), "run", str(job)], log=log, seconds=storm.seconds, env=env)
        faults.over.set()
        faults.join()
    wrong = judge.problem(storm, result, "two")
    if wrong is None and faults.count < 2:
        wrong = f"it was over after {faults.count} faults, which proves nothing"
    label = f"storm, {faults.count} relays killed"
    if wrong:
        tally.fails(name, label, result.seconds, wrong, os.path.relpath(log))
    else:
        tally.passes(name, label, result.seconds)
    return faults.count


def run_many(tally: Tally, least: int, seed: int) -> None:
    """Jobs under faults, by turns over all vendors, from this seed on until so many faults have been."""
    build([p for p in ALL if p.name == "storm"], list(BY_TAG.values()))
    pairs = [tags for tags in dict.fromkeys(case[0] for case in FULL_FAULTS) if not any(BY_TAG[tag].missing() for tag in tags.split("+"))]
    count = 0
    while count < least:
        count += _fault_case(tally, pairs[seed % len(pairs)], seed, 0.2)
        seed += 1
    print(f"{count} relays killed while jobs ran")


def run_faults(tally: Tally, patterns: list[str], full: bool) -> None:
    """Random traffic with checksums while relays die, by seed."""
    build([p for p in ALL if p.name == "storm"], list(BY_TAG.values()))
    for tags, seed, every in FULL_FAULTS if full else FAULTS:
        if patterns and not any(fnmatch.fnmatch(f"faults-{seed}", pattern) for pattern in patterns):
            continue
        if missing := next((BY_TAG[tag].missing() for tag in tags.split("+") if BY_TAG[tag].missing()), None):
            tally.skips("relay", tags, f"{missing} is not installed; run tools/setup")
        else:
            _fault_case(tally, tags, seed, every)
