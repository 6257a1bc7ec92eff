"""What the index of numbers still says when the state is lost: which batch got which numbers.

A whole file of the index speaks of every item between two positions; an item in between that it
says nothing of has numbered nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from .numberfile import NumberFile, Row

Numbered = tuple[int, Row]  # key of the partition, and its batch


class Run(NamedTuple):
    """What one file has of a partition."""

    key: int
    rows: list[Row]
    size: int  # bytes of the bodies, about


class Remains:
    def __init__(self, files: Collection[NumberFile]) -> None:
        self._files = sorted(files, key=_upto)
        self._known: tuple[int, dict[int, list[Numbered]]] = -1, {}  # of one file, by position

    def at(self, position: int) -> list[Numbered] | None:
        """What the item there has numbered; None: no file speaks of it."""
        for file in self._files:
            if file.cover.after < position <= file.cover.upto:
                if self._known[0] != file.cover.segment:
                    self._known = file.cover.segment, _by_position(file)
                return self._known[1].get(position, [])
        return None

    def before(self, position: int) -> Iterator[Run]:
        """What was numbered before the item there, the newest first."""
        for file in reversed(self._files):
            if file.cover.after + 1 < position:
                for index, key in enumerate(file.keys.tolist()):
                    rows = [
                        row for row in file.decode(*file.span(index)) if row.position < position
                    ]
                    if rows:
                        yield Run(key, rows, file.sizes[index])


def _by_position(file: NumberFile) -> dict[int, list[Numbered]]:
    found: dict[int, list[Numbered]] = {}
    for index, key in enumerate(file.keys.tolist()):
        for row in file.decode(*file.span(index)):
            found.setdefault(row.position, []).append((key, row))
    return found


def _upto(file: NumberFile) -> int:
    return file.cover.upto
