"""Volume: what ten million entries cost in memory, in time, and at the next start.

    fill ─► figures ─► orderly stop ─► restart ─► go on ─► kill -9 ─► restart

Each arrow is a process of its own (bench_child.py), so that what one leaves in memory does not
count for the next.  Files are real, at level write, and the page cache is warm.  `kill -9` strikes
just before the next snapshot is there, when there is most to be applied again.

Memory is the peak of the process, mapped files and the interpreter (about 30 MB) included.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Final, Self

from .bench_figures import Figure, Settings, at_most

DRIFT_MAX: Final = 1.15
EDGE: Final = 20  # blocks at either end that are compared; the very first is left out
BYTES_OF_A_PRODUCE: Final = 420  # on the disk, with its place in the index, and much to spare
BYTES_OF_AN_ENTRY: Final = 125
SPARE_SHARE: Final = 0.05  # of the disk: nodes refuse to fill it


class NoRoomError(Exception):
    """The case cannot be run here."""


def batches(settings: Settings) -> Iterator[Figure]:
    yield from _volume(settings, batch=100, memory=120, what="batches of 100")


def singles(settings: Settings) -> Iterator[Figure]:
    yield from _volume(settings, batch=1, memory=200, what="single produces, 64 in flight")


def topics(settings: Settings) -> Iterator[Figure]:
    count = 1_000 if settings.quick else 10_000
    folder = settings.folder / "topics"
    with Child(settings, f"{count:,} topics", "topics", folder, topics=count) as child:
        found = child.until("topics", count)
    yield Figure(
        name=f"memory with {count:,} topics of 10 entries, one producer for all",
        measured=found["resident_max"],
        unit="MB",
        goal=at_most(150),
    )
    with Child(settings, f"{count:,} topics, restart", "restart", folder) as child:
        ready = child.until("ready")["ready"]
        found = child.until("last")
    yield Figure(name=f"restart with {count:,} topics", measured=ready, unit="s", goal=at_most(2))
    yield Figure(name="memory after it", measured=found["resident_max"], unit="MB")
    shutil.rmtree(folder)


def _volume(settings: Settings, *, batch: int, memory: float, what: str) -> Iterator[Figure]:
    entries = settings.entries
    _check_room(settings.folder, entries * (BYTES_OF_AN_ENTRY + BYTES_OF_A_PRODUCE // batch))
    folder = settings.folder / f"volume-{batch}"
    size = f"{entries:,} entries, {what}"
    with Child(settings, what, "fill", folder, entries=entries, batch=batch) as child:
        filled = child.until("filled")
        stopped = child.end()["stopped"]
    yield Figure(
        name=f"memory, {size}",
        measured=filled["resident_max"],
        unit="MB",
        goal=at_most(memory),
        note=f"{filled['anonymous']:.0f} MB without mapped files; filled in {filled['seconds']:.0f} s",
    )
    blocks = filled["blocks"]
    early, late = median(blocks[1 : EDGE + 1]) * 1e6, median(blocks[-EDGE:]) * 1e6
    yield _drift(f"a produce at the end of {size}", late, early)
    first, last = filled["alone"]
    yield _drift(f"a produce of one entry by itself, the same, {what}", last * 1e6, first * 1e6)
    yield Figure(name=f"orderly stop, {what}", measured=stopped, unit="s")

    with Child(settings, f"{what}, restart", "restart", folder) as child:
        ready = child.until("ready")["ready"]
        after = child.until("last")
        child.end()
    yield Figure(
        name=f"restart after an orderly stop, {what}", measured=ready, unit="s", goal=at_most(2)
    )
    assert after["read"] == min(10, after["last"]), "the newest entries cannot be read"
    assert after["last"] >= filled["filled"], "entries are missing"

    with Child(settings, f"{what}, before kill -9", "go-on", folder, batch=batch) as child:
        told = child.until("acknowledged")
    with Child(settings, f"{what}, after kill -9", "restart", folder) as child:
        ready = child.until("ready")["ready"]
        after = child.until("last")
        child.end()
    assert after["last"] >= told["acknowledged"], "acknowledged entries are missing"
    yield Figure(
        name=f"restart after kill -9, {what}",
        measured=ready,
        unit="s",
        goal=at_most(5),
        note=f"{after['replayed_entries']:,} entries in {after['replayed']:,} items applied again",
    )
    yield Figure(
        name=f"memory after that restart, {what}",
        measured=after["resident_max"],
        unit="MB",
        goal=at_most(memory),
    )
    shutil.rmtree(folder)


def _drift(name: str, late: float, early: float) -> Figure:
    return Figure(
        name=name,
        measured=late,
        unit="CPU µs",
        limit=early,
        limit_name="at the beginning",
        ratio=late / early,
        goal=at_most(DRIFT_MAX, of_ratio=True),
    )


def _check_room(folder: Path, needed: int) -> None:
    usage = shutil.disk_usage(folder)
    if usage.free < needed + SPARE_SHARE * usage.total:
        raise NoRoomError(
            f"{needed / 1e9:.1f} GB are needed and {usage.free / 1e9:.1f} GB of a disk of "
            f"{usage.total / 1e9:.0f} GB are free in {folder}: name another folder with --dir, or "
            "fewer entries with --entries"
        )


class Child:
    """A process that tells what it finds, line by line; killed if it is left before it ended."""

    def __init__(
        self, settings: Settings, title: str, what: str, folder: Path, **options: int
    ) -> None:
        self._settings, self._title = settings, title
        arguments = [f"--{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "duckrow.tools.bench_child", what, str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def until(self, name: str, value: object = None) -> dict[str, Any]:
        """The line that has this fact, and perhaps this value of it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            facts: dict[str, Any] = json.loads(line)
            if name in facts and (value is None or facts[name] == value):
                return facts
            if "entries" in facts:
                self._settings.tell(
                    f"{self._title}: {facts['entries']:,} entries, {facts['rate']:,.0f}/s"
                )
        raise RuntimeError(f"{self._title}: the process ended with {self._process.wait()}")

    def end(self) -> dict[str, Any]:
        """In order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.until("stopped")

    def __enter__(self) -> Self:
        self._settings.tell(self._title)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
