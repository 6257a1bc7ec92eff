"""Ranges of entries: how they are cut into tasks, and how much of them a batch of a stream takes.

    rides/0   [ 1 ............. 9,000 )          minPartitions = 4      [1,3000) [3000,6000) [6000,9000)
    rides/1   [ 40 .. 1,040 )                                           [40,1040)

Pure: the same ranges and numbers give the same tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from .offsets import Offsets, Place


class Range(NamedTuple):
    """Entries first <= number < next."""

    topic: str
    topic_id: int  # 0: any of that name
    partition: int
    first: int
    next: int

    @property
    def rows(self) -> int:
        return self.next - self.first

    @property
    def place(self) -> Place:
        return self.topic, self.partition


def split(ranges: list[Range], least: int | None, most: int | None) -> list[Range]:
    """Pieces of at most so many rows, and at least so many pieces, if there are as many rows; in order."""
    pieces = [piece for each in ranges if each.rows > 0 for piece in _cut(each, _parts(each, most))]
    total = sum(piece.rows for piece in pieces)
    if least is None or len(pieces) >= least or not total:
        return pieces
    return [
        part
        for piece in pieces
        # Rounded up, so that there are as many as was asked for.
        for part in _cut(piece, min(piece.rows, -(-piece.rows * least // total)))
    ]


def admitted(start: Mapping[Place, int], end: Mapping[Place, int], rows: int | None) -> Offsets:
    """Where a batch ends that may have so many rows: all get the same share of what they are behind."""
    behind = {place: max(0, number - start.get(place, number)) for place, number in end.items()}
    total = sum(behind.values())
    if rows is None or total <= rows:
        return dict(end)
    shares = {place: count * rows // total for place, count in behind.items()}
    left = rows - sum(shares.values())
    # What is left by rounding goes to those that lost most by it, so that nobody waits for ever.
    lost = sorted(behind, key=lambda place: (-(behind[place] * rows % total), place))
    for place in lost[:left]:
        shares[place] += 1
    return {place: number - behind[place] + shares[place] for place, number in end.items()}


def rows_of(
    start: Mapping[Place, int], end: Mapping[Place, int], size: int, sizes: Mapping[Place, float]
) -> int:
    """How many rows have about so many bytes, if those of each partition have the sizes that they have
    on average; at least one.
    """
    behind = {place: max(0, number - start.get(place, number)) for place, number in end.items()}
    rows = sum(behind.values())
    total = sum(count * sizes.get(place, 0.0) for place, count in behind.items())
    return max(1, rows if total <= size else int(rows * size / total))


def _parts(each: Range, most: int | None) -> int:
    return 1 if most is None else -(-each.rows // most)


def _cut(each: Range, parts: int) -> list[Range]:
    """As many parts of nearly the same size."""
    ends = [each.first + each.rows * part // parts for part in range(parts + 1)]
    return [
        each._replace(first=first, next=next_) for first, next_ in pairwise(ends) if first < next_
    ]
