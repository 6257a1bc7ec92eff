"""Commands: how long a person waits for the first help, beside a Python that does nothing.

Both are whole processes, started in turns; the figure is the time until the process has ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from .bench_figures import Figure, Rounds, Settings, at_most

HELP_MS: Final = 150
TURNS: Final = 31
HELP: Final = (sys.executable, "-m", "duckrow.tools.cli", "--help")
NOTHING: Final = (sys.executable, "-c", "pass")


def first_help(settings: Settings) -> Iterator[Figure]:
    ours: list[float] = []
    bare: list[float] = []
    for turn in range(settings.scaled(TURNS, 5)):
        ours.append(_seconds(HELP))
        bare.append(_seconds(NOTHING))
        settings.tell(f"{turn + 1} processes")
    yield Figure.of("duckrow --help", Rounds.of(ours, 1e3), "ms", at_most(HELP_MS))
    yield Figure.of("a Python that does nothing", Rounds.of(bare, 1e3), "ms")


def _seconds(words: Sequence[str]) -> float:
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # also where it is not installed
    began = time.perf_counter()
    subprocess.run(words, env=environ, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
