"""A port scanner, and noise on every listening port of a running job."""

import os
import random
import socket
import threading
import time
from pathlib import Path

from .process import marked

#: Bytes offered to each port; the receiver should hang up after its first few.
NOISE_BYTES = int(os.environ.get("GRIDMPI_NOISE_BYTES", 1 << 30))
NOISE_SECONDS = 8


def listening_ports(mark: str, programs: tuple[str, ...]) -> list[tuple[str, int]]:
    """Where the processes of a run that execute one of `programs` listen for TCP: address and port. The launchers listen
    too, and hand their sockets down to the ranks; what they do with noise is not our affair."""
    ours, theirs = set(), set()
    for pid in marked(mark):
        try:
            own = Path(f"/proc/{pid}/exe").resolve().name in programs
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        (ours if own else theirs).update(link[8:-1] for link in links if link.startswith("socket:["))
    sockets, found = ours - theirs, []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in sockets:
            address, port = fields[1].split(":")
            numbers = bytes.fromhex(address)[::-1]
            host = ".".join(map(str, numbers))
            found.append(("127.0.0.1" if host == "0.0.0.0" else host, int(port, 16)))
    return sorted(set(found))


def _noise(address: tuple[str, int], seed: int) -> None:
    """Offers NOISE_BYTES, in as many connections as it takes."""
    block = random.Random(seed).randbytes(1 << 20)
    end, offered = time.monotonic() + NOISE_SECONDS, 0
    while offered < NOISE_BYTES and time.monotonic() < end:
        try:
            with socket.create_connection(address, timeout=1) as connection:
                connection.settimeout(1)
                while offered < NOISE_BYTES and time.monotonic() < end:
                    offered += connection.send(block)
        except OSError:
            offered += len(block)  # hung up on, as it should be


def _scan(address: tuple[str, int]) -> list[socket.socket]:
    """Connections that say nothing, or say half a word."""
    kept = []
    for count in range(40):
        try:
            connection = socket.create_connection(address, timeout=1)
        except OSError:
            continue
        if count % 4 == 0:
            connection.close()
        else:
            if count % 4 == 1:
                connection.send(b"GET / HTTP/1.0\r\n\r\n")
            kept.append(connection)
    return kept


def trouble_every_port(mark: str) -> None:
    """Waits until the job listens, then scans and floods every port of it."""
    end = time.monotonic() + 20
    programs = ("gridmpi", "heat")
    while len(listening_ports(mark, programs)) < 5 and time.monotonic() < end:
        time.sleep(0.1)
    ports = listening_ports(mark, programs)
    print(f"      noise to {len(ports)} ports", flush=True)
    kept = [connection for address in ports for connection in _scan(address)]
    threads = [threading.Thread(target=_noise, args=(address, seed)) for seed, address in enumerate(ports)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in kept:
        connection.close()
