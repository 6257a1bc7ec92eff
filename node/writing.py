"""Writing: the open segment of a row store, and what of it is durable.

    write ─► the open segment ─► sync ─► MARK
             full: sealed, the next one begins with copies (N6)

A segment is sealed without waiting for the disk: the next one may be written to before the old one
is synced, since every record says how much was durable, and recovery takes what they say.

A write that does not fit is taken back (`Full`); any other failure of a write or sync is the end of
the process (`DiskFailed`): after it nobody knows what is on the disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress

import trio

from .chronicle import Chronicle, encode_opening
from .doubt import leave_doubt
from .env import Buffer, Disk
from .errors import DiskFailed, Full
from .forms import ItemForm, chain
from .places import SEGMENT_SHIFT, place, segment_of
from .positions import Column
from .records import RecordKind, encode, size_of
from .reserve import Reserve
from .segments import Handle, Segment, segment_file
from .shelf import Shelf
from .storeoptions import StoreOptions

ITEM_BYTES_MAX = size_of(64, 0)  # of an ITEM record


def _nobody_waits() -> None:
    pass


class Writer:
    """The one who writes; everything between two checkpoints is one step for readers."""

    def __init__(
        self,
        disk: Disk,
        options: StoreOptions,
        chronicle: Chronicle,
        shelf: Shelf,
        reserve: Reserve,
    ) -> None:
        self.chronicle = chronicle
        self.open: Segment | None = None  # the segment that is written
        self.durable = 0  # address: what lies below was synced
        self.durable_position = chronicle.position
        self.failed: DiskFailed | None = None
        self._disk, self._options = disk, options
        self._shelf, self._reserve = shelf, reserve
        self._handle: Handle | None = None  # of the open segment
        self._opening_bytes = 0  # its first record
        self._sealed: list[Handle] = []  # not synced yet, or just being so
        self._unsynced: list[Handle] = []  # written to since they were synced last, oldest first
        self._names_unsynced = False
        self._syncs, self._rolling, self._indexing = trio.Lock(), trio.Lock(), trio.Lock()
        # Called whenever a sync has ended, whoever asked for it: bundles gather while one runs.
        self.on_synced: Callable[[], None] = _nobody_waits

    async def resume(self) -> None:
        """Goes on in the last segment that was found, all of which is durable."""
        if self._shelf.segments:
            self.open = self._shelf.segments[-1]
            file = await self._disk.open(segment_file(self.open.number))
            self._handle = self._shelf.files.keep(self.open.number, file)
            self.durable = place(self.open.number, self.open.size)

    @property
    def dirty(self) -> bool:
        return bool(self._unsynced)

    @property
    def syncing(self) -> bool:
        return self._syncs.locked()

    def durable_bytes(self, segment: Segment) -> int:
        """How much of a segment is durable."""
        if segment.number < segment_of(self.durable):
            return segment.size
        return max(0, self.durable - place(segment.number, 0)) >> 11  # as in places.py

    @property
    def overhang(self) -> int:
        """Bytes of the open segment's file behind its end: recovery leaves them where damage ends the row."""
        segment, handle = self.open, self._handle
        return 0 if segment is None or handle is None else max(0, handle.file.size - segment.size)

    async def cut(self) -> None:
        """Else they would be a part of the row as soon as something behind them is durable.

        Raises:
            OSError.
        """
        segment, handle = self.open, self._handle
        if self.overhang and segment is not None and handle is not None:
            handle.file.truncate(segment.size)
            await handle.file.sync()

    # -- records ----------------------------------------------------------------------------

    async def room(self, size: int) -> Segment:
        """The open segment if so much fits in it, else the next one.

        Raises:
            Full, DiskFailed.
        """
        self.check()
        while self._is_full(size):
            full = self.open
            # Whoever writes has begun something that belongs together.
            with trio.CancelScope(shield=True):  # sim-ok: some names, and the dead write none
                async with self._rolling:  # several may find it full
                    if self.open is full:
                        await self.roll()
        assert self.open is not None
        return self.open

    def has_room(self, size: int) -> bool:
        """Whether so much fits in the open segment, so that nothing has to be waited for."""
        segment = self.open
        return (
            segment is not None
            and self.failed is None
            and segment.size + size <= self._options.segment_bytes
        )

    def _is_full(self, size: int) -> bool:
        segment = self.open
        assert segment is not None, "nothing is written before an incarnation begins"
        # What is larger than a segment gets one of its own.
        return (
            segment.size + size > self._options.segment_bytes and segment.size > self._opening_bytes
        )

    def record(self, kind: int, head: bytes, offset: int, *, body_length: int = 0) -> bytes:
        """Encoded for that offset of the open segment."""
        segment = self.open
        assert segment is not None
        return encode(
            kind,
            head,
            seed=segment.seed,
            offset=offset,
            start_count=self.chronicle.start_count,
            durable=self.durable,
            body_length=body_length,
        )

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        """Whole records, at the end of the open segment.

        Raises:
            Full: nothing of them was written.
            DiskFailed.
        """
        segment, handle = self.open, self._handle
        assert segment is not None and handle is not None
        try:
            handle.file.write(segment.size, buffers)
        except OSError as error:
            raise self._take_back(segment, handle, error) from error
        segment.size += size
        if not self._unsynced or self._unsynced[-1] is not handle:
            self._unsynced.append(handle)

    def append(self, kind: int, head: bytes) -> None:
        """One record without a body."""
        assert self.open is not None
        record = self.record(kind, head, self.open.size)
        self.write([record], len(record))

    def order(self, where: int) -> None:
        """Makes what waits at `where` the next item."""
        chronicle, segment = self.chronicle, self.open
        assert segment is not None
        crc, position = chronicle.waiting[where].crc, chronicle.position + 1
        digest = chain(chronicle.digest, position, crc)
        self.append(RecordKind.ITEM, ItemForm(position, where, crc, digest).encode())
        chronicle.ordered(position, where, crc, digest)
        self.count(where, position)

    def count(self, where: int, position: int) -> None:
        """An ITEM record that says so was written."""
        segment = self.open
        assert segment is not None and segment.column is not None
        segment.column.add(where, segment.number)
        segment.last = segment.reach = position
        if (holder := where >> SEGMENT_SHIFT) != segment.number:
            older = self._shelf.get(holder)
            older.reach = max(older.reach, position)

    # -- segments ---------------------------------------------------------------------------

    async def roll(self, number: int = 0) -> Segment:
        """Seals the open segment, if there is one, and begins the next, or that of a later number.

        Raises:
            Full: the open one stays open.
            DiskFailed.
        """
        chronicle, old = self.chronicle, self.open
        number = max(number, 1 if old is None else old.number + 1)
        try:
            file = await self._disk.open(segment_file(number), create=True)
        except OSError as error:
            raise self.refusal("making a segment", error) from error
        # No checkpoint from here on.  Until here, a sync may have added its mark to the old one.
        segment = Segment(
            number, chronicle.uuid, chronicle.position + 1, chronicle.position, 0, column=None
        )
        segment.column = Column(segment.first)
        opening = encode(
            RecordKind.SEGMENT,
            encode_opening(chronicle, number, 0 if old is None else old.size),
            seed=segment.seed,
            offset=0,
            start_count=chronicle.start_count,
            durable=self.durable,
        )
        handle = Handle(file)
        try:
            file.truncate(0)  # an attempt that failed may have left something
            file.write(0, [opening])
        except OSError as error:
            refusal = self._take_back(segment, handle, error)
            file.close()
            raise refusal from error
        segment.size = self._opening_bytes = len(opening)
        if old is not None and self._handle is not None:
            self._shelf.unindexed.append((old, chronicle.copy()))
            self._sealed.append(self._handle)
            if self._handle not in self._unsynced:
                self._unsynced.append(self._handle)  # its last mark may not be durable
        self.open = segment
        self._handle = self._shelf.files.keep(number, file)
        self._shelf.add(segment)
        self._unsynced.append(self._handle)
        self._names_unsynced = True
        return segment

    async def seal(self, number: int) -> None:
        """If it is the open one.

        Raises:
            Full, DiskFailed.
        """
        self.check()
        async with self._rolling:
            if self.open is not None and self.open.number == number:
                await self.roll()

    async def index_sealed(self) -> bool:
        """Writes the index files of segments that are sealed and durable.  False: the disk is full.

        Raises:
            DiskFailed.
        """
        unindexed = self._shelf.unindexed
        async with self._indexing:
            while unindexed:
                segment, chronicle = unindexed[0]
                if segment.number in self._shelf and segment.column is not None:
                    # The next one has to begin durably: it is what makes this one a sealed one.
                    if self.durable <= place(segment.number + 1, 0):
                        break
                    column = segment.column
                    if not segment.unread:
                        if not await self._shelf.write_index(
                            segment, column, chronicle, sealed=True
                        ):
                            return False
                        segment.column = None
                unindexed.pop(0)
        return True

    # -- durability -------------------------------------------------------------------------

    async def sync(self, *, mark: bool = True) -> None:
        """What was written before the call is durable after it.

        Raises:
            DiskFailed.
        """
        try:
            async with self._syncs:
                await self._sync(mark)
        finally:
            self.on_synced()

    async def _sync(self, mark: bool) -> None:
        self.check()
        handles, names, segment = self._unsynced, self._names_unsynced, self.open
        if not handles or segment is None:
            return
        self._unsynced, self._names_unsynced = [], False
        durable, position = place(segment.number, segment.size), self.chronicle.position
        done = False
        try:
            for handle in handles:
                await handle.file.sync()
            if names:
                await self._disk.sync_names()
            done = True
        except OSError as error:
            failed = self.fail("a sync", error)
            await leave_doubt(self._disk)
            raise failed from error
        finally:
            if not done:  # or cancelled: then the next sync has to do it
                later = [handle for handle in self._unsynced if handle not in handles]
                self._unsynced = handles + later
                self._names_unsynced |= names
        self.durable, self.durable_position = durable, position
        self._close_sealed()
        if not mark:
            return
        try:
            self._mark()
        except Full:
            # A few bytes, without which damage to the last record would look torn.
            if await self._reserve.give_up():
                with suppress(Full):
                    self._mark()

    def _mark(self) -> None:
        """Says, as nothing else does, that everything before it was durable.

        Also behind what was written meanwhile, which claims less; else damage would look torn until
        the next write.  And also behind the end of a segment that is full.  Not synced itself: it
        comes to the disk with what is written next, or when the kernel likes.
        """
        handle = self._handle
        assert handle is not None
        clean = handle not in self._unsynced
        self.append(RecordKind.MARK, b"")
        if clean:
            self._unsynced.remove(handle)

    def _close_sealed(self) -> None:
        """Sealed segments that are synced belong to the readers."""
        still = [handle for handle in self._sealed if handle in self._unsynced]
        for handle in self._sealed:
            if handle not in still:
                self._shelf.files.release(handle)
        self._sealed = still

    def release(self) -> None:
        """The files it holds belong to nobody any more."""
        handles, self._sealed = self._sealed, []
        if self._handle is not None:
            handles.append(self._handle)
            self._handle = None
        for handle in handles:
            self._shelf.files.release(handle)

    # -- failures ---------------------------------------------------------------------------

    def check(self) -> None:
        """
        Raises:
            DiskFailed: something failed before.
        """
        if self.failed is not None:
            raise DiskFailed(str(self.failed)) from self.failed

    def fail(self, what: str, error: OSError) -> DiskFailed:
        self.failed = DiskFailed(f"{what} in the row store failed: {error}")
        return self.failed

    def full(self) -> Full:
        return self._reserve.full()

    def refusal(self, what: str, error: OSError) -> Full | DiskFailed:
        return self.full() if error.errno == errno.ENOSPC else self.fail(what, error)

    def _take_back(self, segment: Segment, handle: Handle, error: OSError) -> Full | DiskFailed:
        """A part of a record may be there: what is written next begins where it began."""
        refusal = self.refusal("a write", error)
        if isinstance(refusal, Full):
            try:
                handle.file.truncate(segment.size)
            except OSError as another:
                return self.fail("taking a part of a record back", another)
        return refusal
