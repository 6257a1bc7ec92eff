"""The shelf: the segments that there are, oldest first, and where their items lie."""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from .chronicle import Chronicle
from .env import Disk
from .errors import Corrupt, DiskFailed, NotFound
from .places import segment_of
from .positions import LEFT_OUT, LOST, Column, encode_index
from .recovery import EVERYTHING, Recovery
from .segmentreads import Unread, feed, index_head_in, places_in, read_index_head
from .segments import ASIDE, OpenFiles, Segment, SegmentInfo, index_file, segment_file

COLUMNS_KEPT = 8  # of sealed segments: those who read the past are few, and read on


class Shelf:
    """Shared by the writer and the readers of one store."""

    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        segments: Sequence[Segment],
        chronicle: Chronicle,
        window_bytes: int,
    ) -> None:
        self.disk, self.files, self.window_bytes = disk, files, window_bytes
        self.chronicle = chronicle
        self.segments = list(segments)
        self.unindexed: list[tuple[Segment, Chronicle]] = []  # sealed, and what they end with
        self._by_number = {segment.number: segment for segment in segments}
        self._firsts = [segment.first for segment in segments]
        self._columns: dict[int, array[int]] = {}  # the least recently used first

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._firsts.append(segment.first)
        self._by_number[segment.number] = segment

    def insert(self, segments: Sequence[Segment]) -> None:
        """Those of an image, whose numbers were left out for them."""
        self._by_number.update({segment.number: segment for segment in segments})
        self.segments = [self._by_number[number] for number in sorted(self._by_number)]
        self._firsts = [segment.first for segment in self.segments]

    def remove(self, number: int) -> None:
        segment = self._by_number.pop(number)
        self.segments.remove(segment)
        self._firsts = [segment.first for segment in self.segments]
        self._columns.pop(number, None)
        self.files.forget(number)

    def get(self, number: int) -> Segment:
        """
        Raises:
            NotFound: it was dropped.
        """
        segment = self._by_number.get(number)
        if segment is None:
            raise NotFound(f"{segment_file(number)} is not there: it was dropped, or is to come")
        return segment

    def infos(self, written: Segment | None) -> list[SegmentInfo]:
        return [
            SegmentInfo(
                each.number,
                each.first,
                each.last,
                each.reach,
                each.size,
                each is not written,
                each.rewritten,
            )
            for each in self.segments
        ]

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    async def place_of(self, position: int) -> int:
        """
        Raises:
            NotFound: it was dropped, or left out of a rewritten segment, or is still to come.
            Corrupt: damage took it.
        """
        place = await self.entry_of(position)
        if place & LEFT_OUT:
            raise NotFound(
                f"position {position} was left out when {segment_file(segment_of(place))} was "
                f"rewritten; every item from {self.chronicle.floor} on is there"
            )
        return place

    async def entry_of(self, position: int) -> int:
        """As `place_of`, but what a rewrite left out has the place of its GAP record, LEFT_OUT set."""
        index = bisect_right(self._firsts, position) - 1
        while index > 0 and not self._holds(index, position):
            index -= 1  # segments without items begin where the next one begins
        if index < 0 or not self._holds(index, position):
            if self.chronicle.floor <= position <= self.chronicle.position:
                raise Corrupt(f"position {position} is lost: its segment, a .seg file, is missing")
            raise NotFound(f"position {position} is not in the row store: {self._range()}")
        segment = self.segments[index]
        column = segment.column
        place = (
            column.places[position - column.first]
            if column is not None
            else (await self.places(segment))[position - segment.first]
        )
        if place == LOST:
            raise Corrupt(
                f"position {position} is lost: {segment_file(segment.number)} is damaged where it "
                "was recorded"
            )
        return place

    async def holders(self, position: int) -> list[int]:
        """The segments that one has to read for the item there, as far as that is known."""
        found = [each.number for each in self.segments if each.first <= position <= each.last]
        with suppress(Corrupt, NotFound):
            found.append(segment_of(await self.entry_of(position)))
        return found

    async def places(self, segment: Segment) -> Sequence[int]:
        """Of the items that it records, in order."""
        if segment.column is not None:
            return segment.column.places
        places = self._columns.pop(segment.number, None)
        if places is None:
            places = await self._read(segment)
            if places is None:
                assert segment.column is not None
                return segment.column.places
            while len(self._columns) >= COLUMNS_KEPT:
                del self._columns[next(iter(self._columns))]
        self._columns[segment.number] = places
        return places

    async def places_again(self, segment: Segment) -> Sequence[int]:
        """As `places`, but what the index file says is read and checked now."""
        self._columns.pop(segment.number, None)
        return await self.places(segment)

    async def write_index(
        self,
        segment: Segment,
        column: Column,
        chronicle: Chronicle,
        *,
        sealed: bool,
        rewritten: bool | None = None,
    ) -> bool:
        """The index file of a segment that is durable.  False: the disk is full.

        Raises:
            DiskFailed: for any other error.
        """
        name = index_file(segment.number)
        buffers = encode_index(
            column,
            chronicle,
            uuid=segment.uuid,
            segment=segment.number,
            covered=segment.size,
            sealed=sealed,
            rewritten=segment.rewritten if rewritten is None else rewritten,
        )
        try:
            file = await self.disk.open(name + ASIDE, create=True)
            try:
                file.truncate(0)
                file.write(0, buffers)
                await file.sync()
            finally:
                file.close()
            await self.disk.rename(name + ASIDE, name)
            await self.disk.sync_names()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise DiskFailed(f"writing {name}: {error}") from error
            if await self.disk.exists(name + ASIDE):
                await self.disk.unlink(name + ASIDE)
            return False
        return True

    async def index_rewritten(
        self, segment: Segment, left_out: Callable[[array[int], int], Awaitable[None]]
    ) -> bool:
        """Its index file says from now on that the segment was rewritten.  False: the disk is full.

        `left_out` marks the items that are no longer there, of places that begin with a position.
        """
        head = await read_index_head(self.disk, segment.number)
        if head is None:
            column, chronicle = await self.read_again(segment)
        else:
            places = array("Q", await self.places(segment))
            column, chronicle = Column(head.first, places, head.reaches), head.chronicle
        await left_out(column.places, column.first)
        if not await self.write_index(segment, column, chronicle, sealed=True, rewritten=True):
            return False
        self._columns.pop(segment.number, None)
        return True

    async def read_again(self, segment: Segment) -> tuple[Column, Chronicle]:
        """The index of a sealed segment, made from its records."""
        before = [each for each in self.segments if each.number < segment.number]
        known = await self._chronicle_before(segment, before[-1] if before else None)
        start = Chronicle(segment.uuid) if known is None else known
        recovery = Recovery(EVERYTHING, start, known is not None, segment.number - 1)
        unread: Unread = []
        handle = await self.files.acquire(segment.number)
        try:
            scan = recovery.scan(segment.number, segment.seed, segment.size, self.window_bytes)
            await feed(scan, handle.file, unread)
        finally:
            self.files.release(handle)
        if recovery.column.last < segment.last:
            recovery.lose_until(segment.last, segment.number)
        segment.unread = bool(unread) and LOST in recovery.column.places
        return recovery.column, recovery.chronicle

    async def index_again(self, segment: Segment) -> None:
        """As its records are now: what was lost of it is there, or its file of the index is not."""
        segment.column, chronicle = await self.read_again(segment)
        segment.last = segment.column.last
        segment.reach = max(segment.reach, segment.last)
        if segment.number in self:  # else it was dropped meanwhile
            self.unindexed.append((segment, chronicle))

    async def ended(self, segment: Segment) -> Chronicle | None:
        """How things stood at the end of a sealed one; None: no index says so."""
        for each, chronicle in self.unindexed:
            if each is segment:
                return chronicle
        head = await read_index_head(self.disk, segment.number)
        return head.chronicle if head is not None and head.sealed else None

    async def _read(self, segment: Segment) -> array[int] | None:
        """None: the file is missing or damaged; the column was made again."""
        file = None
        try:
            # One file throughout: a rewrite may put another one under its name at any moment.
            file = await self.disk.open(index_file(segment.number))
            head = await index_head_in(file, segment.number)
            if head.uuid != segment.uuid or head.covered != segment.size:
                raise Corrupt(f"{index_file(segment.number)} is not the index of its segment")
            return await places_in(file, head)
        except (Corrupt, OSError):
            await self.index_again(segment)
            return None
        finally:
            if file is not None:
                file.close()

    async def _chronicle_before(self, segment: Segment, before: Segment | None) -> Chronicle | None:
        if segment.number == 1:
            return Chronicle(segment.uuid)
        if before is None or before.number != segment.number - 1:
            return None
        return await self.ended(before)

    def _holds(self, index: int, position: int) -> bool:
        segment = self.segments[index]
        return segment.first <= position <= segment.last

    def _range(self) -> str:
        firsts = [segment.first for segment in self.segments if segment.first <= segment.last]
        if not firsts:
            return "it has no items"
        return f"it has {firsts[0]} to {self.segments[-1].last}"
