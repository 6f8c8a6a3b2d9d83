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
from .programs import ALL, Program
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
NODES = 2


def _lab(clusters: int) -> str:
    parts = []
    for name in "ab":
        parts.append(
            f'[[cluster]]\nname = "{name}"\nnodes = {NODES}\nprivate = true\ngateways = 2\ngateway_interface = "100 Mbit/s"\n'
            'network = "10.9.0.0/16"\nnat = true\nnat_timeout = "30 s"\nfirewall = "outbound"\n'
        )
    if clusters > 2:
        parts.append(f'[[cluster]]\nname = "c"\nnodes = {NODES}\n')
    parts.append('[[host]]\nname = "pub"\n')
    ends = ["a", "b", "c"][:clusters]
    parts += [f'[[link]]\nbetween = ["{end}", "pub"]\ndelay = "5 ms"\nbandwidth = "160 Mbit/s"\n' for end in ends]
    return "\n".join(parts)


def job(program: Program, vendors: list[Vendor], token: Path) -> str:
    parts = [f'[job]\nrelay_token = "{token}"\n']
    for index, vendor in enumerate(vendors):
        name, inside = "abc"[index], index < 2
        network = "10.9.0" if inside else "10.3.0"
        each = min(vendor.lab_ranks_per_node, NODES)
        hosts = [f"{network}.{node}" for node in range(1, NODES // each + 1)]
        arguments = [word.format(network=f"{network}.0/16") for word in vendor.lab_args]
        command = command_of(program, vendor)
        relays = [f"{name}-gw1:{PORT}", f"{name}-gw2:{PORT}"] if inside else [f"pub:{PORT}"]
        parts.append(
            f'[[cluster]]\nname = "{name}"\nlauncher = "{vendor.launcher}"\nranks = {NODES}\nhosts = {jobs.texts(hosts)}\n'
            f'ranks_per_host = {each}\nremote_shell = "lab-ssh"\nrelays = {jobs.texts(relays)}\n'
            + (f'head = "{name}-head"\ninterface = "eth0"\n' if inside else 'head = "c1"\ninterface = "eth1"\n')
            + jobs.own_keys(arguments, command, {**vendor.env, **dict(program.env), **vendor.lab_env})
        )
    return "\n".join(parts)


class Lab:
    """The lab, up as long as it is entered, with a relay on each gateway and on the public host."""

    def __init__(self, scratch: Path, clusters: int) -> None:
        self.scratch, self.clusters = scratch, clusters
        self.name = f"private-{os.getpid()}"
        self.token = scratch / "token"
        self.relays: list[subprocess.Popen] = []

    def __enter__(self) -> "Lab":
        self.scratch.mkdir(parents=True, exist_ok=True)
        (self.scratch / "lab.toml").write_text(_lab(self.clusters))
        make_secret(self.token)
        gateways = [f"{cluster}-gw{number}" for cluster in "ab" for number in (1, 2)]
        prints = {host: make_identity(self.scratch / host) for host in ["pub", *gateways]}
        up = [str(gridmpi()), "lab", "up", "--name", self.name, str(self.scratch / "lab.toml")]
        subprocess.run(up, check=True, capture_output=True, timeout=60)
        try:
            self._relay("pub", [word for host in gateways for word in ("--allow", prints[host])])
            for host in gateways:
                self._relay(host, ["--peer", f"pub:{PORT}={prints['pub']}"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def _relay(self, host: str, more: list[str]) -> None:
        words = ["relay", "--listen", f"0.0.0.0:{PORT}", "--token-file", str(self.token), "--identity", str(self.scratch / host), *more]
        with (self.scratch / f"{host}.log").open("wb") as log:
            self.relays.append(subprocess.Popen(self.on(host, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def on(self, host: str, words: list[str]) -> list[str]:
        return [str(gridmpi()), "lab", "exec", "--name", self.name, host, "--", str(gridmpi()), *words]

    def __exit__(self, *_: object) -> None:
        subprocess.run([str(gridmpi()), "lab", "down", "--name", self.name], capture_output=True, timeout=60)
        for relay in self.relays:
            relay.kill()
            relay.wait()


def _case(tally: Tally, tags: str, names: tuple[str, ...]) -> None:
    vendors = [BY_TAG[tag] for tag in tags.split("+")]
    programs = [next(program for program in ALL if program.label == name) for name in names]
    build(programs, vendors)
    env = {key: value for vendor in vendors for key, value in vendor.env.items() if "_ROOT" in key}
    with Lab(LOGS / "private" / tags, len(vendors)) as lab:
        for program in programs:
            path = lab.scratch / f"{program.name}.toml"
            path.write_text(job(program, vendors, lab.token))
            log = path.with_suffix(".log")
            result = run(lab.on("pub", ["run", str(path)]), log=log, seconds=program.seconds * 2, env=env)
            wrong = judge.problem(program, result, "lab")
            if wrong:
                tally.fails(f"private {tags}", program.label, result.seconds, wrong, os.path.relpath(log))
            else:
                tally.passes(f"private {tags}", program.label, result.seconds)


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every case, or those whose names match."""
    for tags, names in CASES:
        if patterns and not any(fnmatch.fnmatch(tags, pattern) for pattern in patterns):
            continue
        if missing := next((BY_TAG[tag].missing() for tag in tags.split("+") if BY_TAG[tag].missing()), None):
            tally.skips("private", tags, f"{missing} is not installed; run tools/setup")
        else:
            _case(tally, tags, names)
