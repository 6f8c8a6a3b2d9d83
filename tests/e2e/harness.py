"""Tests of the harness: what must not pass does not. They run nothing but themselves."""

import fnmatch
import os
import sys
import tempfile
import time
import unittest
from dataclasses import replace
from pathlib import Path

from . import badinput, build, judge, noise, ways
from .process import Result
from .programs import ALL, EXTRA, Program
from .report import Tally
from .vendors import BY_TAG

_ENDED = Result(code=1, output="", seconds=1.0, timed_out=False, left=[])


def _known(program: Program, output: str, kind: str = "two", **how: object) -> bool:
    """Whether such an end, over Intel MPI and MPICH with two ranks each, counts as a bug of Intel's."""
    ranks = [BY_TAG[tag] for tag in ("im", "im", "dm", "dm")]
    return judge.is_known(program, replace(_ENDED, output=output, **how), kind, ranks)


class KnownBugs(unittest.TestCase):
    """A program that meets a bug of a vendor fails by everything else."""

    program = Program("bitten", Path("bitten.c"), vendor_bugs=("im",), bug_looks="not .*: 5, not 7", bug_everywhere=True)
    line = "FAIL bitten: rank 1 of 4, bitten.c:9: not (a == b): 5, not 7\n"

    def test_only_what_looks_like_the_bug_is_known(self) -> None:
        self.assertTrue(_known(self.program, self.line))
        other = self.line.replace("not 7", "not 8")
        for output in ("", other, self.line + other, self.line.replace("rank 1", "rank 2"), self.line.replace("rank 1", "?")):
            self.assertFalse(_known(self.program, output), output)
        self.assertFalse(_known(replace(self.program, bug_everywhere=False), self.line))
        self.assertFalse(_known(replace(self.program, vendor_bugs=("o5",)), self.line))

    def test_a_hang_a_panic_and_what_is_left_are_not(self) -> None:
        for how in ({"timed_out": True}, {"left": ["bitten"]}, {"code": 139}, {"code": 0}):
            self.assertFalse(_known(self.program, self.line, **how), how)
        self.assertFalse(_known(self.program, self.line + "gridmpi: internal error, please report it: panicked at x.rs:1"))

    def test_each_says_what_it_looks_like(self) -> None:
        for program in (*ALL, *EXTRA):
            self.assertEqual(bool(program.vendor_bugs), bool(program.bug_looks) or program.bug_hangs, program.label)
            self.assertFalse(program.bug_looks and program.bug_hangs, program.label)

    def test_a_hang_is_known_where_that_is_the_bug(self) -> None:
        hangs = replace(self.program, bug_looks="", bug_hangs=True, expect=("first", "second"))
        said = "first\nsecond\n"
        self.assertTrue(_known(hangs, said, timed_out=True))
        self.assertFalse(_known(hangs, said))
        self.assertFalse(_known(hangs, "first\n", timed_out=True))
        self.assertFalse(_known(hangs, said, timed_out=True, left=["bitten"]))
        self.assertFalse(_known(replace(hangs, vendor_bugs=("dm",)), said, timed_out=True), "rank 0 is not of that vendor")


class WhoSays(unittest.TestCase):
    """What is said by each rank, or by one of each cluster, is counted."""

    program = Program("telling", Path("telling.c"), each_rank_says=("no rate",), each_cluster_says=("a hint",))

    def problem(self, rates: int, hints: int, kind: str = "two") -> str | None:
        output = "no rate\n" * rates + "a hint\n" * hints + "ok telling on 4 ranks\n"
        return judge.problem(self.program, replace(_ENDED, code=0, output=output), kind, (2, 2))

    def test_neither_too_few_nor_too_many(self) -> None:
        self.assertIsNone(self.problem(4, 2))
        for rates, hints in ((3, 2), (0, 2), (4, 0), (4, 1), (4, 4)):
            self.assertIsNotNone(self.problem(rates, hints))

    def test_nobody_does_without_other_clusters(self) -> None:
        self.assertIsNone(self.problem(0, 0, "one"))
        self.assertIsNone(self.problem(0, 0, "alone"))


