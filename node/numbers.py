"""The index number -> place: which row speaks of entry n of a partition, or of a time.

    items ──► open segment: a bytearray of rows for each partition          in memory
                    │ an item of a later segment has come: sealed
                    ▼
              waits until it is durable and written (numberfolder.py)        in memory
                    │ install
                    ▼
              one file; for each partition in it a *lead* to it              16 bytes a lead
                    │ every partition was pruned past it: `usage` says so
                    ▼
                  drop

How a row is found again is told in numberchain.py.

A segment is, here, that of the bodies: an item whose bundle lies in a later segment than all before
it opens that one.  This needs nothing from the store but places, and gives the same after a restart.

Nothing here waits.  `covered` is the position up to which everything is known; what a replay says
again about items up to there is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from . import keptplaces
from .effects import Appended, Deleted, Effect, Pruned
from .numberchain import Chain, Tail
from .numberfile import (
    COUNT_BITS,
    PARTITION_BITS,
    POSITION,
    ROW,
    TIME,
    Cover,
    NumberFile,
    Row,
    Stray,
    key_of,
    split_key,
)
from .numbergrowing import Growing, captured
from .numberlife import Life
from .places import SEGMENT_SHIFT, segment_of
from .upkeep import Usage

INSTALLED_AT_ONCE: Final = 128  # partitions, between two looks at the loop
_pack = ROW.pack


class Numbers:
    """The index of one node.  The keeper writes, readers look up."""

    def __init__(self, store: bytes) -> None:
        self.store = store  # uuid: places mean nothing in another store
        self.covered = 0
        # By position, of bodies that wait: the record that says where one lies may go before (keptplaces.py).
        self.kept: dict[int, int] = {}
        # How far entries of (topic id, partition) below a first number may be forgotten: pins.py.
        self.held: Callable[[int, int, int], int] = lambda _topic_id, _partition, first: first
        # Somebody found that it lacks rows.  Alone that stays so; a machine with neighbours gets them.
        self.on_lost: Callable[[], None] = lambda: None
        self._position = 0  # of the item whose effects are being noted
        self._known = False  # they are known already
        self._segment = -1  # the newest one
        self._closed = True  # it takes no more rows
        self._tails: dict[int, Tail] = {}  # of the open segment
        self._growing: list[Growing] = []  # oldest first; the last one is open
        self._installing = False  # the oldest of them
        self._life = Life()
        self._widths: dict[int, int] = {}  # topic id -> partitions seen

    @property
    def usage(self) -> Usage:
        """What is alive in each segment, for upkeep."""
        return self._life.usage

    # What the keeper tells, item by item

    def note(
        self, position: int, place: int, effects: Iterable[Effect], places: Mapping[int, int]
    ) -> None:
        """Takes what one item did; to be called for each item in order, also if it did nothing.

        `place` is that of the item's record, `places` has those of the older items whose bodies
        waited or were staged and got their numbers here: see `older`.
        """
        self.begin(position, place)
        for effect in effects:
            if isinstance(effect, Appended):
                record = place if effect.position == position else places[effect.position]
                self.append(
                    effect.topic_id,
                    effect.partition,
                    effect.first,
                    effect.count,
                    effect.time,
                    effect.size,
                    record | effect.index,
                )
            elif isinstance(effect, Pruned):
                self.prune(effect.topic_id, effect.partition, effect.first)
            elif isinstance(effect, Deleted):
                self.forget(effect.topic_id)

    def begin(self, position: int, place: int) -> None:
        """The next item: what is appended until the next call was numbered by it."""
        self._known = position <= self.covered
        if self._known:
            return
        assert position == self.covered + 1, f"item {position} was noted after {self.covered}"
        self._position = self.covered = position
        if place >> SEGMENT_SHIFT > self._segment or self._closed:
            self._open(max(segment_of(place), self._segment + 1), position - 1)

    def append(
        self,
        topic_id: int,
        partition: int,
        first: int,
        count: int,
        time: int,
        size: int,
        place: int,
    ) -> None:
        """A batch of `count` entries got the numbers from `first` on; its body has `size` bytes."""
        if self._known:
            return
        key = topic_id << PARTITION_BITS | partition
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = Tail(first)
            self._widen(key)
        growing = self._growing[-1]
        if growing.begun is not None:
            growing.note(key, tail)
        assert first == tail.next, f"{first} follows {tail.next - 1} in {topic_id}/{partition}"
        tail.next = first + count
        tail.rows += _pack(first, place, time, self._position << COUNT_BITS | count)
        segment = place >> SEGMENT_SHIFT
        if segment == self._segment:
            tail.size += size
        else:
            assert segment < self._segment, f"segment {segment} has no item yet"
            stray = Stray(key, first, first + count - 1, segment, size)
            self._life.stray(stray, growing)

    def prune(self, topic_id: int, partition: int, first: int) -> None:
        """Entries below `first` are gone, but for those that are held."""
        first = self.held(topic_id, partition, first)
        self._life.prune(topic_id << PARTITION_BITS | partition, first)

    def pruned(self, topic_id: int, partition: int) -> int:
        """The lowest number that is not forgotten, as far as this index was told."""
        return self._life.first(topic_id << PARTITION_BITS | partition)

    def forget(self, topic_id: int) -> None:
        """The topic was deleted."""
        for partition in range(self._widths.pop(topic_id, 0)):
            key = key_of(topic_id, partition)
            for growing in self._growing:
                growing.tails.pop(key, None)
            self._life.forget(key)

    # From memory to files, and away

    def waiting(self) -> Cover | None:
        """The oldest sealed segment without a file; to be written once `upto` is durable."""
        growing = self._growing[0] if self._growing else None
        if growing is None or growing.upto is None or self._installing:
            return None
        return growing.cover(growing.upto)

    def pieces(self) -> Iterator[bytes]:
        """The file for `waiting`, as it is now, however long the caller rests in between."""
        assert self.waiting() is not None, "an open segment has no file"
        return self._growing[0].encode(self.store, self.covered)

    def install(self, file: NumberFile) -> Iterator[None]:
        """Goes over from memory to the file of `waiting`, some partitions a step.

        Rows may be looked up and noted between the steps.
        """
        assert file.cover == self.waiting(), f"{file.cover} does not wait"
        growing, segment = self._growing[0], file.cover.segment
        self._installing = True  # what is in memory of it is a part from here on
        self._life.files[segment] = file
        for index, key in enumerate(file.keys.tolist()):
            # The tail of a topic that was deleted meanwhile is gone.
            if growing.tails.pop(key, None) is not None:
                self._life.lead(key, segment, index)
            if index % INSTALLED_AT_ONCE == INSTALLED_AT_ONCE - 1:
                yield
        assert not growing.tails, f"{len(growing.tails)} partitions are not in the file"
        self._growing.pop(0)
        self._installing = False

    @property
    def in_memory(self) -> int:
        """The oldest segment whose rows are in memory; nothing below it is to be written any more."""
        return self._growing[0].segment if self._growing else self._segment + 1

    @property
    def installed(self) -> list[int]:
        """The segments that have a file."""
        return sorted(self._life.files)

    def file(self, segment: int) -> NumberFile | None:
        """None: it has none, or was dropped."""
        return self._life.files.get(segment)

    def drop(self, segment: int) -> None:
        """The store has dropped this dead segment; what is said about it goes too."""
        self._life.drop(segment)

    def needed(self) -> frozenset[int]:
        """The segments in which something is alive, or may be."""
        return frozenset([*self.usage.held(), *(growing.segment for growing in self._growing)])

    def live_places(self, segment: int) -> Iterator[list[int]]:
        """The places of all live bodies in `segment`, some thousands a step.

        For a segment without bodies that wait or are staged: one that gets its number between two
        steps would be missed.

        Raises:
            Corrupt: the index has lost some of them.
        """
        return self._life.live_places(
            segment, lambda key, number, limit: self.rows(*split_key(key), number, limit)
        )

    # Snapshots and restarts

    def capture(self) -> Iterator[tuple[str, bytes]]:
        """What no file holds, as it is now, in chunks for the snapshot of the same position."""
        unfiled = self._growing[1:] if self._installing else self._growing
        rows = captured([each.encode(self.store, self.covered) for each in unfiled])
        return chain(keptplaces.chunks(self.kept), rows) if self.kept else rows

    def load(self, files: Iterable[NumberFile], position: int) -> list[tuple[int, int]]:
        """Begins with whole files from the folder, and from the snapshot of the state at `position`.

        Returns the stretches of the row (after, upto) of which nothing is known, and of which the
        replay from `position` on will tell nothing: segments that were dropped, or lost files.
        When the state has caught up, `settle` is to be called.  What only the snapshot had is in
        memory and waits for being written, and so does all that follows it.
        """
        assert not self.covered, "files are loaded into an empty index"
        holes: list[tuple[int, int]] = []
        at = 0
        for file in sorted(files, key=_best_first):
            cover = file.cover
            if cover.segment <= self._segment or cover.after < at:
                continue  # the same again, from the folder and from the snapshot
            recalled = file.captured or bool(self._growing)
            if recalled and not file.is_whole():
                continue  # as if it were not there
            if cover.after > at:
                if cover.after > position:
                    break  # the replay tells what is missing, and this once more
                holes.append((at, cover.after))
            at = cover.upto
            if recalled:
                self._recall(file)
            else:
                self._segment = cover.segment
                for key in self._life.load(file):
                    self._widen(key)
            if not cover.sealed:
                break
        if at < position:
            holes.append((at, position))
        self.covered = max(at, position)
        return holes

    def settle(self, first_of: Callable[[int, int], int | None]) -> None:
        """`first_of` tells the first number of (topic id, partition), or None if it is no more.

        Files speak of what was pruned and deleted, too; from here on, that is dead.
        """
        for topic_id, width in list(self._widths.items()):
            for partition in range(width):
                first = first_of(topic_id, partition)
                if first is None:
                    self.forget(topic_id)
                    break
                self.prune(topic_id, partition, first)

    # Lookups

    def rows(self, topic_id: int, partition: int, number: int, limit: int) -> list[Row]:
        """The row that holds `number` and those after it, contiguous, at most `limit`.

        None when `number` is in a hole or past the end; the rows end before the next hole.
        """
        return self._chain(topic_id, partition).rows(number, limit)

    def hole(self, topic_id: int, partition: int, number: int) -> int | None:
        """The last number of the hole that `number` is in; None if nothing follows it."""
        return self._chain(topic_id, partition).hole(number)

    def is_whole(self, topic_id: int, partition: int, first: int, last: int) -> bool:
        """Whether nothing from `first` to `last` lies in a hole; a block may still be damaged."""
        return self._chain(topic_id, partition).is_whole(first, last)

    def at_time(self, topic_id: int, partition: int, time: int) -> Row | None:
        """The first batch at or after a time."""
        return self._chain(topic_id, partition).lower_bound(TIME, time)

    def at_position(self, topic_id: int, partition: int, position: int) -> Row | None:
        """The first batch that the item at `position`, or one after it, numbered."""
        return self._chain(topic_id, partition).lower_bound(POSITION, position)

    # Inside

    def _chain(self, topic_id: int, partition: int) -> Chain:
        key = topic_id << PARTITION_BITS | partition
        tails = [growing.tails[key] for growing in self._growing if key in growing.tails]
        return Chain(self._life.leads.get(key), self._life.files, tails)

    def _open(self, segment: int, after: int) -> None:
        if self._growing and self._growing[-1].upto is None:
            self._growing[-1].upto = after
        growing = Growing(segment, after)
        self._growing.append(growing)
        self._tails, self._segment, self._closed = growing.tails, segment, False

    def _widen(self, key: int) -> None:
        topic_id, partition = split_key(key)
        if partition >= self._widths.get(topic_id, 0):
            self._widths[topic_id] = partition + 1

    def _recall(self, file: NumberFile) -> None:
        """Back into memory, as it was there when it was captured."""
        self._open(file.cover.segment, file.cover.after)
        growing = self._growing[-1]
        growing.recall(file)
        for key in growing.tails:
            self._widen(key)
        for stray in file.strays:
            self._life.stray(stray, growing)
        self._closed = file.cover.sealed


def older(position: int, effects: Iterable[Effect]) -> list[int]:
    """Positions of items before this one whose bodies got their numbers in it."""
    bodies = (effect.position for effect in effects if isinstance(effect, Appended))
    return sorted(dict.fromkeys(each for each in bodies if each != position))


def _best_first(file: NumberFile) -> tuple[int, int, bool]:
    """The order of the row; of two that speak of the same segment the one that knows more."""
    return file.cover.segment, -file.cover.upto, file.captured
