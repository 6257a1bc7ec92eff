"""Opening a folder: reads what recovery wants to see, and knows all segments afterwards.

look       names, index files, whose they are
recover    the segments that no index file speaks for       recovery.py
carry out  what it decided about them                       carrying.py
know       the older ones, by their index files
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import attrs

from .carrying import Tail, carry_out, unread_end
from .chronicle import Chronicle, Opening
from .damage import Damage
from .env import Disk, File
from .errors import Corrupt, DiskFailed
from .findings import Hole, end_at
from .places import place
from .positions import LOST, Column, IndexHead
from .records import REACH_MAX, seed_of
from .recovery import EVERYTHING, Last, Recovery
from .search import find_uuid, last_record, next_record
from .segmentreads import (
    PAGE_BYTES,
    Unread,
    feed,
    opening_in,
    read_index_head,
    read_or_zeros,
    read_places,
)
from .segments import (
    ASIDE,
    Segment,
    index_file,
    index_number,
    segment_file,
    segment_number,
)
from .storeoptions import StoreOptions

Beyond = Callable[[Chronicle, int], Awaitable[Corrupt | None]]
GENESIS_BYTES_MAX: Final = 512  # a first segment of this size cannot hold anything durable yet


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
        self._files: dict[int, File] = {}
        self._unread: dict[int, Unread] = {}  # by segment
        self._indexes: dict[int, IndexHead] = {}
        self._reaches: list[dict[int, int]] = []
        self._opened = Opened()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    async def open(self) -> Opened:
        opened = self._opened
        numbers = await self._look()
        uuids = await self._whose(numbers)
        if not uuids:
            if self._beyond is not None:
                opened.lost = await self._beyond(Chronicle(b""), 0)
            return opened
        self._indexes = {n: i for n, i in self._indexes.items() if i.uuid in uuids}
        indexed = [n for n in numbers[:-1] if n in self._indexes and self._indexes[n].sealed]
        base = max(indexed, default=0)
        tail = [await self._tail(number, uuids) for number in numbers if number > base]
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
        carried = await carry_out(self._disk, tail, kept, recovery, self._file, ended=ended)
        opened.cut_bytes, opened.rewritten_bytes = carried
        opened.records += recovery.records
        opened.damages += recovery.damages
        opened.holes += recovery.holes
        opened.exposed = recovery.exposed
        await self._know_the_others([n for n in numbers if n <= base], uuids)
        if kept or base:
            opened.chronicle = recovery.chronicle
            self._finish(recovery)
            await self._load_open()
        return opened

    # -- what is there --------------------------------------------------------------------

    async def _look(self) -> list[int]:
        """The numbers of the segments; index files are read, leftovers unlinked."""
        names = await self._disk.names()
        numbers = [number for name in names if (number := segment_number(name)) is not None]
        last = numbers[-1] if numbers else 0
        for name in names:
            number = index_number(name)
            if number is None:
                if name.endswith(ASIDE):
                    await self._disk.unlink(name)
                continue
            head = await read_index_head(self._disk, number)
            if head is not None and (number in numbers or number > last):
                self._indexes[number] = head
            elif number in numbers:
                self._tell(index_file(number), 0, 0, "the index, which is made again", True)
            else:
                await self._disk.unlink(name)  # its segment was dropped
        return numbers

    async def _whose(self, numbers: list[int]) -> tuple[bytes, ...]:
        """The uuids of the store, the newest first; none: there is nothing yet.

        Raises:
            Corrupt: nothing says whose these files are.
            DiskFailed: the disk does not give what would say it.
        """
        for number in reversed(numbers):
            opening = await self._opening(number)
            if opening is not None:
                return opening.chronicle.uuids
            if number in self._indexes:
                return self._indexes[number].chronicle.uuids
        for number in reversed(numbers):
            file = await self._file(number)
            unread = self._unread_of(number)
            uuid = find_uuid(await read_or_zeros(file, 0, self._window, unread), number)
            if uuid is not None:
                return (uuid,)
        if self._indexes and not numbers:
            newest = max(self._indexes)
            raise Corrupt(
                f"{segment_file(newest)} is not there, nor any other, and {index_file(newest)} speaks "
                "of it; nothing was changed: restore the folder from a copy"
            )
        if numbers and (numbers != [1] or (await self._file(1)).size > GENESIS_BYTES_MAX):
            if any(self._unread.values()):
                raise DiskFailed(
                    f"the disk does not give what says which store {segment_file(numbers[-1])} "
                    "belongs to; nothing was changed: try again"
                )
            raise Corrupt(
                f"nothing in {segment_file(numbers[-1])} says which store it belongs to, neither "
                "its beginning nor a start; nothing was changed: restore the folder from a copy"
            )
        for number in numbers:
            # The very first sync of the store was never reached.
            await self._disk.unlink(segment_file(number))
        return ()

    async def _tail(self, number: int, uuids: Sequence[bytes]) -> Tail:
        file, unread = await self._file(number), self._unread_of(number)
        opening = await self._opening(number)
        if opening is not None:
            self._check_owner(number, opening.uuid, uuids)
            return Tail(number, file, opening.uuid, opening, unread)
        for uuid in uuids:
            found, _, _ = await feed(
                next_record(seed_of(uuid, number), file.size, 0, self._window, 0), file, unread
            )
            if found is not None:
                return Tail(number, file, uuid, None, unread)
        return Tail(number, file, uuids[0], None, unread)

    def _check_owner(self, number: int, uuid: bytes, uuids: Sequence[bytes]) -> None:
        if uuid not in uuids:
            raise Corrupt(
                f"{segment_file(number)} belongs to store {uuid.hex()}, the newest file to store "
                f"{uuids[0].hex()}: two folders were mixed up; nothing was changed"
            )

    async def _file(self, number: int) -> File:
        if number not in self._files:
            self._files[number] = await self._disk.open(segment_file(number))
        return self._files[number]

    def _unread_of(self, number: int) -> Unread:
        return self._unread.setdefault(number, [])

    async def _opening(self, number: int) -> Opening | None:
        file, unread = await self._file(number), self._unread_of(number)
        found = opening_in(await read_or_zeros(file, 0, PAGE_BYTES, unread), number)
        if found is None:
            found = opening_in(await read_or_zeros(file, 0, REACH_MAX, unread), number)
        return found

    # -- the pass -------------------------------------------------------------------------

    async def _recover(
        self, first: int, base: int, tail: Sequence[Tail]
    ) -> tuple[Recovery, list[Tail]]:
        """Feeds the tail to recovery; returns what of it is kept, too."""
        durable = await self._durable(base, tail)
        chronicle = self._indexes[base].chronicle.copy() if base else Chronicle(tail[0].uuid)
        recovery = Recovery(
            durable, chronicle, bool(base) or first == 1, base, self._boot_id, self._last
        )
        before = self._indexes[base].covered if base else 0
        kept: list[Tail] = []
        for each, following in itertools.zip_longest(tail, tail[1:]):
            await self._scan(recovery, each, before)
            if not each.end:
                break
            column, chronicle = recovery.column, recovery.chronicle
            segment = Segment(
                each.number, each.uuid, column.first, column.last, each.end, column=column
            )
            segment.rewritten = recovery.rewritten
            segment.unread = bool(each.unread) and LOST in column.places
            self._opened.segments.append(segment)
            self._reaches.append(column.reaches)
            kept.append(each)
            before = each.end
            recovery.segment = each.number
            if recovery.torn or following is None:
                break
            if following.opening is not None and following.number == each.number + 1:
                chronicle = following.opening.chronicle
                if not recovery.ended(each.number, each.seed, each.end, following.opening.before):
                    break
            self._opened.unindexed.append((segment, chronicle.copy()))
        if self._opened.unindexed and self._opened.unindexed[-1][0] is self._opened.segments[-1]:
            self._opened.unindexed.pop()  # nothing was kept after it: it is the open one
        # An index is written of what is durable; of a sealed one, when the next one was, too.
        there = max((n + index.sealed for n, index in self._indexes.items()), default=0)
        if there > (kept[-1].number if kept else base):
            recovery.lose_end(there, 0)
        recovery.finish()
        return recovery, kept

    async def _durable(self, base: int, tail: Sequence[Tail]) -> int:
        """The address up to which everything was durable, as far as anything says so."""
        # An index is written after the beginning of the next segment was synced, too.
        durable = place(base + 1, 8) if base else 0
        for each in reversed(tail):
            if (head := self._indexes.get(each.number)) is not None:
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
        head = self._indexes.get(each.number)
        if head is not None and head.covered <= size:
            try:
                places = await read_places(self._disk, head)
            except Corrupt as error:
                self._tell(index_file(each.number), 0, 0, str(error), True)
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

    async def _know_the_others(self, numbers: Sequence[int], uuids: Sequence[bytes]) -> None:
        """Sealed and durable ones: by their index files; where there is none, it is made again."""
        known: _Known | None = None
        for number in numbers:
            head = self._indexes.get(number)
            if head is None or not head.sealed:
                known = await self._read_sealed(number, uuids, known)
                continue
            self._opened.segments.append(
                Segment(
                    number,
                    head.uuid,
                    head.first,
                    head.first + head.count - 1,
                    head.covered,
                    rewritten=head.rewritten,
                )
            )
            self._reaches.append(head.reaches)
            known = _Known(number, head.chronicle, head.covered)

    async def _read_sealed(
        self, number: int, uuids: Sequence[bytes], known: _Known | None
    ) -> _Known:
        each = await self._tail(number, uuids)
        if known is None:
            known = _Known(0, Chronicle(each.uuid), 0)
        anchored = bool(known.segment) or number == 1
        recovery = Recovery(EVERYTHING, known.chronicle.copy(), anchored, known.segment)
        await self._scan(recovery, each, known.end)
        column = recovery.column
        following = self._indexes.get(number + 1)
        if following is not None and following.first > column.last + 1:
            recovery.lose_until(following.first - 1, number)
        recovery.finish()
        segment = Segment(number, each.uuid, column.first, column.last, each.end, column=column)
        segment.rewritten = recovery.rewritten
        segment.unread = bool(each.unread) and LOST in column.places
        self._opened.segments.append(segment)
        self._opened.unindexed.append((segment, recovery.chronicle.copy()))
        self._opened.records += recovery.records
        self._opened.damages += recovery.damages
        self._opened.holes += [hole for hole in recovery.holes if hole.last]
        self._reaches.append(column.reaches)
        return _Known(number, recovery.chronicle, each.end)

    async def _load_open(self) -> None:
        """The last segment goes on, so its index has to be in memory; it may have been sealed."""
        segment = self._opened.segments[-1]
        head = self._indexes.get(segment.number)
        if segment.column is None and head is not None:
            segment.column = Column(head.first, await read_places(self._disk, head), head.reaches)

    def _finish(self, recovery: Recovery) -> None:
        opened = self._opened
        opened.segments.sort(key=lambda segment: segment.number)
        by_number = {segment.number: segment for segment in opened.segments}
        floor = max(recovery.chronicle.floor, opened.segments[0].first)
        for reaches in self._reaches:
            for older, reach in reaches.items():
                if older in by_number:
                    by_number[older].reach = max(by_number[older].reach, reach)
                else:
                    floor = max(floor, reach + 1)
        for segment in opened.segments:
            if segment.column is not None:
                segment.last = segment.column.last
                segment.reach = max(segment.reach, segment.last)
            if segment.rewritten:
                floor = max(floor, segment.reach + 1)
        recovery.chronicle.floor = floor
        for one, other in itertools.pairwise(opened.segments):
            if other.number > one.number + 1 and other.first > max(floor, one.last + 1):
                file = segment_file(one.number + 1)
                damage = Damage(file, 0, 0, "the whole file", one.last + 1, other.first - 1)
                opened.damages.append(damage)
                opened.holes.append(Hole(damage.first, damage.last, damage))

    def _tell(self, file: str, offset: int, length: int, what: str, mended: bool = False) -> None:
        self._opened.damages.append(Damage(file, offset, length, what, mended=mended))
