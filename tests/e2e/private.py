"""Clusters that nobody can dial: private addresses, the same in both, behind gateways with NAT that let nothing in. Relays on the
gateways dial a public one; a third cluster, in one case, has public addresses and that public relay.

Each case is one lab in which several programs run one after another.
"""

import fnmatch
import os
import subprocess
from pathlib import Path

from . import jobs, judge
from .build import build, command_of
from .place import LOGS, gridmpi
from .process import run
from .programs import ALL, EXTRA, Program
from .relaying import make_identity, make_secret
from .report import Tally
from .vendors import BY_TAG, Vendor

PORT = 7118
#: Vendors of the clusters, and the programs. Cluster c, if there is one, is not private.
CASES = [
    ("do+do", ("ring", "storm", "usempif08", "arrays")),
    ("m5+o5", ("collectives", "storm", "objects")),
    ("dm+do+m5", ("ring", "storm", "collectives")),
]
#: By its name only: five minutes of silence behind a NAT that forgets after half a minute.
IDLE = ("idle", "do+do", ("quiet",))
NODES = 2
GATEWAYS = [f"{cluster}-gw{number}" for cluster in "ab" for number in (1, 2)]


def hidden(name: str) -> str:
    """A cluster that nobody can dial, in a lab file."""
    return (
        f'[[cluster]]\nname = "{name}"\nnodes = {NODES}\nprivate = true\ngateways = 2\ngateway_interface = "100 Mbit/s"\n'
        'network = "10.9.0.0/16"\nnat = true\nnat_timeout = "30 s"\nfirewall = "outbound"\n'
    )


def _lab(clusters: int) -> str:
    parts = [hidden("a"), hidden("b")]
    if clusters > 2:
        parts.append(f'[[cluster]]\nname = "c"\nnodes = {NODES}\n')
    parts.append('[[host]]\nname = "pub"\n')
    ends = ["a", "b", "c"][:clusters]
    parts += [f'[[link]]\nbetween = ["{end}", "pub"]\ndelay = "5 ms"\nbandwidth = "160 Mbit/s"\n' for end in ends]
    return "\n".join(parts)


def job(commands: list[list[str]], vendors: list[Vendor], token: Path, env: dict[str, str]) -> str:
    """A job file: one command for each cluster."""
    parts = [f'[job]\nrelay_token = "{token}"\n']
    for index, vendor in enumerate(vendors):
        name, inside = "abc"[index], index < 2
        network = "10.9.0" if inside else "10.3.0"
        each = min(vendor.lab_ranks_per_node, NODES)
        hosts = [f"{network}.{node}" for node in range(1, NODES // each + 1)]
        arguments = [word.format(network=f"{network}.0/16") for word in vendor.lab_args]
        relays = [f"{name}-gw1:{PORT}", f"{name}-gw2:{PORT}"] if inside else [f"pub:{PORT}"]
        parts.append(
            f'[[cluster]]\nname = "{name}"\nlauncher = "{vendor.launcher}"\nranks = {NODES}\nhosts = {jobs.texts(hosts)}\n'
            f'ranks_per_host = {each}\nremote_shell = "lab-ssh"\nrelays = {jobs.texts(relays)}\n'
            + (f'head = "{name}-head"\ninterface = "eth0"\n' if inside else 'head = "c1"\ninterface = "eth1"\n')
            + jobs.own_keys(arguments, commands[index], {**vendor.env, **env, **vendor.lab_env})
        )
    return "\n".join(parts)


class Lab:
    """A lab, up as long as it is entered: a relay on each gateway of the clusters a and b, and on each public host."""

    def __init__(self, scratch: Path, text: str, publics: tuple[str, ...]) -> None:
        self.scratch, self.text, self.publics = scratch, text, publics
        self.name = f"private-{os.getpid()}"
        self.token = scratch / "token"
        self.relays: list[subprocess.Popen] = []

    def __enter__(self) -> "Lab":
        self.scratch.mkdir(parents=True, exist_ok=True)
        for old in self.scratch.glob("*.log"):
            old.unlink()
        (self.scratch / "lab.toml").write_text(self.text)
        make_secret(self.token)
        prints = {host: make_identity(self.scratch / host) for host in (*self.publics, *(GATEWAYS if self.publics else ()))}
        up = [str(gridmpi()), "lab", "up", "--name", self.name, str(self.scratch / "lab.toml")]
        subprocess.run(up, check=True, capture_output=True, timeout=60)
        try:
            for public in self.publics:
                self.relay(public, [word for host in GATEWAYS for word in ("--allow", prints[host])])
            for host in GATEWAYS if self.publics else ():
                self.relay(host, [word for public in self.publics for word in ("--peer", f"{public}:{PORT}={prints[public]}")])
        except BaseException:
            self.__exit__()
            raise
        return self

    def relay(self, host: str, more: list[str]) -> None:
        """Starts the relay of a host."""
        self.relays.append(self.start_relay(host, more))

    def start_relay(self, host: str, more: list[str]) -> subprocess.Popen:
        """What it says is added to its log."""
        words = ["relay", "--listen", f"0.0.0.0:{PORT}", "--token-file", str(self.token), "--identity", str(self.scratch / host), *more]
        with (self.scratch / f"{host}.log").open("ab") as log:
            return subprocess.Popen(self.on(host, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def on(self, host: str, words: list[str]) -> list[str]:
        return [str(gridmpi()), "lab", "exec", "--name", self.name, host, "--", str(gridmpi()), *words]

    def __exit__(self, *_: object) -> None:
        subprocess.run([str(gridmpi()), "lab", "down", "--name", self.name], capture_output=True, timeout=60)
        for relay in self.relays:
            relay.kill()
            relay.wait()


def _case(tally: Tally, tags: str, names: tuple[str, ...]) -> None:
    vendors = [BY_TAG[tag] for tag in tags.split("+")]
    programs = [next(program for program in [*ALL, *EXTRA] if program.label == name) for name in names]
    build(programs, vendors)
    env = {key: value for vendor in vendors for key, value in vendor.env.items() if "_ROOT" in key}
    with Lab(LOGS / "private" / tags, _lab(len(vendors)), ("pub",)) as lab:
        for program in programs:
            path = lab.scratch / f"{program.name}.toml"
            commands = [command_of(program, vendor) for vendor in vendors]
            path.write_text(job(commands, vendors, lab.token, dict(program.env)))
            log = path.with_suffix(".log")
            result = run(lab.on("pub", ["run", str(path)]), log=log, seconds=program.seconds * 2, env=env)
            wrong = judge.problem(program, result, "lab")
            if wrong:
                tally.fails(f"private {tags}", program.label, result.seconds, wrong, os.path.relpath(log))
            else:
                tally.passes(f"private {tags}", program.label, result.seconds)


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every case, or those whose names match."""
    cases = [(tags, tags, names) for tags, names in CASES] + ([IDLE] if patterns else [])
    for name, tags, names in cases:
        if patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            continue
        if missing := next((BY_TAG[tag].missing() for tag in tags.split("+") if BY_TAG[tag].missing()), None):
            tally.skips("private", tags, f"{missing} is not installed; run tools/setup")
        else:
            _case(tally, tags, names)
