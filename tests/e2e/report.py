"""One line for each test, and the sum of all."""

import sys
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What came out."""

    passed: int = 0
    failed: int = 0
    known: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def _line(self, word: str, where: str, what: str, rest: str) -> None:
        print(f"{word:5} {where:14} {what:22} {rest}", flush=True)

    def passes(self, where: str, what: str, seconds: float) -> None:
        self.passed += 1
        self._line("PASS", where, what, f"{seconds:6.1f} s")

    def fails(self, where: str, what: str, seconds: float, why: str, log: object) -> None:
        self.failed += 1
        self.failures.append(f"{where} {what}: {why} ({log})")
        self._line("FAIL", where, what, f"{seconds:6.1f} s  {why}  ({log})")

    def knows(self, where: str, what: str, seconds: float) -> None:
        self.known += 1
        self._line("KNOWN", where, what, f"{seconds:6.1f} s  a bug of the vendor alone")

    def skips(self, where: str, what: str, why: str) -> None:
        self.skipped += 1
        self._line("SKIP", where, what, why)

    def close(self) -> int:
        """Prints the closing line; the value is an exit code."""
        for failure in self.failures:
            print(f"failed: {failure}", file=sys.stderr)
        extra = f", {self.known} known vendor bugs" if self.known else ""
        extra += f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.passed} passed, {self.failed} failed{extra}", flush=True)
        return 1 if self.failed or not self.passed else 0
