"""`gridmpi doctor` in the lab: each fault that is made there is named, with the remedy; what is well is not complained of; and a
job is not started on what would not work."""

import fnmatch
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import jobs, remote
from .build import build, command_of
from .place import LOGS, gridmpi
from .process import Result, run
from .programs import ALL
from .report import Tally
from .vendors import BY_TAG, Vendor

LAB = """
[[cluster]]
name = "a"
nodes = 3
[[cluster]]
name = "b"
nodes = 2
[[link]]
bandwidth = "160 Mbit/s"
delay = "10 ms"
"""
LINK = '\n[[link]]\nbetween = ["a", "b"]\nbandwidth = "{} Mbit/s"\ndelay = "10 ms"\n'
NODES = {"a": 3, "b": 2}

TABLE = "nft add table inet f; nft add chain inet f in { type filter hook input priority 0 \\\\; }; nft add rule inet f in iifname eth1"
FIRST = "tcp flags \\\\& \\\\(syn \\\\| ack\\\\) == syn"


@dataclass(frozen=True)
class Case:
    """A fault and what is to be said of it: severity, code, parts of the remedy."""

    name: str
    # What is run on each node of a cluster.
    on: str
    fault: str
    said: tuple[str, str, tuple[str, ...]] | None
    # Between which nodes, as the finding's first place has it.
    place: str = ""
    # Without it every address is told.
    interface: bool = True
    options: tuple[str, ...] = ()
    # What the job file says of the link, and of itself.
    bandwidth: int = 160
    job: str = ""


CASES = [
    Case("well", "a", "true", None),
    Case(
        "one-way", "b", f"{TABLE} {FIRST} drop",
        ("error", "silent", ("on the nodes of `b`", "ip saddr 10.100.0.0/16", "accept")), "a/a1 → b/b1",
    ),
    Case(
        "closed", "a", f"{TABLE} {FIRST} reject with tcp reset",
        ("error", "refused", ("on the nodes of `a`", "ip saddr 10.100.0.0/16", "accept")), "b/b1 → a/a1",
    ),
    Case(
        "prohibited", "b", f"{TABLE} {FIRST} reject with icmpx type admin-prohibited",
        ("error", "refused", ("on the nodes of `b`", "ip saddr 10.100.0.0/16", "accept")), "a/a1 → b/b1",
    ),
    Case(
        "mtu", "b", f"{TABLE} ip length gt 1400 drop",
        ("error", "mtu", ("ip link set dev eth1 mtu 1400", "net.ipv4.tcp_mtu_probing=1")), "a/a1 → b/b1",
    ),
    Case(
        "buffers", "a", "sysctl -qw net.ipv4.tcp_wmem=\\\"4096 16384 262144\\\"",
        ("warning", "buffers", ('on the nodes of `a`: sysctl -w net.ipv4.tcp_wmem="4096 16384 1048576"',)), "a/a1 → b/b1",
    ),
    Case(
        "interface", "a", "ip route add 10.2.0.0/16 dev eth1",
        ("warning", "slow-first", ('interface = "eth1" of cluster `b`',)), "a/a1 → b/b1", interface=False,
    ),
    Case(
        "docker", "b", "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up",
        ("warning", "same-address", ('interface = "eth0" of cluster `b`',)), "b/b1", interface=False,
    ),
    Case(
        "no-route", "a", "ip route add unreachable 10.100.2.0/24",
        ("error", "no-route", ("on a/a1: ip route add 10.100.0.0/16 via GATEWAY",)), "a/a1 → b/b1",
    ),
    Case(
        "scaling", "b", "sysctl -qw net.ipv4.tcp_window_scaling=0",
        ("warning", "tcp-off", ("sysctl -w net.ipv4.tcp_window_scaling=1",)), "b/b1",
    ),
    Case(
        "bandwidth", "a", "true", ("warning", "bandwidth", ('[[link]]', 'between = ["a", "b"]', 'bandwidth = "15')), "a → b",
        options=("--bandwidth",), bandwidth=320,
    ),
    Case(
        "absent", "b", "nft add table inet f; nft add chain inet f out { type filter hook output priority 0 \\\\; }; "
        "nft add rule inet f out tcp dport 7007 drop",
        ("error", "absent", ('listen = ":7007"', "iptables -I INPUT -p tcp --dport 7007 -j ACCEPT")), "b", job='\n[job]\nlisten = ":7007"\n',
    ),
]  # fmt: skip


