"""A relay that comes while a job runs, and that the job file does not name: the cluster's relay is told of it by new settings, the processes use
it beside the old one, and go on through it alone when the old one is killed.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import judge, remote
from .build import build, command_of
from .place import LOGS, gridmpi
from .process import run
from .programs import ALL, Program
from .report import Tally
from .vendors import BY_TAG

NAME = "newrelay"
TAGS = ("dm", "do")
#: The relays that the job names, those that come later, and how processes reach the latter (docs/lab.md).
FIRST, LATER = ("a-gw1", "b-gw1"), ("a-gw2", "b-gw2")
BESIDE = f"10.9.1.2:{remote.PORT}"
METRICS = "127.0.0.1:9070"
#: Seconds that the program goes on, and that anything may take which must happen meanwhile.
LASTS, PATIENCE = 20, 20
#: Many short messages, which go through the relays that are left; and long ones, which go through all at once.
PROGRAMS = {"storm": ("11", "10", str(LASTS)), "large": ("--for", str(LASTS))}
SPREAD = "large"
#: Bytes that a late relay must carry alone before all is believed.
ALONE = 1_000_000
SITES = tuple(remote.Site(site, (relay,), private=True) for site, relay in zip("ab", FIRST, strict=True))
LAYOUT = remote.Layout(SITES, tuple((gateway, remote.PUBLIC) for gateway in (*FIRST, *LATER)))

_READ = f"import urllib.request as r; print(r.urlopen('http://{METRICS}/metrics', timeout=5).read().decode())"


class Lab(remote.Lab):
    """Relays on gateways have files of settings; the late ones are not started."""

    def relay(self, host: str, words: list[str]) -> None:
        if host == remote.PUBLIC:
            super().relay(host, words)
            return
        address, _, fingerprint = words[words.index("--peer") + 1].partition("=")
        self._settings(host).write_text(
            f'[relay]\nlisten = ["0.0.0.0:{remote.PORT}"]\nidentity = "{self.scratch / host}"\nmetrics = "{METRICS}"\n\n'
            f'[[token]]\nfile = "{self.token}"\n\n[[peer]]\nname = "{remote.PUBLIC}"\naddress = "{address}"\nfingerprint = "{fingerprint}"\n'
        )
        if host in FIRST:
            self.begin(host)

    def _settings(self, host: str) -> Path:
        return self.scratch / f"{host}.toml"

    def begin(self, host: str) -> None:
        """Starts the relay of a gateway."""
        self.relays.append(self.start_relay(host, ["relay", "--config", str(self._settings(host))]))

    def tell(self, host: str) -> None:
        """Names the late relay to the relay of a gateway, which reads its settings again."""
        path = self._settings(host)
        path.write_text(path.read_text().replace("[relay]\n", f'[relay]\nbeside = ["{BESIDE}"]\n'))
        parent = self._parent(host).pid
        relay = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        os.kill(int(relay[0]), signal.SIGHUP)

    def _parent(self, host: str) -> subprocess.Popen:
        """`gridmpi lab exec`, which has started the relay of a gateway and ends with it."""
        return next(relay for relay in self.relays if host in relay.args)

    def kill(self, host: str) -> None:
        """SIGKILL to the relay of a gateway."""
        words = ["lab", "fault", "--name", self.name, "kill", host, "relay --config"]
        subprocess.run([str(gridmpi()), *words], check=True, capture_output=True, timeout=20)
        self._parent(host).wait(20)

    def count(self, host: str, what: str) -> int:
        """What a relay has counted; 0 while it does not answer."""
        command = self.exec(host, [sys.executable, "-c", _READ])
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20).stdout
        found = re.search(rf"^gridmpi_relay_{what}(?:_total)? (\d+)", said, re.MULTILINE)
        return int(found.group(1)) if found else 0


class Change:
    """What is done to the relays while the program runs."""

    def __init__(self, lab: Lab, log: Path, program: str) -> None:
        self.lab, self.log, self.program = lab, log, program
        #: What did not come about: at first, anything.
        self.wrong: str | None = "the relays were never changed"

    def make(self, _mark: str) -> None:
        """All of it, one after another, as soon as the program says that it begins."""
        try:
            self.wrong = self._make()
        except (OSError, subprocess.SubprocessError, LookupError) as error:
            self.wrong = repr(error)

    def _make(self) -> str | None:
        lab = self.lab
        if not self._until(lambda: self.log.exists() and b" begins\n" in self.log.read_bytes()):
            return "the program does not begin"
        for host in LATER:
            lab.begin(host)
        for host in FIRST:
            lab.tell(host)
        if not self._until(lambda: all(lab.count(host, "registered") == remote.NODES for host in LATER)):
            return "not all processes are at the new relays"
        if self.program == SPREAD and not self._until(lambda: any(lab.count(host, "opened") > 0 for host in LATER)):
            return "no circuit leads through a new relay though the old ones stand"
        for host in FIRST:
            lab.kill(host)
        before = [lab.count(host, "in_bytes") for host in LATER]
        for host, bytes_before in zip(LATER, before, strict=True):
            if not self._until(lambda host=host, least=bytes_before + ALONE: lab.count(host, "in_bytes") > least):
                return f"{host} does not carry on alone"
        return "the program was over before" if b"\nok " in self.log.read_bytes() else None

    def _until(self, test: Callable[[], bool]) -> bool:
        last = time.monotonic() + PATIENCE
        while not test():
            if time.monotonic() > last:
                return False
            time.sleep(0.1)
        return True


def _program(name: str) -> Program:
    known = next(program for program in ALL if program.label == name)
    return Program(known.name, known.source, args=PROGRAMS[name], seconds=LASTS * 4)


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Each program in a lab of its own."""
    if patterns and NAME not in patterns:
        return
    vendors = [BY_TAG[tag] for tag in TAGS]
    way = f"private {'+'.join(TAGS)}/{NAME}"
    if missing := next((vendor.missing() for vendor in vendors if vendor.missing()), None):
        tally.skips(way, "*", f"{missing} is not installed; run tools/setup")
        return
    programs = [_program(name) for name in PROGRAMS]
    build(programs, vendors)
    for program in programs:
        with Lab(LOGS / "private" / NAME / program.name, LAYOUT) as lab:
            job = lab.scratch / "job.toml"
            job.write_text(lab.layout.job([command_of(program, vendor) for vendor in vendors], vendors, lab.token))
            log = job.with_suffix(".log")
            change = Change(lab, log, program.name)
            result = run(lab.on(remote.PUBLIC, ["run", str(job)]), log=log, seconds=program.seconds, env=remote.roots(vendors), during=change.make)
        if wrong := judge.problem(program, result, "lab") or change.wrong:
            tally.fails(way, program.label, result.seconds, wrong, os.path.relpath(log))
        else:
            tally.passes(way, program.label, result.seconds)
