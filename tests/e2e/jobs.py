"""Job files for `gridmpi run`, and command lines for vendors alone."""

import itertools
import json
from pathlib import Path

from .build import command_of
from .programs import Program
from .vendors import Vendor


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string


def texts(values: list[str]) -> str:
    """A list of strings in TOML."""
    return "[" + ", ".join(map(_text, values)) + "]"


def _table(values: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{key} = {_text(value)}" for key, value in values.items()) + " }"


def variables(program: Program, vendor: Vendor) -> dict[str, str]:
    """What the ranks of a vendor need, and what the program wants."""
    return {**vendor.env, **dict(program.env)}


def alone(program: Program, vendor: Vendor, ranks: int) -> list[str]:
    """The vendor's own launcher, without us."""
    return [vendor.launcher, "-n", str(ranks), *vendor.launcher_args, *command_of(program, vendor)]


def job_file(path: Path, clusters: list[tuple[str, Vendor, int, list[str], dict[str, str]]]) -> Path:
    """Writes a job file. A cluster is its name, vendor, number of ranks, command and variables."""
    parts = []
    for name, vendor, ranks, command, env in clusters:
        parts.append(
            f"[[cluster]]\nname = {_text(name)}\nlauncher = {_text(vendor.launcher)}\nranks = {ranks}\n"
            + own_keys(vendor.launcher_args, command, env)
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))
    return path


def own_keys(launcher_args: list[str], command: list[str], env: dict[str, str]) -> str:
    """The keys of a cluster that say what it runs."""
    return (
        f"launcher_args = {texts(launcher_args)}\nprogram = {_text(command[0])}\n"
        f"args = {texts(command[1:])}\nenv = {_table(env)}\n"
    )


def across(path: Path, program: Program, vendors: list[Vendor], ranks: list[int]) -> Path:
    """One cluster for each vendor, named a, b, c …"""
    return job_file(
        path,
        [
            (chr(ord("a") + index), vendor, count, command_of(program, vendor), variables(program, vendor))
            for index, (vendor, count) in enumerate(zip(vendors, ranks, strict=True))
        ],
    )


def add_links(path: Path, clusters: int, bandwidth: str) -> None:
    """Says of every pair of clusters what the link between them carries."""
    names = [chr(ord("a") + index) for index in range(clusters)]
    with path.open("a") as file:
        for one, other in itertools.combinations(names, 2):
            file.write(f"\n[[link]]\nbetween = {texts([one, other])}\nbandwidth = {_text(bandwidth)}\n")


def add_interfaces(path: Path, bandwidth: str) -> None:
    """Says of every cluster what the interfaces of its nodes carry."""
    path.write_text(path.read_text().replace("\nlauncher = ", f"\ninterface_bandwidth = {_text(bandwidth)}\nlauncher = "))


def add_uplinks(path: Path, bandwidths: tuple[str, ...]) -> None:
    """Says of each cluster what all its links carry together."""
    first, *clusters = path.read_text().split("\nlauncher = ")
    lines = [f"\nuplink_bandwidth = {_text(bandwidth)}\nlauncher = " for bandwidth in bandwidths]
    path.write_text(first + "".join(line + rest for line, rest in zip(lines, clusters, strict=True)))


def add_settings(path: Path, matb: str, connections: int, pacing: str) -> None:
    """Says what each node of every cluster may send, how many connections two processes may have, and how they are paced; not what is
    empty or 0."""
    settings = [f"{key} = {_text(text)}\n" for key, text in (("matb", matb), ("pacing", pacing)) if text]
    settings += [f"connections = {connections}\n"] if connections else []
    if settings:
        with path.open("a") as file:
            file.write("\n[job]\n" + "".join(settings))


def lab_nodes(vendor: Vendor, ranks: int) -> list[int]:
    """How many ranks run on each node of a cluster in the lab."""
    each = min(vendor.lab_ranks_per_node, ranks)
    return [each] * (ranks // each)


def in_lab(path: Path, vendors: list[Vendor], ranks: list[int], commands: list[list[str]], env: dict[str, str]) -> Path:
    """A job file for the nodes of a lab (docs/lab.md): clusters a, b … of nodes a1, a2 …"""
    parts = []
    for index, (vendor, count, command) in enumerate(zip(vendors, ranks, commands, strict=True)):
        name, nodes = chr(ord("a") + index), lab_nodes(vendor, count)
        arguments = [word.format(network=f"10.{index + 1}.0.0/16") for word in vendor.lab_args]
        parts.append(
            f"[[cluster]]\nname = {_text(name)}\nlauncher = {_text(vendor.launcher)}\nranks = {count}\n"
            f"hosts = {texts([f'10.{index + 1}.0.{number}' for number in range(1, len(nodes) + 1)])}\n"
            f'ranks_per_host = {nodes[0]}\nremote_shell = "lab-ssh"\ninterface = "eth1"\n'
            + own_keys(arguments, command, {**vendor.env, **env, **vendor.lab_env})
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))
    return path