def _job(path: Path, vendors: list[Vendor], case: Case) -> Path:
    ring = next(program for program in ALL if program.name == "ring")
    counts = [count * vendor.lab_ranks_per_node for count, vendor in zip(NODES.values(), vendors, strict=True)]
    jobs.in_lab(path, vendors, counts, [command_of(ring, vendor) for vendor in vendors], {})
    text = path.read_text()
    path.write_text((text if case.interface else text.replace('interface = "eth1"\n', "")) + LINK.format(case.bandwidth) + case.job)
    return path


def _break(case: Case) -> str:
    cluster = ord(case.on) - ord("a") + 1
    hosts = [f"10.{cluster}.0.{number}" for number in range(1, NODES[case.on] + 1)]
    return "; ".join(f'lab-ssh {host} "{case.fault}" || exit 99' for host in hosts)


def _inside(case: Case, lab: Path, command: str) -> list[str]:
    return [str(gridmpi()), "lab", "run", "--quiet", str(lab), "--", "sh", "-c", f"{_break(case)}; {command}"]


def _findings(text: str) -> list[dict]:
    start = text.index("{\n")
    return json.JSONDecoder().raw_decode(text[start:])[0]["findings"]


def _wrong(case: Case, result: Result) -> str | None:
    shown = result.output.strip()[-400:]
    if result.timed_out or result.left:
        return f"timed out or left {result.left}: {shown}"
    findings = _findings(result.output)
    bad = [f for f in findings if f["severity"] in ("error", "warning")]
    if case.said is None:
        return None if result.code == 0 and not bad else f"exit code {result.code}, {bad}"
    severity, code, remedy = case.said
    if result.code != (1 if severity == "error" else 0):
        return f"exit code {result.code}: {shown}"
    found = next((f for f in findings if (f["severity"], f["code"]) == (severity, code)), None)
    if found is None:
        return f"no {severity} {code} among {[(f['severity'], f['code']) for f in findings]}"
    said = "\n".join([found["remedy"], *found.get("lines", [])])
    if missing := [part for part in remedy if part not in said]:
        return f"the remedy does not say {missing}: {said}"
    first = found["places"][0]
    place = f"{first['node']['cluster']}/{first['node']['host']}" if "node" in first else first["cluster"]
    place += f" → {first['hop']}" if "hop" in first else ""
    if place != case.place:
        return f"it is said of {place}, not of {case.place}"
    # Nothing else may be taken for an error.
    others = [f["code"] for f in findings if f["severity"] == "error" and f["code"] != code]
    return f"also {others}" if others else None


def _judge(tally: Tally, name: str, result: Result, wrong: str | None, log: Path) -> None:
    if wrong:
        tally.fails("doctor", name, result.seconds, wrong, os.path.relpath(log))
    else:
        tally.passes("doctor", name, result.seconds)


def _case(tally: Tally, case: Case, vendors: list[Vendor]) -> None:
    scratch = LOGS / "doctor" / case.name
    scratch.parent.mkdir(parents=True, exist_ok=True)
    lab = scratch.with_suffix(".lab.toml")
    lab.write_text(LAB)
    job = _job(scratch.with_suffix(".toml"), vendors, case)
    env = remote.roots(vendors)
    options = " ".join(case.options)
    log = scratch.with_suffix(".log")
    result = run(_inside(case, lab, f"{gridmpi()} doctor --json {options} {job}"), log=log, seconds=120, env=env)
    try:
        wrong = _wrong(case, result)
    except (KeyError, ValueError) as error:
        wrong = f"{error!r}: {result.output.strip()[-400:]}"
    _judge(tally, case.name, result, wrong, log)
    if case.name in ("well", "one-way", "buffers"):
        _started(tally, case, lab, job, env)


def _started(tally: Tally, case: Case, lab: Path, job: Path, env: dict[str, str]) -> None:
    """A job runs on what is well or only slow, and is not started on what would not work."""
    log = (LOGS / "doctor" / case.name).with_suffix(".run.log")
    result = run(_inside(case, lab, f"{gridmpi()} run --doctor {job}"), log=log, seconds=120, env=env)
    ran = bool(re.search(r"ok ring on \d+ ranks", result.output))
    is_error = case.said is not None and case.said[0] == "error"
    told = case.said is None or f"[{case.said[1]}]" in result.output
    good = ran != is_error and told and result.code == (2 if is_error else 0) and not result.left
    _judge(tally, f"{case.name}-run", result, None if good else f"exit code {result.code}: {result.output.strip()[-300:]}", log)


