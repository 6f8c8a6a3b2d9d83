"""The test programs: what each needs, how it must end, and the bugs of vendors that it meets."""

from dataclasses import dataclass
from pathlib import Path

from .place import PROGRAMS, ROOT
from .vendors import Vendor


@dataclass(frozen=True)
class Program:
    """A program and one way to call it."""

    name: str
    source: Path
    args: tuple[str, ...] = ()
    case: str = ""
    seconds: int = 60
    #: Exit code through `gridmpi run`, None: any but zero; alone, only zero or not zero is compared.
    exit_code: int | None = 0
    #: Each must stand in the output (stdout and stderr together).
    expect: tuple[str, ...] = ()
    #: Each must also stand there when the program runs across clusters.
    expect_across: tuple[str, ...] = ()
    #: Across clusters: what every rank says once, and what one rank of each cluster does.
    each_rank_says: tuple[str, ...] = ()
    each_cluster_says: tuple[str, ...] = ()
    #: What it takes of this machine across two clusters, GB; 0: hardly any.
    memory: int = 0
    stdin: str = ""
    #: Which ways it makes sense in: alone, one, two, three, lab.
    ways: tuple[str, ...] = ("alone", "one", "two", "three", "lab")
    #: Variables of its own.
    env: tuple[tuple[str, str], ...] = ()
    #: Options of `gridmpi run`, and variables of its own.
    options: tuple[str, ...] = ()
    run_env: tuple[tuple[str, str], ...] = ()
    #: What the job file says of every link; empty: nothing.
    bandwidth: str = ""
    #: What the job file says that each node may send; empty: nothing.
    matb: str = ""
    #: What the job file says that each node's interface carries; empty: nothing.
    interface: str = ""
    #: What the job file says that each cluster's links carry together; empty: nothing.
    uplinks: tuple[str, ...] = ()
    #: What the job file says of pacing; empty: nothing.
    pacing: str = ""
    #: What the lab's link loses at random; empty: nothing.
    loss: str = ""
    #: How many connections the job file lets two processes have; 0: nothing.
    connections: int = 0
    #: Of a Fortran program, the binding that it uses; empty: the one of its name.
    needs: str = ""
    #: Also in a lab with delay.
    chosen: bool = False
    #: Tags of the vendors that have what it tests; empty: all.
    vendors: tuple[str, ...] = ()
    #: Fails by a bug of these vendors: alone and inside one cluster.
    vendor_bugs: tuple[str, ...] = ()
    #: What that looks like in each line that says so; whatever else goes wrong is a failure.
    bug_looks: str = ""
    #: Or that it never ends under them, though it has said all that it should.
    bug_hangs: bool = False
    #: The bug shows across clusters too, where the vendor's own part fails.
    bug_everywhere: bool = False

    @property
    def label(self) -> str:
        return self.name + (f"/{self.case}" if self.case else "")

    @property
    def language(self) -> str:
        return {".c": "c", ".f": "fortran", ".f90": "fortran", ".py": "python"}[self.source.suffix]

    @property
    def binding(self) -> str:
        return self.needs or self.name

    def runs_under(self, vendor: Vendor) -> bool:
        if self.vendors and vendor.tag not in self.vendors:
            return False
        return self.language != "fortran" or self.binding in vendor.bindings

    def known_bug(self, way: str, vendors: list[Vendor]) -> bool:
        met = any(vendor.tag in self.vendor_bugs for vendor in vendors)
        return met and (self.bug_everywhere or way in ("alone", "one"))


def _c(name: str, **options: object) -> Program:
    return Program(name, PROGRAMS / "c" / f"{name}.c", **options)


def _connected(name: str, **options: object) -> Program:
    """The program with several connections between two processes."""
    return _c(name, case="connections", connections=4, ways=("two", "three", "lab"), chosen=True, seconds=120, **options)


def _paced(name: str, how: str, **options: object) -> Program:
    """The program with what it sends held to a rate."""
    env = (("GRIDMPI_PACING", how),)
    return _c(name, case=how, env=env, bandwidth="160 Mbit/s", ways=("two", "three", "lab"), **options)


