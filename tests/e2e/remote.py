"""Labs whose clusters cannot all be dialled, with relays at work in them, and the job files for them.

A layout says which clusters there are, whether each is private (behind gateways with NAT that let nothing in; all of them have the same
addresses) or public, at which relays its processes are, and which relay dials which.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import jobs
from .place import gridmpi
from .relaying import make_identity, make_secret
from .vendors import Vendor

PORT = 7118
NODES = 2
PUBLIC = "pub"
#: What each link between a site and the public host carries, Mbit/s.
BANDWIDTH = 160
#: What a gateway sends, Mbit/s.
GATEWAY = 100


@dataclass(frozen=True)
class Site:
    """A cluster. Its relays are called by the machines that they run on."""

    name: str
    relays: tuple[str, ...]
    private: bool = False


@dataclass(frozen=True)
class Layout:
    """The clusters, a first; which relay dials which; and what the job file says of links."""

    sites: tuple[Site, ...]
    dials: tuple[tuple[str, str], ...]
    links: str = ""
    #: Seconds after which NAT and firewalls forget what rests.
    nat_timeout: int = 30
    #: Without it nothing in private clusters reaches `gridmpi run` but through relays.
    nat: bool = True
    #: Relays at which `gridmpi run` is.
    meeting: tuple[str, ...] = ()

    def relays(self) -> list[str]:
        """The machines with a relay."""
        ends = [end for pair in self.dials for end in pair]
        own = [relay for site in self.sites for relay in site.relays]
        return list(dict.fromkeys([*ends, *own]))

    def lab(self) -> str:
        """Its lab file."""
        parts = []
        parts += [self.cluster(site) for site in self.sites]
        parts.append(f'[[host]]\nname = "{PUBLIC}"\n')
        ends = [site.name for site in self.sites]
        # The public host is in the midst: from cluster to cluster it takes twice the delay.
        parts += [f'[[link]]\nbetween = ["{end}", "{PUBLIC}"]\ndelay = "5 ms"\nbandwidth = "{BANDWIDTH} Mbit/s"\n' for end in ends]
        return "".join(parts)

    def cluster(self, site: Site) -> str:
        """A cluster in a lab file."""
        text = f'[[cluster]]\nname = "{site.name}"\nnodes = {NODES}\n'
        if not site.private:
            return text
        return text + (
            f'private = true\ngateways = 2\ngateway_interface = "{GATEWAY} Mbit/s"\nnetwork = "10.9.0.0/16"\n'
            f'nat = {str(self.nat).lower()}\nnat_timeout = "{self.nat_timeout} s"\nfirewall = "outbound"\n'
        )

    def job(self, commands: list[list[str]], vendors: list[Vendor], token: Path, variables: list[dict[str, str]] | None = None) -> str:
        """A job file for it, with one command for each cluster; and, if they need more than the vendor, variables."""
        variables = variables or [vendor.env for vendor in vendors]
        meeting = [f"{relay}:{PORT}" for relay in self.meeting]
        parts = [f'[job]\nrelay_token = "{token}"\n' + (f"relays = {jobs.texts(meeting)}\n" if meeting else "")]
        for index, (site, vendor, command) in enumerate(zip(self.sites, vendors, commands, strict=True)):
            network = "10.9.0" if site.private else f"10.{index + 1}.0"
            each = min(vendor.lab_ranks_per_node, NODES)
            hosts = [f"{network}.{node}" for node in range(1, NODES // each + 1)]
            arguments = [word.format(network=f"{network}.0/16") for word in vendor.lab_args]
            head, interface = (f"{site.name}-head", "eth0") if site.private else (f"{site.name}1", "eth1")
            relays = [f"{relay}:{PORT}" for relay in site.relays]
            parts.append(
                f'[[cluster]]\nname = "{site.name}"\nlauncher = "{vendor.launcher}"\nranks = {NODES}\nhosts = {jobs.texts(hosts)}\n'
                f'ranks_per_host = {each}\nremote_shell = "lab-ssh"\nhead = "{head}"\ninterface = "{interface}"\n'
                + (f"relays = {jobs.texts(relays)}\n" if relays else "")
                + jobs.own_keys(arguments, command, {**variables[index], **vendor.lab_env})
            )
        return "\n".join([*parts, self.links])


def gateways(cluster: str) -> tuple[str, str]:
    """The gateways of a private cluster."""
    return (f"{cluster}-gw1", f"{cluster}-gw2")


def own_relays(name: str) -> Site:
    """A private cluster with relays on its gateways."""
    return Site(name, gateways(name), private=True)


#: Two private clusters whose relays dial a public one.
TWO = Layout((own_relays("a"), own_relays("b")), tuple((gateway, PUBLIC) for gateway in (*gateways("a"), *gateways("b"))))
#: A third has public addresses and that public relay.
THREE = Layout((*TWO.sites, Site("c", (PUBLIC,))), TWO.dials)
#: One private cluster and two public ones that reach each other directly, one with a relay on its first node.
MIXED = Layout(
    (own_relays("a"), Site("b", ("b1",)), Site("c", (PUBLIC,))),
    tuple((gateway, relay) for gateway in gateways("a") for relay in ("b1", PUBLIC)),
    links='[[link]]\nbetween = ["b", "c"]\nvia = "direct"\n',
)
#: A public cluster without relays, and a private one that must do the connecting.
ONE_WAY = Layout(
    (Site("a", ()), own_relays("b")),
    tuple((gateway, PUBLIC) for gateway in gateways("b")),
    links='[[link]]\nbetween = ["a", "b"]\ndial = "b"\n',
)
#: The same, and the job does not know.
UNSAID = Layout(ONE_WAY.sites, ONE_WAY.dials)
#: Two private clusters without NAT: not even `gridmpi run` is reached but through relays.
CLOSED = Layout(TWO.sites, TWO.dials, nat=False, meeting=(PUBLIC,))


def roots(vendors: list[Vendor]) -> dict[str, str]:
    """What launchers must find in the environment of `gridmpi run`, too."""
    return {key: value for vendor in vendors for key, value in vendor.env.items() if "_ROOT" in key}


class Lab:
    """The lab of a layout, up as long as it is entered, with all its relays."""

    def __init__(self, scratch: Path, layout: Layout) -> None:
        self.scratch, self.layout = scratch, layout
        self.name = f"remote-{os.getpid()}"
        self.token = scratch / "token"
        self.relays: list[subprocess.Popen] = []

    def __enter__(self) -> "Lab":
        self.scratch.mkdir(parents=True, exist_ok=True)
        for old in self.scratch.glob("*.log"):
            old.unlink()
        (self.scratch / "lab.toml").write_text(self.layout.lab())
        make_secret(self.token)
        prints = {host: make_identity(self.scratch / host) for host in self.layout.relays()}
        up = [str(gridmpi()), "lab", "up", "--name", self.name, str(self.scratch / "lab.toml")]
        subprocess.run(up, check=True, capture_output=True, timeout=60)
        try:
            for host in prints:
                self.relay(host, self._words(host, prints))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _words(self, host: str, prints: dict[str, str]) -> list[str]:
        words = ["relay", "--listen", f"0.0.0.0:{PORT}", "--token-file", str(self.token), "--identity", str(self.scratch / host)]
        for dialler, dialled in self.layout.dials:
            if dialler == host:
                words += ["--peer", f"{self._outside(dialled)}:{PORT}={prints[dialled]}"]
            elif dialled == host:
                words += ["--allow", prints[dialler]]
        return words

    def relay(self, host: str, words: list[str]) -> None:
        """Starts the relay of a host."""
        self.relays.append(self.start_relay(host, words))

    def start_relay(self, host: str, words: list[str]) -> subprocess.Popen:
        """What it says is added to its log."""
        with (self.scratch / f"{host}.log").open("ab") as log:
            return subprocess.Popen(self.on(host, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _outside(self, host: str) -> str:
        """What others call a machine: a node of a public cluster has another name inside of it."""
        inside = any(host == f"{site.name}{number + 1}" for site in self.layout.sites for number in range(NODES))
        return f"{host}-wan" if inside else host

    def on(self, host: str, words: list[str]) -> list[str]:
        """`gridmpi` with these words, on a machine of the lab."""
        return self.exec(host, [str(gridmpi()), *words])

    def exec(self, host: str, command: list[str]) -> list[str]:
        """A command on a machine of the lab."""
        return [str(gridmpi()), "lab", "exec", "--name", self.name, host, "--", *command]

    def __exit__(self, *_: object) -> None:
        subprocess.run([str(gridmpi()), "lab", "down", "--name", self.name], capture_output=True, timeout=60)
        for relay in self.relays:
            relay.kill()
            relay.wait()