def _relays(tally: Tally, vendors: list[Vendor]) -> None:
    """Two private clusters of one address range behind NAT, joined by relays on their gateways and a public one: all is well; then
    the public relay is gone, and the relays know no way any more."""
    ring = next(program for program in ALL if program.name == "ring")
    env = remote.roots(vendors)
    with remote.Lab(LOGS / "doctor" / "relays", remote.TWO) as lab:
        job = lab.scratch / "job.toml"
        job.write_text(remote.TWO.job([command_of(ring, vendor) for vendor in vendors], vendors, lab.token))
        log = job.with_suffix(".log")
        # Trunk connections between the relays are under way.
        words = _words(lab, job, "--bandwidth")
        result = run(["sh", "-c", f"for i in 1 2 3 4 5 6; do {words} && exit; done; exit 1"], log=log, seconds=120, env=env)
        output = result.output[result.output.rfind('{\n  "findings"') :]
        bad = [f for f in _findings(output) if f["severity"] in ("error", "warning")] if output else ["nothing"]
        circuits = json.loads(output)["facts"]["circuits"] if output else []
        good = result.code == 0 and not bad and len(circuits) == 16 and all(c["trip_us"] >= 20_000 for c in circuits)
        wrong = None if good else f"exit code {result.code}, {len(circuits)} circuits, {bad}"
        measured = json.loads(output)["facts"]["links"][0]["measured"] if output else None
        if not measured or not 0.8e6 * remote.BANDWIDTH <= measured["bandwidth"] <= 1e6 * remote.BANDWIDTH:
            wrong = wrong or f"measured {measured} through relays of {remote.BANDWIDTH} Mbit/s"
        _judge(tally, "relays", result, wrong, log)
        words = [str(gridmpi()), "lab", "fault", "--name", lab.name, "kill", "pub", "relay --listen"]
        subprocess.run(words, capture_output=True, timeout=20, check=True)
        log = job.with_suffix(".killed.log")
        result = run(["sh", "-c", _words(lab, job)], log=log, seconds=120, env=env)
        errors = [f for f in _findings(result.output) if f["severity"] == "error"]
        good = result.code == 1 and errors and all(f["code"] == "circuit" and "as a peer of" in f["remedy"] for f in errors)
        _judge(tally, "relays-killed", result, None if good else f"exit code {result.code}, {errors}", log)


def _closed(tally: Tally, vendors: list[Vendor]) -> None:
    """Two private clusters that reach the machine of the command through the relays of [job] only."""
    ring = next(program for program in ALL if program.name == "ring")
    with remote.Lab(LOGS / "doctor" / "job-relays", remote.CLOSED) as lab:
        job = lab.scratch / "job.toml"
        job.write_text(remote.CLOSED.job([command_of(ring, vendor) for vendor in vendors], vendors, lab.token))
        log = job.with_suffix(".log")
        # Trunk connections between the relays are under way.
        command = f"for i in 1 2 3 4 5 6; do {_words(lab, job)} && exit; done; exit 1"
        result = run(["sh", "-c", command], log=log, seconds=120, env=remote.roots(vendors))
        output = result.output[result.output.rfind('{\n  "findings"') :]
        bad = [f for f in _findings(output) if f["severity"] in ("error", "warning")] if output else ["nothing"]
        count = len(json.loads(output)["facts"]["circuits"]) if output else 0
        good = result.code == 0 and not bad and count == 16
        _judge(tally, "job-relays", result, None if good else f"exit code {result.code}, {count} circuits, {bad}", log)


def _words(lab: remote.Lab, job: Path, *options: str) -> str:
    return " ".join(lab.on(remote.PUBLIC, ["doctor", "--json", *options, str(job)]))


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every case, or those whose names match."""
    vendors = [BY_TAG["m5"], BY_TAG["do"]]
    if missing := next((vendor.missing() for vendor in vendors if vendor.missing()), None):
        tally.skips("doctor", "*", f"{missing} is not installed; run tools/setup")
        return
    build([next(program for program in ALL if program.name == "ring")], vendors)
    for case in CASES:
        if not patterns or any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns):
            _case(tally, case, vendors)
    if not patterns or any(fnmatch.fnmatch("relays", pattern) for pattern in patterns):
        _relays(tally, [BY_TAG["do"], BY_TAG["do"]])
    if not patterns or any(fnmatch.fnmatch("job-relays", pattern) for pattern in patterns):
        _closed(tally, [BY_TAG["do"], BY_TAG["do"]])
