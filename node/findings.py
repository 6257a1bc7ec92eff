"""Findings: what recovery tells of damage, and what it does about it.

A *stretch* is damaged, and at first nobody knows what lay there.  What is proven to have been there
is a *repair*; what is lost of the row is a *hole* in it.  Everything is told, mended or not.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from .damage import Damage
from .errors import Corrupt
from .places import offset_of, segment_of
from .records import PREFIX_BYTES, RecordKind, encode
from .segments import segment_file


class Hole(NamedTuple):
    """Positions whose content is lost; `last` 0: whatever came from `first` on."""

    first: int
    last: int
    damage: Damage


def end_at(hole: Hole) -> Corrupt:
    """Why the row ends before it."""
    return Corrupt(f"the row ends at position {hole.first - 1}: {hole.damage}")


class Repair(NamedTuple):
    """Bytes that are proven to have been there."""

    segment: int
    offset: int
    content: bytes


class Stretch(NamedTuple):
    """Damaged bytes, from one good record to the next."""

    segment: int
    offset: int
    length: int
    seed: int
    start_count: int  # of the record before it; `durable` too
    durable: int


@attrs.define
class Findings:
    damages: list[Damage] = attrs.field(factory=list, init=False)
    holes: list[Hole] = attrs.field(factory=list, init=False)
    repairs: list[Repair] = attrs.field(factory=list, init=False)

    def tell(self, stretch: Stretch, what: str, *, mended: bool = False) -> Damage:
        file = segment_file(stretch.segment)
        damage = Damage(file, stretch.offset, stretch.length, what, mended=mended)
        self.damages.append(damage)
        return damage

    def hole(self, first: int, last: int, damage: Damage) -> None:
        damage = attrs.evolve(damage, first=first, last=last)
        self.damages.append(damage)
        self.holes.append(Hole(first, last, damage))

    def lose(self, first: int, last: int, segment: int, where: int, what: str) -> None:
        file = segment_file(segment_of(where) or segment)
        self.hole(first, last, Damage(file, offset_of(where), PREFIX_BYTES, what))

    def repair(self, stretch: Stretch, kind: int, head: bytes, what: str) -> None:
        content = encode(
            kind,
            head,
            seed=stretch.seed,
            offset=stretch.offset,
            start_count=stretch.start_count,
            durable=stretch.durable,
        )
        self.put_back(stretch, content, what)

    def put_back(self, stretch: Stretch, content: bytes, what: str) -> None:
        assert len(content) == stretch.length
        self.repairs.append(Repair(stretch.segment, stretch.offset, content))
        self.tell(stretch, what, mended=True)

    def fill(self, stretch: Stretch, what: str) -> None:
        """With a MARK of that length: it was not needed, and must not look damaged once more is behind it."""
        self.repair(stretch, RecordKind.MARK, bytes(stretch.length - PREFIX_BYTES), what)

    def mend_mark(self, stretch: Stretch) -> bool:
        """True: it was a MARK, since every other kind of record is longer."""
        if stretch.length != PREFIX_BYTES:
            return False
        self.repair(stretch, RecordKind.MARK, b"", "how much had been durable")
        return True
