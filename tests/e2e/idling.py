"""Long silence: a job computes, and says nothing, for longer than NATs and firewalls remember a connection.

Cluster a is private and its processes are at a public relay, so each of their connections passes NAT; so does rank 0's to `gridmpi run`. The
relays of b, private too, dial that public one through a firewall that forgets as well. c is public and without relays: a's processes connect to
its own, through NAT. Meanwhile plain connections without keep-alives rest beside: they must be dead in the end, or nothing was seen.
"""

import os
import subprocess
import sys
from pathlib import Path

from . import judge, remote
from .build import build, command_of
from .place import LOGS, PROGRAMS
from .process import run
from .programs import Program
from .report import Tally
from .vendors import BY_TAG

#: Seconds of silence and seconds until NATs forget: what is to be seen, and a short form of it (keep-alives come every 10 s).
LONG = (300, 30)
SHORT = (40, 15)
#: Longest that the first words after the silence may take, seconds; a lost connection is missed after 1.25 s at the earliest.
SOON = 1.2
ECHO = 7200
TAGS = ("do", "dm", "do")

_ECHO = f"""
import socket, threading
def serve(link):
    while data := link.recv(100):
        link.sendall(data)
with socket.create_server(("0.0.0.0", {ECHO})) as listener:
    print("ready", flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
_RESTING = f"""
import socket, sys, time
link = socket.create_connection(("{remote.PUBLIC}", {ECHO}), timeout=5)
def lives():
    link.sendall(b"x")
    try:
        return link.recv(1) == b"x"
    except OSError:
        return False
assert lives()
time.sleep(float(sys.argv[1]))
print("alive" if lives() else "dead")
"""


def layout(nat_timeout: int) -> remote.Layout:
    """See above."""
    return remote.Layout(
        (remote.Site("a", (remote.PUBLIC,), private=True), remote.own_relays("b"), remote.Site("c", ())),
        tuple((gateway, remote.PUBLIC) for gateway in remote.gateways("b")),
        links='[[link]]\nbetween = ["a", "c"]\ndial = "a"\n\n[[link]]\nbetween = ["b", "c"]\ndial = "b"\n',
        nat_timeout=nat_timeout,
    )


def _rest(lab: remote.Lab, silence: int) -> dict[str, subprocess.Popen]:
    """Connections that nothing keeps alive: from a node through NAT, from a gateway through the firewall, and one that nobody forgets."""
    words = [sys.executable, "-c", _RESTING, str(silence)]
    return {
        host: subprocess.Popen(lab.exec(host, words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for host in ("a1", "b-gw1", "c1")
    }


def _wrong(output: str, lab: remote.Lab, controls: dict[str, str]) -> str | None:
    if controls != {"a1": "dead", "b-gw1": "dead", "c1": "alive"}:
        return f"connections without keep-alives: {controls}, so nothing was proven"
    line = next((line for line in output.splitlines() if "of silence:" in line), "")
    if not line or float(line.split()[-2]) > SOON:
        return f"the first words took too long: {line or output.strip()[-200:]}"
    for log in lab.scratch.glob("*.log"):
        if lost := next((line for line in log.read_text().splitlines() if "is lost" in line or "has ended" in line), None):
            return f"{log.name}: {lost}"
    return None


def run_one(tally: Tally, silence: int, nat_timeout: int) -> None:
    """One silence of so many seconds, where connections are forgotten after so many."""
    vendors = [BY_TAG[tag] for tag in TAGS]
    way = f"idle {'+'.join(TAGS)}"
    if missing := next((vendor.missing() for vendor in vendors if vendor.missing()), None):
        tally.skips(way, "*", f"{missing} is not installed; run tools/setup")
        return
    program = Program("idle", PROGRAMS / "c" / "idle.c", args=(str(silence),), seconds=silence + 60)
    build([program], vendors)
    with remote.Lab(LOGS / "idle" / str(silence), layout(nat_timeout)) as lab:
        job = lab.scratch / "job.toml"
        job.write_text(lab.layout.job([command_of(program, vendor) for vendor in vendors], vendors, lab.token))
        echo = subprocess.Popen(lab.exec(remote.PUBLIC, [sys.executable, "-c", _ECHO]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            echo.stdout.readline()
            resting = _rest(lab, silence)
            log = job.with_suffix(".job")
            result = run(lab.on(remote.PUBLIC, ["run", str(job)]), log=log, seconds=program.seconds, env=remote.roots(vendors))
            controls = {host: one.communicate(timeout=silence + 60)[0].strip() for host, one in resting.items()}
        finally:
            echo.kill()
            echo.wait()
        label = f"{silence} s, forgotten after {nat_timeout} s"
        if wrong := judge.problem(program, result, "lab") or _wrong(result.output, lab, controls):
            tally.fails(way, label, result.seconds, wrong, _shown(log))
        else:
            tally.passes(way, label, result.seconds)


def _shown(path: Path) -> str:
    return os.path.relpath(path)
