"""`gridmpi probe` in the lab, by every kind of launcher: what it finds is what the lab was told; and a job whose link is
measured before it starts."""

import fnmatch
import json
import os
import re
import socket
import threading
import time
from pathlib import Path

from . import jobs, remote
from .build import build, command_of
from .place import LOGS, gridmpi
from .process import Result, run
from .programs import ALL
from .report import Tally
from .vendors import BY_TAG, Vendor

LINK, INTERFACE, PART = 160, 50, 0.05
# Layouts whose clusters are not all dialled, and what the way between carries from a to b and back: without relays one gateway sends it all.
PRIVATE = [("relays", remote.CLOSED, [remote.BANDWIDTH] * 2), ("one-way", remote.ONE_WAY, [remote.BANDWIDTH, remote.GATEWAY])]
# Vendors, delay (ms), nodes of each cluster: with three nodes the interfaces carry less than the link.
CASES = [("o5+do", 0, 8), ("m5+im", 10, 8), ("im+o5", 0, 4), ("do+m5", 10, 3)]


def _lab(path: Path, nodes: int, delay_ms: int) -> Path:
    clusters = [f'[[cluster]]\nname = "{name}"\nnodes = {nodes}\ninterface = "{INTERFACE} Mbit/s"\n' for name in "ab"]
    path.write_text("\n".join([*clusters, f'[[link]]\nbandwidth = "{LINK} Mbit/s"\ndelay = "{delay_ms} ms"\nbuffer = "64 KiB"\n']))
    return path


def _found(text: str) -> list[dict]:
    start = text.find("\n[\n") + 1 if "\n[\n" in text else text.find("[\n")
    return json.JSONDecoder().raw_decode(text[start:])[0]


def _wrong(result: Result, nodes: int, delay_ms: int) -> str | None:
    if result.code or result.timed_out or result.left:
        return f"exit code {result.code}, left {result.left}: {result.output.strip()[-300:]}"
    report = _found(result.output)[0]
    carried = min(LINK, nodes * INTERFACE)
    expected = [(report["together"], carried), (report["alone"], INTERFACE)]
    for transfers, truth in expected:
        for transfer in transfers:
            seen = transfer["bandwidth_bits_per_s"] / 1e6
            if abs(seen / truth - 1) > PART:
                return f"{seen:.1f} Mbit/s instead of {truth}"
    if report["is_links_own"] != (carried == LINK):
        return "interfaces and link are taken for each other"
    late = report["delay_us"] / 1000 - delay_ms
    return None if -0.01 <= late < 2 else f"the delay is {late} ms off"


def _job(path: Path, vendors: list[Vendor], nodes: int, more: str) -> Path:
    ring = next(program for program in ALL if program.name == "ring")
    commands = [command_of(ring, vendor) for vendor in vendors]
    jobs.in_lab(path, vendors, [nodes, nodes], commands, {})
    path.write_text(path.read_text() + more)
    return path


def _case(tally: Tally, tags: str, delay_ms: int, nodes: int) -> None:
    vendors = [BY_TAG[tag] for tag in tags.split("+")]
    name = f"{tags}-{delay_ms}-{nodes}"
    scratch = LOGS / "probe" / name
    scratch.parent.mkdir(parents=True, exist_ok=True)
    lab = _lab(scratch.with_suffix(".lab.toml"), nodes, delay_ms)
    job = _job(scratch.with_suffix(".toml"), vendors, nodes, '\n[[link]]\nbetween = ["a", "b"]\nbandwidth = "measure"\n')
    env = {key: value for vendor in vendors for key, value in vendor.env.items() if "_ROOT" in key}
    inside = [str(gridmpi()), "lab", "run", "--quiet", str(lab), "--", str(gridmpi())]
    log = scratch.with_suffix(".log")
    result = run([*inside, "probe", "--json", str(job)], log=log, seconds=90, env=env)
    _judge(tally, name, result, _wrong(result, nodes, delay_ms), log)
    log = scratch.with_suffix(".run.log")
    result = run([*inside, "run", str(job)], log=log, seconds=120, env=env)
    said = re.search(r"measured: a ↔ b: (at least )?[\d.]+ Mbit/s", result.output)
    good = result.code == 0 and not result.left and said and re.search(r"ok ring on \d+ ranks", result.output)
    _judge(tally, f"{name}-run", result, None if good else f"exit code {result.code}: {result.output.strip()[-300:]}", log)


