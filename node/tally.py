"""Tallies: what a node has done since it started, counted where it costs nothing per entry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from .row import Bundle, Item

BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)


class Histogram:
    """How many seconds something took, in steps."""

    __slots__ = ("count", "counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.count = 0
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.count += 1
        self.sum += seconds

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """For each bound, how many took at most so long."""
        total = 0
        for bound, count in zip(BOUNDS, self.counts, strict=False):
            total += count
            yield bound, total


class Tally:
    """Of a keeper."""

    __slots__ = ("bundles", "bytes", "commands", "entries", "snapshot_position", "snapshot_time")

    def __init__(self) -> None:
        self.bundles = self.commands = 0
        self.entries = self.bytes = 0
        self.snapshot_position = 0  # of the last snapshot that this process wrote
        self.snapshot_time = 0.0  # when, by the clock of the loop

    def count(self, item: Item) -> None:
        """It came since the start."""
        if isinstance(item.content, Bundle):
            self.bundles += 1
            self.commands += len(item.content.commands)
