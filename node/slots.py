"""The seqs of one lane of a client: those that somebody waits for, and those that were accepted.

    open    ··· 7 OUT   8 PARKED   9 READY        each gets an answer that somebody is told
    kept    4   5   6                             told already: accepted, and not known to be ordered

What was accepted is on the disk of one machine alone.  It is kept until that machine says that it is
ordered: on the way to another machine it goes again, before all that came later, since nothing of a
lane is applied where something before it is missing.  Which copy comes first does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from .commands import Command
from .errors import DuckrowError
from .parts import Part

READY, OUT, PARKED = range(3)


class Slot:
    """A seq, from when its batch was made until it is known what became of it."""

    __slots__ = (
        "accepted",
        "again",
        "command",
        "is_told",
        "newest",
        "parts",
        "seq",
        "state",
        "stop",
    )

    def __init__(self, seq: int, command: Command, parts_: list[Part]) -> None:
        self.seq, self.command, self.parts = seq, command, parts_
        self.state = READY
        self.accepted = bool(parts_) and parts_[0].accepted  # that is enough for who waits
        self.is_told = False  # that it was accepted: it is never withdrawn any more
        self.newest: Sent | None = None  # the copy that was sent last
        self.again = False  # an earlier copy may have been applied
        self.stop: DuckrowError | None = None  # skips go, and this is told if it never came

    @property
    def is_unused(self) -> bool:
        """The node refused it, and nobody waits for it any more: its seq is in no row."""
        return self.state == READY and self.stop is not None and not (self.again or self.parts)


class Sent:
    """What goes out once: the batch of a slot, or a skip in its place."""

    __slots__ = ("accepted", "command", "is_skip", "slot")

    def __init__(self, slot: Slot, command: Command, *, is_skip: bool = False) -> None:
        self.slot, self.command, self.is_skip = slot, command, is_skip
        self.accepted = slot.accepted and not is_skip  # that is enough for who waits


class Slots:
    """Iterates over those that are open, in the order of their seqs."""

    def __init__(self) -> None:
        self.last = 0  # seq of the last batch
        self.open: dict[int, Slot] = {}  # by seq, in ascending order
        self._kept: dict[int, Slot] = {}

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.open.values())

    def __len__(self) -> int:
        return len(self.open)

    def __contains__(self, slot: Slot) -> bool:
        """It is not known yet what became of it."""
        return self.open.get(slot.seq) is slot or self._kept.get(slot.seq) is slot

    @property
    def are_over(self) -> bool:
        """Nothing is open or kept."""
        return not (self.open or self._kept)

    @property
    def first(self) -> int:
        """The lowest seq that is open; beyond the last, if none is."""
        return next(iter(self.open), self.last + 1)

    @property
    def newest(self) -> Slot | None:
        return self.open.get(self.last)

    def add(self, slot: Slot) -> None:
        self.last = slot.seq
        self.open[slot.seq] = slot

    def settle(self, slot: Slot) -> None:
        if self.open.pop(slot.seq, None) is None:
            del self._kept[slot.seq]
        slot.newest = None  # which names the slot: a ring would keep its body for the collector

    def take_back(self) -> None:
        """The newest seqs that are in no row are free for the next batches."""
        while (newest := self.newest) is not None and newest.is_unused:
            del self.open[self.last]
            self.last -= 1

    def keep(self, slot: Slot, accepted: Sent) -> None:
        """It was told to be accepted: nobody waits any more, and a skip that is out comes too late."""
        self._kept[slot.seq] = self.open.pop(slot.seq, slot)
        slot.is_told, slot.stop, slot.parts, slot.newest = True, None, [], accepted

    def let_go(self, slot: Slot) -> None:
        """There is no memory for it here: it is left to the machine that accepted it."""
        if self._kept.get(slot.seq) is slot:
            self.settle(slot)

    def reopen(self, since: int) -> bool:
        """What was accepted has to go again, from here on.  False: it is not here any more."""
        again = [slot for seq, slot in self._kept.items() if seq >= since]
        for slot in again:
            del self._kept[slot.seq]
            self.open[slot.seq] = slot
            slot.state, slot.again = READY, True
        if again:
            self.open = dict(sorted(self.open.items()))
        return since in self.open

    def forget_kept(self) -> None:
        self._kept.clear()

    def clear(self) -> None:
        self.open.clear()
        self._kept.clear()