def _matb(how: str, **options: object) -> Program:
    """The program that asks for rates of its own, some of which cannot be."""
    each_rank = tuple(f"gridmpi: YAMPI_PSP_MATB: {text}" for text in (
        "0 KB/s is no rate; nothing is changed.", "-7 KB/s is no rate; nothing is changed.",
        "12 KB/s is too low for a job to get on; nothing is changed. Put 13 or more",
        "200000 KB/s is more than the node's interface carries; it is 125000 KB/s now"))
    each_cluster = ('gridmpi: gridmpi_pattern = "some": it must be "all", "half" or how many nodes send at once, more than 0; it is ignored',
                    "gridmpi: gridmpi_pattern: 99999 is more than the nodes of this cluster; it is ",
                    "gridmpi: gridmpi_pattern: gridmpi_matb is given with it, and counts; it is ignored",
                    'gridmpi: gridmpi_matb = "0": it must be bits per second, 100k at least, such as 20000000 or 20M; it is ignored',
                    'gridmpi: gridmpi_matb = "20": it must be bits per second, 100k at least',
                    "gridmpi: gridmpi_matb: 2000000000 bit/s is more than the node's interface carries; it is 1000000000 bit/s now")
    return _paced("matb", how, seconds=120, interface="1 Gbit/s", each_rank_says=each_rank, each_cluster_says=each_cluster, **options)


def _asked(case: str, how: str, rate: int = 20000, **options: object) -> Program:
    """The program that must find its job paced in this way, over links that carry so much (KB/s)."""
    return _c("pacing", case=case, args=(how, str(rate)), bandwidth="160 Mbit/s", ways=("two",), **options)


def _rate_by_n(name: str, **options: object) -> list[Program]:
    """The paper's program, over Ethernet's frames, over this machine's own interface, and where no rate is known."""
    def case(label: str, segment: str, *divisors: str, **more: object) -> Program:
        return Program(name, case=label, args=(segment, *divisors), **options, **more)

    return [case("lab", "1448", "8", "4", "8", bandwidth="160 Mbit/s", ways=("lab",), chosen=True),
            case("loopback", "65483", "8", "4", bandwidth="160 Mbit/s", ways=("two", "three")),
            case("unknown", "1448", "8", ways=("alone", "one", "two"), expect=("YAMPI_PSP_MAXRATE is not known",))]


#: Those that have the large-count procedures.
MPI_4 = ("dm", "m5", "im")

