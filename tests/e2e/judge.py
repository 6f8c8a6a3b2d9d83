"""Did a program do what it should?"""

import re

from .process import Result
from .programs import Program


def problem(program: Program, result: Result, kind: str) -> str | None:
    """What is wrong with how a run of `program` ended; None if nothing is."""
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
    if program.exit_code == 0:
        count = len(re.findall(rf"^(?:\[[^]]*\] ?)?ok {re.escape(program.name)} on ", result.output, re.MULTILINE))
        if count != 1:
            return f"it said ok {count} times: {_telling_line(result.output)}"
    return None


def _expected(program: Program, kind: str) -> tuple[str, ...]:
    if kind == "alone":
        # A vendor's own launcher may end before it has passed on what an aborting program printed last.
        return program.expect if program.exit_code == 0 else ()
    return program.expect + (() if kind == "one" else program.expect_across)


def _exit_problem(program: Program, result: Result, through_gridmpi: bool) -> str | None:
    if through_gridmpi or program.exit_code == 0:
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
