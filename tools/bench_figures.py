"""Figures: what was measured, what it is compared with, and what it should have reached.

Two cores that others use as well give no absolute speed that means anything.  So a figure is either
the ratio to a limit that was taken *in turns* with it, or CPU time, which the others only disturb
by what they do to the caches:

    ours  limit  ours  limit  ours  limit        ratio = median of the ratios of neighbours
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import attrs


@attrs.frozen
class Goal:
    """A figure, or its ratio, should be at least, or at most, so much."""

    value: float
    at_least: bool = True
    of_ratio: bool = False

    def holds(self, measured: float, ratio: float | None) -> bool:
        found = ratio if self.of_ratio else measured
        assert found is not None, "a goal of a ratio needs one"
        return found >= self.value if self.at_least else found <= self.value

    def __str__(self) -> str:
        what = "ratio " if self.of_ratio else ""
        return f"{what}{'≥' if self.at_least else '≤'} {number(self.value)}"


def at_least(value: float, *, of_ratio: bool = False) -> Goal:
    return Goal(value, True, of_ratio)


def at_most(value: float, *, of_ratio: bool = False) -> Goal:
    return Goal(value, False, of_ratio)


@attrs.frozen(kw_only=True)
class Figure:
    name: str
    measured: float
    unit: str
    limit: float | None = None  # what it is compared with, in the same unit
    limit_name: str = ""
    ratio: float | None = None
    goal: Goal | None = None  # None: for information
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "ok" if self.goal.holds(self.measured, self.ratio) else "short"

    def as_json(self) -> dict[str, object]:
        found = attrs.asdict(self, recurse=False)
        found["goal"] = None if self.goal is None else str(self.goal)
        return {key: value for key, value in found.items() if value not in (None, "")} | {
            "verdict": self.verdict or "information"
        }


@attrs.frozen(kw_only=True)
class Settings:
    """What a case has to know of how it is run."""

    folder: Path  # for its files; the caller removes it
    quick: bool
    entries: int  # of the volume cases
    tell: Callable[[str], None]  # how far it is, for whoever watches


@attrs.frozen
class Case:
    name: str
    what: str
    run: Callable[[Settings], Iterator[Figure]]


def in_turns(
    ours: Callable[[], float], limit: Callable[[], float], turns: int
) -> tuple[float, float, float]:
    """Median of each, and of the ratios of neighbours.  One turn more, the first, does not count."""
    ours(), limit()
    pairs = [(ours(), limit()) for _ in range(turns)]
    ratio = median([one / other for one, other in pairs])
    return median([one for one, _ in pairs]), median([other for _, other in pairs]), ratio


def machine() -> dict[str, object]:
    """What the figures depend on."""
    cpu = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    memory = [line for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
    return {
        "cpu": cpu[0].split(":", 1)[1].strip() if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory": memory[0].split(":", 1)[1].strip() if memory else "unknown",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "flags": sys.flags.optimize,
        "load": [round(each, 2) for each in os.getloadavg()],
    }


def number(value: float) -> str:
    """Three digits that count."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g} M"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
