"""Where things are."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENDORS = Path(os.environ.get("GRIDMPI_VENDORS", ROOT / ".vendors"))
OUT = Path(os.environ.get("GRIDMPI_OUT", ROOT / "out"))
PROGRAMS = ROOT / "tests" / "programs"
BUILD = OUT / "tests" / "bin"
LOGS = OUT / "tests" / "log"


def gridmpi() -> Path:
    """The program under test: $GRIDMPI, else what `make` built."""
    return Path(os.environ.get("GRIDMPI", OUT / "bin" / "gridmpi")).absolute()