def _by_hand(tally: Tally) -> None:
    """A job in which one cluster joins by hand, its link being measured first; and one that says --measure where nobody measures."""
    here, there = BY_TAG["dm"], BY_TAG["do"]
    if missing := here.missing() or there.missing():
        tally.skips("probe", "join", f"{missing} is not installed; run tools/setup")
        return
    ring = next(program for program in ALL if program.name == "ring")
    scratch = LOGS / "probe" / "join"
    job, token = scratch.with_suffix(".toml"), scratch.with_suffix(".token")
    jobs.job_file(job, [("a", here, 2, command_of(ring, here), {})])
    job.write_text(job.read_text() + '\n[[cluster]]\nname = "b"\nlauncher = "join"\n[[link]]\nbetween = ["a", "b"]\nbandwidth = "measure"\n')
    token.unlink(missing_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{probe.getsockname()[1]}"
    joined: list[Result] = []
    has_joined = threading.Event()

    def join(_mark: str) -> None:
        end = time.monotonic() + 20
        while not (token.exists() and token.read_text().endswith("\n")) and time.monotonic() < end:
            time.sleep(0.05)
        launcher = [there.launcher, "-n", "2", *there.launcher_args, *command_of(ring, there)]
        command = [str(gridmpi()), "join", "--measure", "--cluster", "b", "--token-file", str(token), at, "--", *launcher]
        joined.append(run(command, log=scratch.with_suffix(".join.log"), seconds=90, env=there.env))
        has_joined.set()

    log = scratch.with_suffix(".log")
    command = [str(gridmpi()), "run", "--listen", at, "--token-file", str(token), str(job)]
    result = run(command, log=log, seconds=100, env={key: value for key, value in here.env.items() if "_ROOT" in key}, during=join)
    has_joined.wait(30)
    wrong = None
    if result.code or result.left or not re.search(r"measured: a ↔ b: ", result.output) or "--measure" not in result.output:
        wrong = f"exit code {result.code}, left {result.left}: {result.output.strip()[-300:]}"
    elif not joined or joined[0].code or joined[0].left:
        wrong = f"join: {joined}"
    elif not re.search(r"ok ring on 4 ranks", result.output + joined[0].output):
        wrong = f"no ring: {result.output.strip()[-300:]}"
    _judge(tally, "join", result, wrong, log)


def _private(tally: Tally, name: str, layout: remote.Layout, carried: list[int]) -> None:
    """Clusters behind gateways, measured on the ways that a job would take: by circuits through relays, or from the one side that connects."""
    ring = next(program for program in ALL if program.name == "ring")
    vendors = [BY_TAG["do"], BY_TAG["do"]]
    env = remote.roots(vendors)
    with remote.Lab(LOGS / "probe" / name, layout) as lab:
        job = lab.scratch / "job.toml"
        job.write_text(layout.job([command_of(ring, vendor) for vendor in vendors], vendors, lab.token))
        log = job.with_suffix(".log")
        # Trunk connections between the relays are under way.
        words = " ".join(lab.on(remote.PUBLIC, ["probe", "--json", str(job)]))
        result = run(["sh", "-c", f"for i in 1 2 3 4 5 6; do {words} && exit; done; exit 1"], log=log, seconds=120, env=env)
        wrong = f"exit code {result.code}, left {result.left}: {result.output.strip()[-300:]}" if result.code or result.left else None
        if not wrong:
            report = _found(result.output[result.output.rfind("[\n  {") :])[0]
            seen = [transfer["bandwidth_bits_per_s"] / 1e6 for transfer in report["together"]]
            if report["between"] != ["a", "b"] or any(abs(rate / truth - 1) > PART for rate, truth in zip(seen, carried, strict=True)):
                wrong = f"{report['between']}: {seen} Mbit/s instead of {carried}"
        _judge(tally, name, result, wrong, log)
        log = job.with_suffix(".run.log")
        result = run(lab.on(remote.PUBLIC, ["run", "--measure", str(job)]), log=log, seconds=120, env=env)
        said = re.search(r"measured: a ↔ b: (at least )?[\d.]+ Mbit/s", result.output)
        good = result.code == 0 and not result.left and said and re.search(r"ok ring on \d+ ranks", result.output)
        _judge(tally, f"{name}-run", result, None if good else f"exit code {result.code}: {result.output.strip()[-300:]}", log)


def _judge(tally: Tally, name: str, result: Result, wrong: str | None, log: Path) -> None:
    if wrong:
        tally.fails("probe", name, result.seconds, wrong, os.path.relpath(log))
    else:
        tally.passes("probe", name, result.seconds)


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every case, or those whose names match."""
    build([next(program for program in ALL if program.name == "ring")], list(BY_TAG.values()))
    if not patterns or any(fnmatch.fnmatch("join", pattern) for pattern in patterns):
        _by_hand(tally)
    for name, layout, carried in PRIVATE:
        if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            _private(tally, name, layout, carried)
    for tags, delay_ms, nodes in CASES:
        if patterns and not any(fnmatch.fnmatch(f"{tags}-{delay_ms}-{nodes}", pattern) for pattern in patterns):
            continue
        if missing := next((BY_TAG[tag].missing() for tag in tags.split("+") if BY_TAG[tag].missing()), None):
            tally.skips("probe", tags, f"{missing} is not installed; run tools/setup")
        else:
            _case(tally, tags, delay_ms, nodes)
