"""Opening a folder: reads what recovery wants to see, and knows all segments afterwards.

look       names, index files, whose they are               found.py
recover    the segments that no index file speaks for       recovery.py
carry out  what it decided about them                       carrying.py
know       the older ones, by their index files
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import attrs

from .carrying import Tail, carry_out, put_back, unread_end
from .chronicle import Chronicle
from .damage import Damage
from .env import Disk
from .errors import Corrupt, DiskFailed
from .findings import Hole, end_at
from .found import Found
from .images import came_with
from .places import place, segment_of
from .positions import LOST, Column
from .recovery import EVERYTHING, Last, Recovery
from .search import last_record
from .segmentreads import (
    feed,
    read_places,
)
from .segments import (
    Segment,
    index_file,
    segment_file,
)
from .storeoptions import StoreOptions

Beyond = Callable[[Chronicle, int], Awaitable[Corrupt | None]]


@attrs.define
class Opened:
    """What is in the folder, after all that had to be done was done."""

    chronicle: Chronicle | None = None  # None: nothing, the store is blank
    segments: list[Segment] = attrs.field(factory=list)  # oldest first; the last one is open
    unindexed: list[tuple[Segment, Chronicle]] = attrs.field(factory=list)  # sealed, no index file
    damages: list[Damage] = attrs.field(factory=list)
    holes: list[Hole] = attrs.field(factory=list)
    lost: Corrupt | None = None  # the row ends here, and had come further; what is behind it stays
    exposed: bool = False  # the store needs a fresh uuid
    records: int = 0  # looked at
    cut_bytes: int = 0
    rewritten_bytes: int = 0


async def open_folder(
    disk: Disk, options: StoreOptions, boot_id: str, beyond: Beyond | None = None
) -> Opened:
    """
    Raises:
        Corrupt: no row can be made of what is there; nothing was changed.
        DiskFailed: a write or a sync failed; or where the row ends cannot be read, and nothing was
            changed.
    """
    opener = _Opener(disk, options, boot_id, beyond)
    try:
        return await opener.open()
    finally:
        opener.close()


class _Known(NamedTuple):
    """How things stood at the end of a segment."""

    segment: int
    chronicle: Chronicle
    end: int


class _Opener:
    def __init__(
        self, disk: Disk, options: StoreOptions, boot_id: str, beyond: Beyond | None
    ) -> None:
        self._disk, self._window, self._boot_id = disk, options.window_bytes, boot_id
        self._beyond = beyond
        self._last: Last | None = None
        self._found = Found(disk, options.window_bytes)
        self._reaches: list[dict[int, int]] = []
        self._opened = Opened()

    def close(self) -> None:
        self._found.close()

    async def open(self) -> Opened:
        opened, found = self._opened, self._found
        await found.look()
        if not found.uuids:
            if self._beyond is not None:
                opened.lost = await self._beyond(Chronicle(b""), 0)
            await found.forget_genesis()
            return opened
        numbers = found.numbers
        indexed = [n for n in numbers[:-1] if n in found.indexes and found.indexes[n].sealed]
        base = max(indexed, default=0)
        tail = [await found.segment(number) for number in numbers if number > base]
        recovery, kept = await self._recover(numbers[0], base, tail)
        if (unread := unread_end(tail, kept, recovery)) is not None:
            # Another try, or another cable, may read it: what is not known is not cut, nor lost.
            raise DiskFailed(
                f"the disk does not give {unread}, and the row may end there; nothing was changed: "
                "try again, or put a copy there that has zeros for what cannot be read"
            )
        hole = next((hole for hole in recovery.holes if not hole.last), None)
        if hole is not None:
            opened.lost = end_at(hole)
        elif self._beyond is not None and (kept or base):
            segment = kept[-1].number if kept else base
            opened.lost = await self._beyond(recovery.chronicle, segment)
        ended = opened.lost is not None
        carried = await carry_out(self._disk, tail, kept, recovery, found.file, ended=ended)
        opened.cut_bytes, opened.rewritten_bytes = carried
        if not ended:
            await self._forget_damaged(kept[-1].number if kept else base)
        opened.records += recovery.records
        opened.damages += found.damages + recovery.damages
        opened.holes += recovery.holes
        opened.exposed = recovery.exposed
        await self._know_the_others([n for n in numbers if n <= base], recovery.chronicle.floor)
        if kept or base:
            opened.chronicle = chronicle = recovery.chronicle
            newer = [
                each for each in found.uuids if each not in chronicle.uuids
            ]  # its start is lost
            chronicle.formers = (*newer, *chronicle.formers)
            await self._forget_dropped(chronicle)
            self._finish(recovery)
            await self._load_open()
        return opened

    # -- the pass -------------------------------------------------------------------------

    async def _recover(
        self, first: int, base: int, tail: Sequence[Tail]
    ) -> tuple[Recovery, list[Tail]]:
        """Feeds the tail to recovery; returns what of it is kept, too."""
        durable = await self._durable(base, tail)
        chronicle = self._found.indexes[base].chronicle.copy() if base else Chronicle(tail[0].uuid)
        recovery = Recovery(
            durable, chronicle, bool(base) or first == 1, base, self._boot_id, self._last
        )
        before = self._found.indexes[base].covered if base else 0
        kept: list[Tail] = []
        for each, following in itertools.zip_longest(tail, tail[1:]):
            await self._scan(recovery, each, before)
            if (
                not each.end
                and segment_of(recovery.whole) <= each.number
                and not (following is not None and _is_behind_nothing(following))
            ):
                break  # else it was whole once, and so is what is behind it
            column, chronicle = recovery.column, recovery.chronicle
            segment = Segment(
                each.number, each.uuid, column.first, column.last, each.end, column=column
            )
            segment.rewritten = recovery.rewritten
            segment.unread = bool(each.unread)
            self._opened.segments.append(segment)
            self._reaches.append(column.reaches)
            kept.append(each)
            before = each.end
            recovery.segment = each.number
            if recovery.torn or following is None:
                break
            if following.opening is not None and following.number == each.number + 1:
                chronicle, size = following.opening.chronicle, following.opening.before
                # What follows an image was begun before that came, and tells of what was there then.
                imaged = each.opening is not None and each.opening.is_of_image
                if not imaged:
                    if not recovery.ended(each.number, each.seed, each.end, size):
                        break
                    segment.size = max(each.end, size)  # what lacks there is damage, and is mended
            self._opened.unindexed.append((segment, chronicle.copy()))
        if self._opened.unindexed and self._opened.unindexed[-1][0] is self._opened.segments[-1]:
            self._opened.unindexed.pop()  # nothing was kept after it: it is the open one
        last = kept[-1].number if kept else base
        # An index is written of what is durable; of a sealed one, when the next one was, too.
        indexes = {**self._found.left, **self._found.indexes}
        there = max((number + index.sealed for number, index in indexes.items()), default=0)
        if kept and kept[-1].opening is not None and kept[-1].opening.is_of_image:
            there = max(there, last + 1)  # it got its name when the BASE behind it was durable
        if there > last:
            recovery.lose_end(there, 0)
        recovery.finish()
        return recovery, kept

    async def _durable(self, base: int, tail: Sequence[Tail]) -> int:
        """The address up to which everything was durable, as far as anything says so."""
        # An index is written after the beginning of the next segment was synced, too.
        durable = place(base + 1, 8) if base else 0
        for each in reversed(tail):
            if (head := self._found.indexes.get(each.number)) is not None:
                durable = max(durable, place(each.number, head.covered))
                if head.covered == each.file.size:
                    break
            search = last_record(each.seed, each.file.size, self._window)
            found = await feed(search, each.file, each.unread)
            if found is not None:
                durable = max(durable, found.durable)
                self._last = Last(place(each.number, found.offset), found.start_count)
                break
        return durable

    async def _scan(self, recovery: Recovery, each: Tail, before: int) -> None:
        size, column, offset = each.file.size, None, 0
        head = self._found.indexes.get(each.number)
        if head is not None and head.covered <= size:
            try:
                places = await read_places(self._disk, head)
            except Corrupt as error:
                file = index_file(each.number)
                self._opened.damages.append(Damage(file, 0, 0, str(error), mended=True))
            else:
                recovery.adopt(head.chronicle.copy(), each.number, head.first)
                column, offset = Column(head.first, places, dict(head.reaches)), head.covered
        scan = recovery.scan(
            each.number, each.seed, size, self._window, before=before, column=column, offset=offset
        )
        each.end = await feed(scan, each.file, each.unread)
        if column is not None and head is not None:
            recovery.rewritten = head.rewritten

    # -- the segments that need no recovery -----------------------------------------------

    async def _know_the_others(self, numbers: Sequence[int], floor: int) -> None:
        """Sealed and durable ones: by their index files; where there is none, it is made again."""
        known: _Known | None = None
        for number in numbers:
            head = self._found.indexes.get(number)
            if head is not None and self._first_behind(number) > max(floor, head.last + 1):
                # It was made when what is lost at the end had no places: it speaks of too little.
                head = None
                del self._found.indexes[number]
            if head is None or not head.sealed:
                known = await self._read_sealed(number, known)
                continue
            self._opened.segments.append(
                Segment(
                    number,
                    head.uuid,
                    head.first,
                    head.last,
                    head.covered,
                    rewritten=head.rewritten,
                )
            )
            self._reaches.append(head.reaches)
            known = _Known(number, head.chronicle, head.covered)

    async def _read_sealed(self, number: int, known: _Known | None) -> _Known:
        each = await self._found.segment(number)
        if known is None:
            known = _Known(0, Chronicle(each.uuid), 0)
        anchored = bool(known.segment) or number == 1
        recovery = Recovery(EVERYTHING, known.chronicle.copy(), anchored, known.segment)
        await self._scan(recovery, each, known.end)
        column = recovery.column
        following = self._first_behind(number)
        imaged = each.opening is not None and each.opening.is_of_image  # its items have no places
        if following > column.last + 1 and not imaged:
            recovery.lose_until(following - 1, number)
        recovery.finish()
        await put_back(self._disk, recovery.repairs, self._found.file)
        segment = Segment(number, each.uuid, column.first, column.last, each.end, column=column)
        segment.rewritten = recovery.rewritten
        segment.unread = bool(each.unread)
        self._opened.segments.append(segment)
        self._opened.unindexed.append((segment, recovery.chronicle.copy()))
        self._opened.records += recovery.records
        self._opened.damages += recovery.damages
        self._opened.holes += [hole for hole in recovery.holes if hole.last]
        self._reaches.append(column.reaches)
        return _Known(number, recovery.chronicle, each.end)

    def _first_behind(self, number: int) -> int:
        """The position with which the next segment begins; 0: there is none."""
        head = self._found.indexes.get(number + 1)
        if head is not None:
            return head.first
        read = self._opened.segments
        return next((each.first for each in read if each.number == number + 1), 0)

    async def _load_open(self) -> None:
        """The last segment goes on, so its index has to be in memory; it may have been sealed."""
        segment = self._opened.segments[-1]
        head = self._found.indexes.get(segment.number)
        if segment.column is None and head is not None:
            segment.column = Column(head.first, await read_places(self._disk, head), head.reaches)

    async def _forget_damaged(self, last: int) -> None:
        """The index of the segment that goes on: the disk may give it again when it is true no more."""
        going = [number for number in self._found.damaged if number >= last]
        try:
            for number in going:
                await self._disk.unlink(index_file(number))
            if going:
                await self._disk.sync_names()
        except OSError as error:
            raise DiskFailed(f"an index could not be forgotten: {error}") from error

    async def _forget_dropped(self, chronicle: Chronicle) -> None:
        """What is left of segments that nobody misses; `left` is then of those that were lost."""
        left = self._found.left
        for number, head in list(left.items()):
            if head.last < chronicle.floor and not came_with(chronicle.base, number):
                del left[number]
                await self._disk.unlink(index_file(number))

    def _finish(self, recovery: Recovery) -> None:
        opened, left = self._opened, self._found.left
        opened.segments.sort(key=lambda segment: segment.number)
        by_number = {segment.number: segment for segment in opened.segments}
        oldest = opened.segments[0]
        # The oldest that there is need not be the oldest that should be.
        begin = min([oldest.first, *(head.first for head in left.values())])
        floor = max(recovery.chronicle.floor, begin)
        gone: dict[int, int] = {}  # of segments that are not there: how far they reached
        for reaches in self._reaches:
            for older, reach in reaches.items():
                if older in by_number:
                    by_number[older].reach = max(by_number[older].reach, reach)
                else:
                    gone[older] = max(gone.get(older, 0), reach)
        for older, reach in gone.items():
            if older < oldest.number and older not in left:
                floor = max(floor, reach + 1)
        for segment in opened.segments:
            if segment.column is not None:
                segment.last = segment.column.last
                segment.unread = segment.unread and LOST in segment.column.places
                segment.reach = max(segment.reach, segment.last)
            if segment.rewritten:
                floor = max(floor, segment.reach + 1)
        recovery.chronicle.floor = floor
        lost = {
            number: (head.first, head.last)
            for number, head in left.items()
            if number < oldest.number or head.last < head.first
        }
        for one, other in itertools.pairwise(opened.segments):
            if other.number > one.number + 1 and other.first > max(floor, one.last + 1):
                lost[one.number + 1] = one.last + 1, other.first - 1
        for number, reach in gone.items():
            if reach >= floor:  # who dropped it would have raised that
                first, last = lost.get(number, (reach, reach))
                lost[number] = (first if first <= last else reach), max(last, reach)
        for number, (first, last) in sorted(lost.items()):
            self._lose(number, first, last)

    def _lose(self, number: int, first: int, last: int) -> None:
        """A segment's file is gone."""
        first, last = (first, last) if first <= last else (0, 0)  # it records no item
        damage = Damage(segment_file(number), 0, 0, "the whole file", first, last)
        self._opened.damages.append(damage)
        if last:
            self._opened.holes.append(Hole(first, last, damage))


def _is_behind_nothing(tail: Tail) -> bool:
    """It was begun when damage had emptied the segment before."""
    opening = tail.opening
    return opening is not None and not (opening.before or opening.is_of_image)
