"""Runs mpi4py's own test suite (its `main.py`) in this rank and writes down how each test ended.

    mpi4py_rank.py SUITE_DIRECTORY RECORDS_DIRECTORY SECONDS [ARGUMENTS OF main.py]...

One line of JSON for each event, in RECORDS_DIRECTORY/RANK.jsonl, written at once: a test that never ends is the last
one there without an end. After SECONDS in one test this rank writes where it is, and leaves.
"""

import faulthandler
import json
import os
import sys
import unittest
from pathlib import Path

suite, records, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
sys.argv[1:] = sys.argv[4:]
sys.argv[0] = str(suite / "main.py")
sys.path.insert(0, str(suite))
sys.dont_write_bytecode = True


class Result(unittest.TextTestResult):
    """Ends of tests, as lines in a file."""

    out = None

    def record(self, event, test, why=""):
        if Result.out is None:
            from mpi4py import MPI

            rank = MPI.COMM_WORLD.Get_rank()
            Result.out = (records / f"{rank}.jsonl").open("w", encoding="utf-8")
        Result.out.write(json.dumps({"event": event, "test": test.id(), "why": why}) + "\n")
        Result.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self.record("start", test)
        faulthandler.dump_traceback_later(seconds, exit=True)

    def stopTest(self, test):
        super().stopTest(test)
        self.record("stop", test)
        faulthandler.cancel_dump_traceback_later()

    def addError(self, test, err):
        super().addError(test, err)
        self.record("error", test, self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.record("failure", test, self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.record("failure", test, self._exc_info_to_string(err, test))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.record("failure", test, "unexpected success")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.record("skip", test, reason)


class Runner(unittest.TextTestRunner):
    """The usual one, with our result."""

    resultclass = Result


if __name__ == "__main__":
    os.chdir(suite)
    from main import main

    main(module=None, testRunner=Runner)