class Building(unittest.TestCase):
    """A program is made again when anything that it is made of has changed."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = Path(directory.name)
        self.source, self.binary = self.place / "a.c", self.place / "a"
        (self.place / "include").mkdir()
        self.source.write_text('#include <mpi.h>\n#include "include/b.h"\n')
        (self.place / "include" / "b.h").write_text('# include "c.h"\n')
        (self.place / "include" / "c.h").write_text("")
        for file in build.sources(self.source):
            os.utime(file, (1, 1))
        self.binary.write_text("")
        build.record(self.binary, ["cc", "a.c"])

    def test_headers_count(self) -> None:
        self.assertTrue(build.is_made(self.binary, self.source, ["cc", "a.c"]))
        later = time.time() + 10
        os.utime(self.place / "include" / "c.h", (later, later))
        self.assertFalse(build.is_made(self.binary, self.source, ["cc", "a.c"]))

    def test_so_does_the_command(self) -> None:
        self.assertFalse(build.is_made(self.binary, self.source, ["cc", "-O1", "a.c"]))

    def test_ours_are_found(self) -> None:
        names = {name: {file.name for file in build.sources(next(p for p in ALL if p.name == name).source)} for name in ("matb", "matb-fortran")}
        self.assertEqual(names, {"matb": {"matb.c", "check.h", "gridmpi.h"}, "matb-fortran": {"matb.f90", "gridmpif.h"}})


class Choosing(unittest.TestCase):
    """Each program has a way in which it runs without being named."""

    def test_none_is_forgotten(self) -> None:
        due = {program.label for program in ways.unnamed(full=True) if any(ways.is_due(program, kind) for kind in program.ways)}
        self.assertEqual(due, {program.label for program in (*ALL, *EXTRA)})

    def test_the_large_ones_take_their_time_once(self) -> None:
        self.assertFalse([program.label for program in ways.unnamed(full=False) if program in EXTRA])
        for program in EXTRA:
            self.assertEqual([kind for kind in program.ways if ways.is_due(program, kind)], ["two"], program.label)


class BadLuck(unittest.TestCase):
    """Bad luck that nobody noticed, or that never was, is a failure."""

    def test_what_is_missing_is_not_why_it_ended(self) -> None:
        notice = "gridmpi: waiting for cluster `{}`: not all of its 2 ranks have called MPI_Init yet\n"
        for bad in badinput.deaths():
            cluster = bad.name.split("-")[2]
            output = notice.format(cluster)
            self.assertIsNotNone(badinput.problem(bad, replace(_ENDED, output=output)), bad.name)
            other = "b" if cluster == "a" else "a"
            output += f"gridmpi: gave up after 8 s: waiting for cluster `{other}`\n"
            self.assertIsNotNone(badinput.problem(bad, replace(_ENDED, output=output)), bad.name)

    def test_noise_to_nobody_proves_nothing(self) -> None:
        heard = noise.Noise(("nothing",), 5, patience=0)
        self.assertIsNotNone(heard.wrong)
        heard.make("nobody's mark")
        self.assertIn("0 ports", heard.wrong or "")
        bad = badinput.Bad("noise", list, ("ok",), code=0, noise=heard)
        self.assertEqual(badinput.problem(bad, replace(_ENDED, code=0, output="ok")), heard.wrong)


def _each(tests: unittest.TestSuite) -> list[unittest.TestCase]:
    return [test for one in tests for test in (_each(one) if isinstance(one, unittest.TestSuite) else [one])]


def run_all(tally: Tally, patterns: list[str]) -> None:
    """Every test, or those whose names match."""
    for test in _each(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])):
        name = test.id().rpartition(".test_")[2].replace("_", "-")
        if patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            continue
        began, result = time.monotonic(), unittest.TestResult()
        test.run(result)
        if wrong := [text for _, text in (*result.failures, *result.errors)]:
            tally.fails("harness", name, time.monotonic() - began, wrong[0].strip().splitlines()[-1], "tests/e2e/harness.py")
        else:
            tally.passes("harness", name, time.monotonic() - began)
