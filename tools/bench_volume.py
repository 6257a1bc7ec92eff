"""Volume: what ten million entries cost in memory, in time, and at the next start.

    fill ─► figures ─► orderly stop ─► restart ─► read all ─► go on ─► kill -9 ─► restart

Each arrow is a process of its own (bench_child.py), so that what one leaves in memory does not
count for the next.  Files are real, at level write, and the page cache is warm.  `kill -9` strikes
just before the next snapshot is there, when there is most to be applied again.

Memory is the peak of the process, mapped files and the interpreter (about 30 MB) included.  What
a produce costs by then is compared with what it costs in a node of a thousand entries, in the same
process and in turns, so that whatever else the machine does strikes both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from duckrow.node.limits import MIB

from .bench_figures import Figure, NoRoomError, Settings, Target, at_most, ratios

DRIFT_MAX: Final = 1.15
READY_SECONDS: Final = 1.0  # from the start of the process
BYTES_OF_A_PRODUCE: Final = 420  # on the disk, with its place in the index, and much to spare
BYTES_OF_AN_ENTRY: Final = 125
SPARE_SHARE: Final = 0.05  # of the disk: nodes refuse to fill it
STEP: Final = 1_000  # through single entries: less than two index pages of 64 KiB have
SMALLEST: Final = {"segment": 8 * MIB, "snapshot": 2_000}  # of a node that is filled with less


def batches(settings: Settings) -> Iterator[Figure]:
    yield from _volume(settings, batch=100, memory=at_most(120), what="batches of 100", step=1)


def singles(settings: Settings) -> Iterator[Figure]:
    yield from _volume(settings, batch=1, memory=at_most(200), what="single produces", step=STEP)


def topics(settings: Settings) -> Iterator[Figure]:
    count = settings.scaled(10_000, 100)
    folder = settings.folder / "node"
    with Child(settings, "topics", "topics", folder, topics=count) as child:
        found = child.until("topics", count)
        child.end()
    yield _memory(found, f"memory, {count:,} topics of 10 entries", at_most(150))
    yield from _restart(settings, folder, "after an orderly stop", at_most(150))


def _volume(
    settings: Settings, *, batch: int, memory: Target, what: str, step: int
) -> Iterator[Figure]:
    entries = settings.entries
    _check_room(settings.folder, entries * (BYTES_OF_AN_ENTRY + BYTES_OF_A_PRODUCE // batch))
    folder = settings.folder / "node"
    turns = settings.scaled(15, 3)
    with Child(settings, what, "fill", folder, entries=entries, batch=batch, turns=turns) as child:
        filled = child.until("filled")
        stopped = child.end()["stopped"]
    yield _memory(
        filled,
        f"memory, {entries:,} entries, {what}",
        memory,
        f"filled in {filled['seconds']:.0f} s",
    )
    for kind, found in (("64 in flight", filled["blocks"]), ("one by one", filled["alone"])):
        big, small = _mean(found["big"]), _mean(found["small"])
        yield Figure.of(
            f"CPU of a produce then, {kind}",
            ratios([each[0] for each in found["big"]], [each[0] for each in found["small"]]),
            "of a new node",
            at_most(DRIFT_MAX),
            f"{big[0]:.1f} CPU µs, and {small[0]:.1f} in the new node in turns with it; in the "
            f"kernel, for pages of its cache, {big[1]:.1f} and {small[1]:.1f} more",
        )
    yield Figure(name="orderly stop", measured=stopped, unit="s")
    yield from _restart(settings, folder, "after an orderly stop", memory)
    with Child(settings, f"{what}: reading", "read", folder, step=step) as child:
        read = child.until("pulls")
        child.end()
    how = "every entry was pulled" if step == 1 else f"one of each {step:,} was pulled"
    yield _memory(
        read,
        "memory after reading through all of it",
        memory,
        f"{how}: {read['pulls']:,} pulls of {read['cpu'] / read['pulls'] * 1e6:.0f} CPU µs",
    )
    with Child(settings, f"{what}: until kill -9", "go-on", folder, batch=batch) as child:
        told = child.until("acknowledged")
    yield from _restart(settings, folder, "after kill -9", memory, told["acknowledged"])


def _restart(
    settings: Settings, folder: Path, what: str, memory: Target, last: int = 0
) -> Iterator[Figure]:
    with Child(settings, f"restart {what}", "restart", folder) as child:
        ready = child.until("ready")
        seconds = time.monotonic() - child.began
        after = child.until("last")
        child.end()
    if after["last"] < last or after["read"] != min(10, after["last"]):
        raise RuntimeError(
            f"restart {what}: {last:,} entries were answered, and {after['last']:,} are there; "
            f"{after['read']} of the last ten could be read"
        )
    yield Figure(
        name=f"restart {what}",
        measured=seconds,
        unit="s",
        target=at_most(READY_SECONDS),
        note=f"from the start of the process; {ready['ready']:.2f} s of it after imports, of them "
        f"{ready['ready_cpu']:.2f} s of CPU; {after['replayed_entries']:,} entries in "
        f"{after['replayed']:,} items applied again",
    )
    yield _memory(after, f"memory {what}", memory)


def _memory(found: Mapping[str, float], name: str, target: Target, note: str = "") -> Figure:
    mapped = f"{found['anonymous']:.0f} MB of it is not files of the page cache"
    return Figure(
        name=name,
        measured=found["resident_max"],
        unit="MB",
        target=target,
        note=f"{mapped}; {note}" if note else mapped,
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
        if settings.size < 1:
            options |= SMALLEST
        arguments = [f"--{name}={value}" for name, value in options.items()]
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "duckrow.tools.bench_child", what, str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
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
