"""What of the index is alive: leads into files, strays, and what dies when entries are pruned.

A *lead* says that a partition has rows in a segment's file, and with which number they begin:

    partition 7/1    (1, segment 3)   (4001, segment 4)   (9001, segment 9)
    pruned to 4500    gone             a part of it dead

A *stray* is a stretch of numbers whose bodies lie in an older segment than the one that numbered
them.  `usage` counts both by segment, see upkeep.py: pruning looks at the oldest lead and the oldest
stray of the partition, and at no row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from .errors import Corrupt
from .numberchain import LEAD_BITS, LEAD_MASK
from .numberfile import FIRST, NumberFile, Row, Stray
from .numbergrowing import Growing, Stretch
from .places import segment_of
from .upkeep import Usage

PLACES_AT_ONCE: Final = 512  # some hundred microseconds
# What a batch takes in a segment beside its body: 80 in a large bundle, 220 in one of its own.  So a
# segment full of small batches does not look dead; if it is, that shows a little later.
BATCH_BYTES: Final = 128
_ENDLESS: Final = 1 << 62


class Life:
    """By key of the partition; of what is dead nothing is kept."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.files: dict[int, NumberFile] = {}  # by segment
        # First number, segment << 32 | index in its directory, and so on.
        self.leads: dict[int, array[int]] = {}
        self._strays: dict[int, list[Stretch]] = {}  # in order of numbers
        self._firsts: dict[int, int] = {}  # lowest number that was not pruned, if not 1
        self._shrunk: dict[int, int] = {}  # bytes of the oldest lead that count as dead

    def load(self, file: NumberFile) -> list[int]:
        """Leads to all that is in a file; returns the keys that are new."""
        segment, leads = file.cover.segment, self.leads
        self.files[segment] = file
        lead, new = segment << LEAD_BITS, []
        # The loop that a restart takes its time with: hundreds of thousands of turns.
        for key, first in zip(file.keys.tolist(), file.firsts.tolist(), strict=True):
            of_key = leads.get(key)
            if of_key is None:
                of_key = leads[key] = array("Q")
                new.append(key)
            of_key.append(first)
            of_key.append(lead)
            lead += 1
        size = sum(file.sizes.tolist()) + BATCH_BYTES * file.rows
        self.usage.hold(segment, size, holders=len(file.keys))
        for stray in file.strays:
            self._hold(stray, -1)
        return new

    def lead(self, key: int, segment: int, index: int) -> None:
        """To the rows of one partition, which were in memory until now."""
        file = self.files[segment]
        self.leads.setdefault(key, array("Q")).extend(
            (file.firsts[index], segment << LEAD_BITS | index)
        )
        self.usage.hold(segment, _size(file, index))
        if key in self._firsts:
            self._trim(key, self._firsts[key])

    def stray(self, stray: Stray, growing: Growing) -> None:
        """Numbered just now by a segment that is still in memory."""
        live = self._strays.get(stray.key)
        # A commit numbers its stages one after the other: one stretch for those that lie together.
        if live and live[-1].adjoins(stray) and live[-1].numbered == growing.segment:
            live[-1].last = stray.last
            live[-1].size += stray.size
            self.usage.grow(stray.segment, stray.size)
        else:
            growing.strays.append(self._hold(stray, growing.segment))

    def prune(self, key: int, first: int) -> None:
        """Entries below `first` are gone."""
        if first <= self._firsts.get(key, 1):
            return  # said again by a replay
        self._firsts[key] = first
        if key in self.leads:
            self._trim(key, first)
        if key in self._strays:
            self._trim_strays(key, first)

    def first(self, key: int) -> int:
        """The lowest number that was not pruned."""
        return self._firsts.get(key, 1)

    def forget(self, key: int) -> None:
        """The partition is no more."""
        self._firsts.pop(key, None)
        if key in self.leads:
            self._trim(key, _ENDLESS)
            del self.leads[key]
        if key in self._strays:
            self._trim_strays(key, _ENDLESS)

    def drop(self, segment: int) -> None:
        """The store has dropped this dead segment; what is said about it goes too."""
        assert not self.usage.holders(segment), f"something of segment {segment} is alive"
        self.files.pop(segment, None)
        self.usage.forget(segment)

    def live_places(
        self, segment: int, rows: Callable[[int, int, int], list[Row]]
    ) -> Iterator[list[int]]:
        """The places of all live bodies in `segment`, some thousands a step.

        `rows` gives some rows of (key, number, limit) from a number on, wherever they lie.

        Raises:
            Corrupt: the index has lost some of them.
        """
        for some in self._numbered(segment):
            yield [row.place for row in some if segment_of(row.place) == segment]
        strays = [
            (key, stretch.first, stretch.last)
            for key, stretches in self._strays.items()
            for stretch in stretches
            if stretch.segment == segment
        ]
        for key, first, last in strays:
            number = max(first, self._firsts.get(key, 1))
            while number <= last:
                some = rows(key, number, PLACES_AT_ONCE)
                if not some:
                    raise Corrupt(f"the index does not know where the body of entry {number} lies")
                yield [row.place for row in some if row.first <= last]
                number = some[-1].last + 1

    def _numbered(self, segment: int) -> Iterator[list[Row]]:
        """Live rows that the segment numbered."""
        file = self.files.get(segment)
        if file is None:
            return
        for index, key in enumerate(file.keys.tolist()):
            if index % PLACES_AT_ONCE == PLACES_AT_ONCE - 1:
                yield []  # most partitions may have nothing
            first = self._firsts.get(key, 1)
            if key in self.leads and file.lasts[index] >= first:
                start, stop = file.span(index)
                start = max(start, file.lower_bound(start, stop, FIRST, first + 1) - 1)
                for at in range(start, stop, PLACES_AT_ONCE):
                    yield file.decode(at, min(stop, at + PLACES_AT_ONCE))

    def _hold(self, stray: Stray, numbered: int) -> Stretch:
        stretch = Stretch(stray, numbered)
        self._strays.setdefault(stray.key, []).append(stretch)
        self.usage.hold(stray.segment, stray.size)
        return stretch

    def _trim(self, key: int, first: int) -> None:
        """Forgets leads to rows that are all dead; guesses how much of the oldest one left is."""
        leads, gone = self.leads[key], 0
        while gone < len(leads):
            segment, index = leads[gone + 1] >> LEAD_BITS, leads[gone + 1] & LEAD_MASK
            file = self.files[segment]
            begin, last, size = file.firsts[index], file.lasts[index], _size(file, index)
            if last >= first:
                if first > begin:
                    dead = size * (first - begin) // (last - begin + 1)
                    self.usage.shrink(segment, dead - self._shrunk.get(key, 0))
                    self._shrunk[key] = dead
                break
            self.usage.release(segment, size - self._shrunk.pop(key, 0))
            gone += 2
        del leads[:gone]

    def _trim_strays(self, key: int, first: int) -> None:
        stretches, gone = self._strays[key], 0
        while gone < len(stretches) and stretches[gone].last < first:
            self.usage.release(stretches[gone].segment, stretches[gone].size)
            gone += 1
        del stretches[:gone]
        if not stretches:
            del self._strays[key]


def _size(file: NumberFile, index: int) -> int:
    """Of what a partition has in a segment, about."""
    start, stop = file.span(index)
    return file.sizes[index] + BATCH_BYTES * (stop - start)
