"""Did a program do what it should?"""

import re

from .process import Result
from .programs import Program
from .vendors import Vendor

#: The exit code of a program whose check fails.
FAILED = 1


def problem(program: Program, result: Result, kind: str, ranks: tuple[int, ...] = ()) -> str | None:
    """What is wrong with how a run of `program` ended; None if nothing is. `ranks`: of each cluster, for programs of which is known
    who says what."""
    if result.timed_out:
        return f"not done within {program.seconds} s"
    if result.left:
        return f"left running: {'; '.join(result.left[:3])}"
    wrong = _exit_problem(program, result, kind != "alone")
    if wrong:
        return f"{wrong}: {_telling_line(result.output)}"
    for text in _expected(program, kind):
        if text not in result.output:
            return f"its output lacks {text!r}"
    if wrong := _count_problem(program, result, ranks if kind not in ("alone", "one") else ()):
        return wrong
    if program.exit_code == 0:
        count = len(re.findall(rf"^(?:\[[^]]*\] ?)?ok {re.escape(program.name)} on ", result.output, re.MULTILINE))
        if count != 1:
            return f"it said ok {count} times: {_telling_line(result.output)}"
    return None


def is_known(program: Program, result: Result, kind: str, ranks: list[Vendor]) -> bool:
    """Whether what went wrong looks like a known bug of a vendor, and like nothing else. `ranks`: the vendor of each."""
    if result.left or not program.known_bug(kind, ranks) or re.search("panicked|internal error", result.output):
        return False
    if program.bug_hangs:
        met = ranks[0].tag in program.vendor_bugs  # what hangs is the end of its input, which is rank 0's
        return met and result.timed_out and all(text in result.output for text in program.expect)
    if result.timed_out or result.code != FAILED:
        return False
    failures = [line for line in result.output.splitlines() if "FAIL " in line]
    # A vendor's own launcher may end before it has passed on what was said last.
    return bool(failures or kind == "alone") and all(_is_by_bug(program, line, ranks) for line in failures)


def _is_by_bug(program: Program, line: str, ranks: list[Vendor]) -> bool:
    who = re.search(r"FAIL \S+: rank (\d+) of", line)
    met = who is not None and ranks[int(who.group(1))].tag in program.vendor_bugs
    return met and bool(program.bug_looks) and re.search(program.bug_looks, line) is not None


def _count_problem(program: Program, result: Result, ranks: tuple[int, ...]) -> str | None:
    wanted = {text: sum(ranks) for text in program.each_rank_says} | {text: len(ranks) for text in program.each_cluster_says}
    for text, times in wanted.items() if ranks else ():
        if (found := result.output.count(text)) != times:
            return f"it says {text!r} {found} times, not {times}"
    return None


def _expected(program: Program, kind: str) -> tuple[str, ...]:
    if kind == "alone":
        # A vendor's own launcher may end before it has passed on what an aborting program printed last.
        return program.expect if program.exit_code == 0 else ()
    return program.expect + (() if kind == "one" else program.expect_across)


def _exit_problem(program: Program, result: Result, through_gridmpi: bool) -> str | None:
    if program.exit_code == 0 or (through_gridmpi and program.exit_code is not None):
        return None if result.code == program.exit_code else f"exit code {result.code}, not {program.exit_code}"
    return None if result.code != 0 else "exit code 0"


def _telling_line(output: str) -> str:
    """The line of a log that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in (r"FAIL ", r"panicked", r"^gridmpi", r"[Ee]rror|Fatal|signal|cannot"):
        for line in lines:
            if re.search(pattern, line):
                return line[:300]
    return lines[-1][:300] if lines else "no output"
