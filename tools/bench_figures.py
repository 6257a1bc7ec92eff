"""Figures: what was measured, and the target beside it.

Two cores that others use as well give no absolute speed that means anything.  So a figure is either
the ratio to a limit that was taken *in turns* with it, or CPU time, which the others only disturb
by what they do to the caches:

    ours  limit  ours  limit  ours  limit        ratio = median of the ratios of neighbours

The spread says where the middle eight of ten rounds lie.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import attrs


@attrs.frozen
class Target:
    """A figure should be at least, or at most, so much."""

    value: float
    least: bool

    def met(self, measured: float) -> bool:
        return measured >= self.value if self.least else measured <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {number(self.value)}"


def at_least(value: float) -> Target:
    return Target(value, least=True)


def at_most(value: float) -> Target:
    return Target(value, least=False)


class Rounds(NamedTuple):
    """The same measured several times."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], scale: float = 1.0) -> Rounds:
        scaled = [scale * value for value in values]
        if len(scaled) < 2:
            return cls(scaled[0], scaled[0], scaled[0])
        tenths = quantiles(scaled, n=10, method="inclusive")
        return cls(median(scaled), tenths[0], tenths[-1])


@attrs.frozen(kw_only=True)
class Figure:
    name: str
    measured: float
    unit: str
    rounds: Rounds | None = None  # None: it was measured once
    target: Target | None = None  # None: for information
    note: str = ""

    @classmethod
    def of(
        cls, name: str, rounds: Rounds, unit: str, target: Target | None = None, note: str = ""
    ) -> Figure:
        return cls(
            name=name,
            measured=rounds.median,
            unit=unit,
            rounds=rounds,
            target=target,
            note=note,
        )

    @property
    def met(self) -> bool | None:
        """None: it has no target."""
        return None if self.target is None else self.target.met(self.measured)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "measured": self.measured,
            "unit": self.unit,
            "spread": None if self.rounds is None else [self.rounds.low, self.rounds.high],
            "target": None if self.target is None else str(self.target),
            "met": self.met,
            "note": self.note,
        }


@attrs.frozen(kw_only=True)
class Settings:
    """What a group has to know of how it is run."""

    folder: Path  # for its files; the caller removes it
    entries: int  # how many are many; the other sizes follow from `size`
    size: float  # 1: as it is meant to be; less: smaller, quicker and less exact
    tell: Callable[[str], None]  # how far it is, for whoever watches

    def scaled(self, count: int, least: int) -> int:
        return max(least, int(count * self.size))


@attrs.frozen
class Group:
    name: str
    what: str
    run: Callable[[Settings], Iterator[Figure]]


class NoRoomError(Exception):
    """The group cannot be run here."""


def median_us(do: Callable[[], object], count: int) -> float:
    """Of so many calls."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return 1e6 * median(times)


def ratios(ours: Sequence[float], limit: Sequence[float]) -> Rounds:
    """Of what was measured in turns."""
    return Rounds.of([one / other for one, other in zip(ours, limit, strict=True)])


def machine() -> dict[str, object]:
    """What the figures depend on."""
    cpu = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    memory = [line for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
    return {
        "cpu": cpu[0].split(":", 1)[1].strip() if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": memory[0].split(":", 1)[1].strip() if memory else "unknown",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": [round(each, 2) for each in os.getloadavg()],
    }


def pace() -> float:
    """CPU nanoseconds of a turn of a plain loop: how fast this machine, and this Python, are just now.

    The same machine takes twice as long on another day, where others share its caches or its clock.
    """
    found = []
    for _ in range(15):
        began, total = time.process_time_ns(), 0
        for each in range(100_000):
            total += each
        found.append((time.process_time_ns() - began) / 100_000)
    return median(found)


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
