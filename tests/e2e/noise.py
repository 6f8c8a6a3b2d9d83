"""A port scanner, and noise on every listening port of a running job."""

import os
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .process import marked

#: Bytes offered to each port; the receiver should hang up after its first few.
NOISE_BYTES = int(os.environ.get("GRIDMPI_NOISE_BYTES", 1 << 30))
NOISE_SECONDS = 8


def listening_ports(mark: str, programs: tuple[str, ...]) -> list[tuple[str, int]]:
    """Where the processes of a run that execute one of `programs` listen for TCP on every address: address and port. The launchers
    listen too, and hand their sockets down to the ranks, and the vendors' own parts in the ranks do, on single addresses; what they
    do with noise is not our affair."""
    ours, theirs = set(), set()
    for pid in marked(mark):
        try:
            own = Path(f"/proc/{pid}/exe").resolve().name in programs
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        (ours if own else theirs).update(link[8:-1] for link in links if link.startswith("socket:["))
    sockets = ours - theirs
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()[1:]]
    listening = [fields[1].split(":") for fields in lines if fields[3] == "0A" and fields[9] in sockets]
    return sorted({("127.0.0.1", int(port, 16)) for address, port in listening if not address.strip("0")})


def _noise(address: tuple[str, int], seed: int) -> int:
    """Offers NOISE_BYTES, in as many connections as it takes; returns how many the kernel took."""
    block = random.Random(seed).randbytes(1 << 20)
    end, sent, refused = time.monotonic() + NOISE_SECONDS, 0, 0
    while sent + refused < NOISE_BYTES and time.monotonic() < end:
        # Raises where nobody listens any more.
        with socket.create_connection(address, timeout=NOISE_SECONDS) as connection:
            connection.settimeout(1)
            try:
                while sent + refused < NOISE_BYTES and time.monotonic() < end:
                    sent += connection.send(block)
            except OSError:
                refused += len(block)  # hung up on, as it should be
    return sent


def _scan(address: tuple[str, int]) -> list[socket.socket]:
    """Connections that say nothing, or say half a word."""
    kept = []
    for count in range(40):
        try:
            connection = socket.create_connection(address, timeout=1)
            if count % 4 == 1:
                connection.send(b"GET / HTTP/1.0\r\n\r\n")
        except OSError:
            continue
        if count % 4 == 0:
            connection.close()
        else:
            kept.append(connection)
    return kept


class Noise:
    """Scans and floods every port of a job while it runs."""

    def __init__(self, programs: tuple[str, ...], least: int, patience: float = 20) -> None:
        self.programs, self.least, self.patience = programs, least, patience
        #: What did not come about, so that the job's end proves nothing.
        self.wrong: str | None = "the job was over before the noise was"

    def make(self, mark: str) -> None:
        """Waits until the job listens, and troubles it."""
        try:
            self.wrong = self._make(mark)
        except OSError as error:
            self.wrong = f"a port of the job was troubled in vain: {error!r}"

    def _make(self, mark: str) -> str | None:
        end = time.monotonic() + self.patience
        while len(ports := listening_ports(mark, self.programs)) < self.least:
            if time.monotonic() > end:
                return f"{len(ports)} ports listen, not {self.least} or more: whose noise proves nothing"
            time.sleep(0.1)
        kept = [connection for address in ports for connection in _scan(address)]
        with ThreadPoolExecutor(len(ports)) as pool:
            sent = list(pool.map(_noise, ports, range(len(ports))))
        still = listening_ports(mark, self.programs)
        for connection in kept:
            connection.close()
        print(f"      noise to {len(ports)} ports, {sum(sent) >> 20} MiB", flush=True)
        if silent := [port for port, bytes_sent in zip(ports, sent, strict=True) if bytes_sent == 0]:
            return f"no noise went to {silent}"
        return None if set(ports) <= set(still) else "the job was over before the noise was"
