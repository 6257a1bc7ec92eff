"""Volume: what ten million entries cost in memory, in time, and at the next start.

    fill ─► figures ─► orderly stop ─► restart ─► go on ─► kill -9 ─► restart

Each arrow is a process of its own (bench_child.py), so that what one leaves in memory does not
count for the next.  Files are real, at level write, and the page cache is warm.  `kill -9` strikes
just before the next snapshot is there, when there is most to be applied again.

Memory is the peak of the process, mapped files and the interpreter (about 30 MB) included.  What
a produce costs by then is compared with what it costs in a node of a thousand entries, in the same
process and in turns, so that whatever else the machine does strikes both.
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
    folder, what = settings.folder / "topics", f"{count:,} topics of 10 entries"
    with Child(settings, what, "topics", folder, topics=count) as child:
        found = child.until("topics", count)
        child.end()
    yield Figure(
        name=f"memory, {what}, one producer for all",
        measured=found["resident_max"],
        unit="MB",
        goal=at_most(150),
    )
    yield from _restart(settings, folder, f"after an orderly stop, {what}", 2, 150)
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
    for kind, found in (("pipelined", filled["blocks"]), ("by itself", filled["alone"])):
        big, small = _mean(found["big"]), _mean(found["small"])
        yield Figure(
            name=f"a produce, {kind}, {size}",
            measured=big[0],
            unit="CPU µs",
            limit=small[0],
            limit_name="in a node of 1,000",
            ratio=median([one[0] / other[0] for one, other in zip(*found.values(), strict=True)]),
            goal=at_most(DRIFT_MAX, of_ratio=True),
            note=f"and {big[1]:.1f} µs in the kernel, {small[1]:.1f} in the small one",
        )
    yield Figure(name=f"orderly stop, {what}", measured=stopped, unit="s")
    yield from _restart(settings, folder, f"after an orderly stop, {what}", 2, memory)
    with Child(settings, f"{what}, before kill -9", "go-on", folder, batch=batch) as child:
        told = child.until("acknowledged")
    yield from _restart(settings, folder, f"after kill -9, {what}", 5, memory, told["acknowledged"])
    shutil.rmtree(folder)


def _restart(
    settings: Settings, folder: Path, what: str, seconds: float, memory: float, last: int = 0
) -> Iterator[Figure]:
    with Child(settings, f"restart {what}", "restart", folder) as child:
        ready = child.until("ready")
        after = child.until("last")
        child.end()
    assert after["last"] >= last, (
        f"entries {after['last']} to {last} were acknowledged, and are gone"
    )
    assert after["read"] == min(10, after["last"]), "the newest entries cannot be read"
    yield Figure(
        name=f"restart {what}",
        measured=ready["ready"],
        unit="s",
        goal=at_most(seconds),
        note=f"{ready['ready_cpu']:.2f} s of CPU; {after['replayed_entries']:,} entries in "
        f"{after['replayed']:,} items applied again",
    )
    yield Figure(
        name=f"memory then, {what}",
        measured=after["resident_max"],
        unit="MB",
        goal=at_most(memory),
    )


def _mean(blocks: list[list[float]]) -> list[float]:
    """Microseconds of a produce: its own, and the kernel's."""
    return [1e6 * sum(each) / len(blocks) for each in zip(*blocks, strict=True)]


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