ALL = [
    _c("ring", chosen=True),
    _c("environment"),
    _c("modes", chosen=True),
    _c("bsend"),
    _c("bsend_held"),
    _c("bsend_automatic", vendors=("m5", "im")),
    _c("synchronous"),
    _c("sendrecv"),
    _c("procnull"),
    _c("self"),
    _c("probe", chosen=True),
    _c("wildcard", chosen=True),
    _c("order", chosen=True),
    _c("progress", chosen=True),
    # As where there are cores enough: in the tests ranks outnumber them.
    _c("progress", case="spin", env=(("GRIDMPI_YIELD", "off"),), ways=("two", "three", "lab")),
    _c("contexts"),
    _c("unexpected", seconds=120),
    _c("large", seconds=120),
    _c("cancel"),
    _c("persistent"),
    _c("persistent_types"),
    _c("completion", chosen=True),
    # Intel MPI takes a long message that was probed for, and so unexpected, as complete when it was truncated.
    _c("truncated", vendor_bugs=("im",), bug_looks="from the same cluster: class 0, not", bug_everywhere=True),
    _c("types", chosen=True),
    _c("types_darray", vendor_bugs=("im",), bug_looks=r"not \(in\[i\] == want\[i\]\): .* from the same cluster", bug_everywhere=True),
    _c("types_more"),
    _c("types_f90"),
    _c("types_collective", vendor_bugs=("im",), bug_looks=r"not \(all\["),
    _c("collectives", chosen=True, seconds=120),
    _c("inplace"),
    _c("reductions", seconds=120),
    _c("user_ops", chosen=True, seconds=120),
    _c("mixed"),
    _c("groups"),
    _c("comms", seconds=120),
    _c("freed"),
    _c("cart"),
    _c("graph"),
    _c("attributes"),
    _c("finalize"),
    _c("errors"),
    _c("mistakes"),
    # Alone, a vendor may be asked about a request that it is just completing.
    _c("handlers", ways=("two", "three", "lab")),
    _c("fork"),
    _c("info", each_cluster_says=("gridmpi: gridmpi_pattern: the bandwidth of the link is not known",)),
    _c("mpi_t"),
    _c("threads", chosen=True, seconds=120),
    _c("large_count", vendors=MPI_4),
    _c("refused", expect_across=tuple(f"{name} refused across clusters" for name in (
        "MPI_Ibarrier", "MPI_Ialltoallw", "MPI_Comm_idup", "MPI_Neighbor_alltoallv", "MPI_Ineighbor_allgather",
        "MPI_Win_create", "MPI_Win_allocate_shared", "MPI_File_open", "MPI_Intercomm_create", "MPI_Comm_spawn"))),
    _c("onecluster"),
    _c("within", chosen=True),
    # Debian's MPICH and Intel MPI fail to spawn on this kind of machine, without us, too.
    _c("spawn", vendors=("do", "m5", "o5")),
    _c("onesided", vendor_bugs=("dm",), bug_looks=r"not \(\*base == ", bug_everywhere=True),
    _c("storm", chosen=True),
    _c("mpi1", chosen=True),
    _c("storm", case="seed-7", args=("7", "200"), seconds=120),
    *(_paced(name, "auto", chosen=True, seconds=120) for name in ("storm", "collectives", "unexpected", "threads", "mpi_t")),
    *(_paced(name, "static", seconds=120) for name in ("storm", "collectives")),
    _matb("auto", chosen=True),
    _matb("static"),
    *(_connected(name) for name in ("large", "storm", "collectives", "unexpected", "synchronous", "threads")),
    _c("storm", case="connections-paced", connections=8, env=(("GRIDMPI_PACING", "auto"),), bandwidth="160 Mbit/s", ways=("two", "three", "lab"),
       seconds=120),
    # Its first argument is what must come of the job file's rate and the environment's, the second a rate that cannot be.
    _c("mpi_t", case="job-file", args=("20000000",), matb="20 Mbit/s", ways=("two", "three")),
    _c("mpi_t", case="too-low", args=("20000000", "99999"), matb="20 Mbit/s", ways=("two", "three"),
       each_rank_says=("gridmpi: gridmpi_matb: 99999 bit/s is too low for a job to get on; nothing is changed. Write 100000 or more",)),
    _c("mpi_t", case="environment", args=("30000000",), matb="20 Mbit/s", env=(("GRIDMPI_MATB", "30M"),), ways=("two", "three")),
    _c("mpi_t", case="beyond-interface", args=("1000000000",), env=(("GRIDMPI_MATB", "2G"),), interface="1 Gbit/s", ways=("two", "three"),
       each_cluster_says=("gridmpi: GRIDMPI_MATB: 2000000000 bit/s is more than the node's interface carries (`interface_bandwidth`); "
                          "it is 1000000000 bit/s now",)),
    # Each cluster is one node here, of which one process says it.
    _c("ring", case="congestion", env=(("GRIDMPI_CONGESTION", "nonesuch"),), ways=("two", "three"),
       each_cluster_says=("gridmpi: GRIDMPI_CONGESTION: no `nonesuch`: this node's kernel does not have it; connections go on",)),
    # The option counts before the environment, that before the job file, and that before the default.
    *(_asked(f"option-{how}", how, options=("--pacing", how), run_env=(("GRIDMPI_PACING", other),), pacing=other)
      for how, other in (("off", "auto"), ("static", "off"), ("auto", "static"))),
    _asked("environment", "static", run_env=(("GRIDMPI_PACING", "static"),), pacing="off"),
    _asked("job-file", "static", pacing="static"),
    _asked("default", "auto"),
    # What the link carries is no more than either uplink does.
    _asked("uplink", "static", 5000, pacing="static", uplinks=("80 Mbit/s", "40 Mbit/s")),
    _asked("wide-uplink", "static", pacing="static", uplinks=("800 Mbit/s", "400 Mbit/s")),
    _c("retransmits", case="lossy", args=("lossy",), loss="2 %", ways=("lab",), chosen=True),
    # At a rate far below the link's nothing is lost where senders meet.
    _c("retransmits", case="clean", args=("clean",), matb="20 Mbit/s", ways=("two", "three", "lab"), chosen=True),
    Program("matb-fortran", PROGRAMS / "fortran" / "matb.f90", needs="usempi", env=(("GRIDMPI_PACING", "auto"),),
            bandwidth="160 Mbit/s", ways=("two", "three", "lab"), chosen=True),
    *(Program(f"matb-{name}", PROGRAMS / "fortran" / file, needs=name, env=(("GRIDMPI_PACING", "auto"),), bandwidth="160 Mbit/s",
              ways=("two", "three", "lab")) for name, file in (("mpifh", "matb_mpifh.f"), ("usempif08", "matb_usempif08.f90"))),
    *_rate_by_n("rate_by_n", source=PROGRAMS / "c" / "rate_by_n.c"),
    *_rate_by_n("rate_by_n-fortran", source=PROGRAMS / "fortran" / "rate_by_n.f90", needs="usempif08"),
    _c("rate_keys", ways=("one", "two", "three", "lab")),
    Program("rate_keys-fortran", PROGRAMS / "fortran" / "rate_keys.f90", needs="usempi", ways=("one", "two", "three", "lab")),
    Program("rate_keys-fortran", PROGRAMS / "fortran" / "rate_keys.f90", case="fatal", args=("fatal",), needs="usempi", ways=("one", "two", "three"),
            exit_code=None, expect=("gridmpi: YAMPI_PSP_MAXRATE can be read only",)),
    Program("job_attributes", PROGRAMS / "fortran" / "job_attributes.f90", needs="usempi", ways=("two", "three", "lab")),
    Program("heat", ROOT / "demo" / "heat.c", args=("-n", "300", "-t", "100", "-v"), chosen=True,
            expect=("heat: equal to the serial result",)),
    _c("stdio", seconds=20, vendor_bugs=("o5",), bug_hangs=True, bug_everywhere=True, stdin="first line\nsecond line\n", args=("two words", "*", "$HOME"),
       expect=("0 argument 1: <two words>", "0 argument 2: <*>", "0 argument 3: <$HOME>",
               "1 line: first line", "1 line: second line", "1 to stderr")),
    _c("exitcode", args=("1", "3"), exit_code=3),
    _c("exitcode", case="last", args=("-1", "5"), exit_code=5),
    _c("abort", args=("1", "7"), exit_code=7, expect=("aborts with 7",)),
    _c("abort", case="first", args=("0", "9"), exit_code=9, expect=("aborts with 9",)),
    # The code is that of the vendor's error class.
    *(_c("fatal", case=case, args=(case,), ways=("two", "three"), exit_code=None, expect=(f"gridmpi: {said}",)) for case, said in (
        ("rank", "rank "), ("refused", "MPI_Ibarrier refused across clusters"), ("read-only", "YAMPI_PSP_MAXRATE can be read only"))),
    *(Program(name, PROGRAMS / "fortran" / file, chosen=True)
      for name, file in (("mpifh", "mpifh.f"), ("usempi", "usempi.f90"), ("usempif08", "usempif08.f90"))),
    *(Program(name, PROGRAMS / "python" / f"{name}.py", chosen=True)
      for name in ("objects", "arrays", "topologies")),
]

#: Long or large: by name, and across two clusters with --full.
EXTRA = [
    _c("large", case="huge", args=("--huge",), seconds=300, memory=5),
    _c("large", case="replace", args=("--replace",), seconds=300, memory=10, ways=("two", "three", "lab")),
    _c("large_count", case="huge", args=("--huge",), seconds=300, memory=5, vendors=MPI_4),
    _c("large_collectives", seconds=300, memory=12, ways=("two", "three", "lab")),
    _c("storm", case="long", args=("11", "500"), seconds=300),
]
