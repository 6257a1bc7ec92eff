"""The row store: the row on one machine's disk.  One folder, one writer, many readers.

    open           what the bytes mean, and what is done about it       opening.py, recovery.py
    append         what makes something the next item                   appending.py
    write, sync    the open segment, and what of it is durable          writing.py
    read           by place, or by position                             storereads.py, shelf.py
    begin, close   a life, in order, so that its end is known           incarnation.py
    drop, rewrite  what nobody can ask for any more                     forgetting.py
    mending        what is damaged, from items that others have         mending.py
    scrub          every byte, before somebody needs it                 scrub.py

It does not order anything: whoever appends says what the next item is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import attrs

from . import doubt
from .appending import Appending
from .chronicle import Chronicle
from .damage import Damage
from .env import Disk, Env
from .errors import Conflict, Refused
from .findings import Hole
from .forgetting import Forgetting
from .forms import UUID_BYTES
from .images import Images, finish
from .incarnation import Incarnation
from .incoming import Piece
from .mending import Mending
from .opening import Beyond, Opened, open_folder
from .outgoing import read_pieces
from .reserve import Reserve
from .row import Item, View
from .scrub import Pace, at_once, scrub
from .segments import OpenFiles, SegmentInfo
from .shelf import Shelf
from .storeoptions import StoreOptions
from .storereads import StoredHeads, StoreReads
from .writing import Writer

LOCK: Final = "lock"


@attrs.frozen
class Recovered:
    """What recovery found and did."""

    blank: bool  # there was no row
    position: int  # of the last item that was kept
    records: int  # that were looked at one by one
    cut_bytes: int  # of a torn tail
    rewritten_bytes: int  # kept, but perhaps only in the cache, and so written again
    damages: tuple[Damage, ...]


class RowStore:
    def __init__(
        self, disk: Disk, env: Env, options: StoreOptions, reserve: Reserve, opened: Opened
    ) -> None:
        chronicle = opened.chronicle
        self.recovered = Recovered(
            blank=chronicle is None,
            position=0 if chronicle is None else chronicle.position,
            records=opened.records,
            cut_bytes=opened.cut_bytes,
            rewritten_bytes=opened.rewritten_bytes,
            damages=tuple(opened.damages),
        )
        self.holes: tuple[Hole, ...] = tuple(opened.holes)
        self.lost = opened.lost  # why nothing may be written behind the last item
        self.options, self.reserve = options, reserve
        if chronicle is None:
            chronicle = Chronicle(env.rng.randbytes(UUID_BYTES))  # U1
        self.chronicle = chronicle
        self._disk = disk
        # Damage may have hit what others were promised: the next `begin` takes a new name (N6, U3).
        self.exposed = opened.exposed
        self._abandoned = False
        files = OpenFiles(disk, options.open_files)
        self._shelf = Shelf(disk, files, opened.segments, chronicle, options.window_bytes)
        self._shelf.unindexed += opened.unindexed
        self._reads = StoreReads(self._shelf)
        self._writer = Writer(disk, options, chronicle, self._shelf, reserve)
        self.appending = Appending(chronicle, self._writer)
        self._incarnation = Incarnation(disk, env, chronicle, self._shelf, self._writer)
        self._forgetting = Forgetting(disk, self._shelf, self._writer, options.followable_bytes)
        self.images = Images(disk, chronicle, self._shelf, self._writer)
        self.mending = Mending(disk, chronicle, self._shelf, self._reads, self._writer)

    @classmethod
    async def open(
        cls, disk: Disk, env: Env, options: StoreOptions, *, beyond: Beyond | None = None
    ) -> RowStore:
        """Takes the lock of the folder and recovers; nothing new is written before `begin`.

        `beyond` says why the row cannot end where it seems to; then nothing is cut off there.

        Raises:
            Conflict: another process has the folder; names its pid.
            Corrupt: no row can be made of what is there; says which file, and nothing was changed.
            DiskFailed: a write or a sync failed.
        """
        try:
            disk.lock(LOCK)
        except BlockingIOError as error:
            raise Conflict(
                f"the row store is in use: {error.strerror}; one process may have it"
            ) from error
        done = False
        try:
            doubted = await disk.exists(doubt.NAME)  # then the kernel may have dropped something
            boot_id = "" if doubted else env.boot_id
            opened = await open_folder(disk, options, boot_id, beyond)
            if await finish(disk, opened.chronicle.base if opened.chronicle else None):
                opened = await open_folder(disk, options, boot_id, beyond)
            reserve = Reserve(disk, options)
            await reserve.open(blank=opened.chronicle is None)
            store = cls(disk, env, options, reserve, opened)
            if opened.chronicle is None:
                await env.disk.sync_names()  # the folder may be new, too
            await store._writer.resume()
            done = True
            return store
        finally:
            if not done:
                disk.unlock(LOCK)

    async def close(self) -> None:
        """Orderly: synced, `clean` written, indexed; the lock is given back.

        Raises:
            DiskFailed.
        """
        try:
            await self._incarnation.close(self.reserve)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """As the end of the process would: nothing more is written, files and lock are free."""
        if not self._abandoned:
            self._abandoned = True
            self._disk.unlock(LOCK)
            self._writer.release()
            self._shelf.files.close()

    # -- what is known of it ----------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        """Its folder."""
        return self._disk

    @property
    def uuid(self) -> bytes:
        return self.chronicle.uuid

    @property
    def formers(self) -> tuple[bytes, ...]:
        """Uuids that it had before damage made it take a new one."""
        return self.chronicle.formers

    @property
    def view(self) -> View | None:
        """The installed one; None before genesis."""
        return self.chronicle.installed_view

    @property
    def position(self) -> int:
        """Of the last item."""
        return self.chronicle.position

    @property
    def durable_position(self) -> int:
        """Of the last item that a power loss would leave."""
        return self._writer.durable_position

    @property
    def digest(self) -> bytes:
        """Of the row up to `position`."""
        return self.chronicle.digest

    @property
    def floor(self) -> int:
        """The lowest position from which every item is whole, but for damage."""
        return self.chronicle.floor

    @property
    def dirty(self) -> bool:
        """Something was written that is not durable yet."""
        return self._writer.dirty

    @property
    def overhang(self) -> int:
        """Bytes behind the end of the row that opening left as they are."""
        return self._writer.overhang

    @property
    def syncing(self) -> bool:
        return self._writer.syncing

    def on_synced(self, call: Callable[[], None]) -> None:
        """`call` is made whenever a sync has ended, whoever asked for it."""
        self._writer.on_synced = call

    @property
    def unindexed(self) -> bool:
        """A sealed segment has no index file yet."""
        return bool(self._shelf.unindexed)

    def check(self) -> None:
        """
        Raises:
            DiskFailed: a write or a sync failed before.
        """
        self._writer.check()

    def segments(self) -> list[SegmentInfo]:
        return self._shelf.infos(self._writer.open)

    # -- reading ----------------------------------------------------------------------------

    async def place_of(self, position: int) -> int:
        """The record of the bundle or mark at a position.

        Raises:
            NotFound: it was dropped, or left out, or is still to come.
            Corrupt: damage took it.
        """
        return await self._shelf.place_of(position)

    async def holders(self, position: int) -> list[int]:
        """The segments that hold the item there, or say where it is."""
        return await self._shelf.holders(position)

    async def digest_of(self, position: int) -> bytes:
        """Of the row up to and with a position; position 0 has one too.

        Raises: as `place_of`.
        """
        chronicle = self.chronicle
        if position == chronicle.position:
            return chronicle.digest
        if chronicle.base is not None and position == chronicle.base.position:
            return chronicle.base.digest
        return await self._reads.digest_of(position)

    async def read_heads(self, place: int) -> StoredHeads:
        """The bundle whose record is at `place`; the place's command is ignored.

        Raises:
            NotFound: its segment was dropped.
            Corrupt: names file, offset and position.
        """
        return await self._reads.read_heads(place)

    async def read_body(self, place: int, *, is_live: bool = False) -> bytes:
        """The body of one command; checked.

        Raises:
            NotFound: its segment was dropped, or a rewrite left it out.
            Corrupt: names file, offset and position.
        """
        return await self._reads.read_body(place)

    async def read_items(
        self, position: int, limit_bytes: int, *, end: int | None = None, bodies: bool = False
    ) -> list[Item]:
        """Items from `position` on, in order, up to `end` or the row's: one, or more within the limit.

        Without `bodies` the commands have empty ones; an item then counts with its heads.

        Raises:
            NotFound, Corrupt: the first of them is not there, or damaged.
        """
        last = self.position if end is None else min(end, self.position)
        return await self._reads.read_items(position, last, limit_bytes, with_bodies=bodies)

    async def copies_before(self, position: int) -> Chronicle:
        """How things stood when the segment began that goes on behind a position: there, or earlier.

        Raises:
            Corrupt: it does not say so any more.
        """
        return await self._reads.copies_before(position)

    async def read_pieces(
        self, segment: int, offset: int, size: int, limit: int, *, whole: bool
    ) -> tuple[int, list[Piece]]:
        """For an image: see outgoing.py.

        Raises:
            NotFound: the segment was dropped.
            Corrupt: something of it is damaged, and was wanted whole.
        """
        return await read_pieces(self._shelf, segment, offset, size, limit, whole=whole)

    async def scrub(self, pace: Pace = at_once) -> list[Damage]:
        """Reads everything that is durable and checks every byte; slow, and gives others turns.

        `pace` is told after each read how much it was, and may wait.
        """
        return await scrub(self._shelf, self._writer.durable_bytes, pace)

    # -- writing ----------------------------------------------------------------------------

    def take_new_name(self) -> None:
        """With the next `begin`: this is not the store any more that others knew by the old one."""
        self.exposed = True

    async def begin(self, incarnation: int) -> None:
        """A new incarnation: its START is durable on return (N7).

        Raises:
            Full, DiskFailed.
        """
        if self.exposed:
            await self._incarnation.rename()
            self.exposed = False
        await self._incarnation.begin(incarnation, self.options.level)

    async def sync(self) -> None:
        """What was written before the call is durable after it.

        Raises:
            DiskFailed: the process has to end.
        """
        await self._writer.sync()

    async def index_sealed(self) -> bool:
        """Writes the index files of segments that are sealed and durable.  False: the disk is full.

        Raises:
            DiskFailed: the process has to end.
        """
        return await self._writer.index_sealed()

    # -- forgetting -------------------------------------------------------------------------

    def release(self, position: int, oldest_body: int) -> None:
        """See `KeptRow.release`; it is only a leave, `drop` and `rewrite` say what goes."""
        self._forgetting.release(position, oldest_body)

    def pin(self, name: int, position: int, segments: Collection[int]) -> None:
        """Until `unpin`: those segments stay, and so does what is behind the position."""
        self._forgetting.pins[name] = position, frozenset(segments)

    def unpin(self, name: int) -> None:
        self._forgetting.pins.pop(name, None)

    async def drop(self, numbers: Collection[int]) -> list[int]:
        """Unlinks those of these segments that may go; returns them.

        Raises:
            DiskFailed: the process has to end.
        """
        await self.images.released(self._forgetting.released)
        held = self.chronicle.held
        async with self.mending.lock:
            return await self._forgetting.drop([each for each in numbers if each not in held])

    async def rewrite(self, segment: int, live: Collection[int]) -> int:
        """Leaves out what is dead if of the bodies those at the places `live` are not (sparse.py).

        Returns how many bytes of the disk that gave back; what stays keeps its offset, and `floor`
        passes the segment's reach.  0: it would have been less than half of what the segment has
        there, and nothing was changed.

        Raises:
            Refused: the segment is open, or an item of it may still be wanted whole.
            Full: there is no space for the copy.
            Corrupt: it is damaged, and left as it is.
            DiskFailed: the process has to end.
        """
        if segment in self.chronicle.held:
            raise Refused(f"segment {segment} stays as it is: what lies in it is staged, or waits")
        async with self.mending.lock:
            return await self._forgetting.rewrite(segment, live)

    async def seal(self, segment: int) -> None:
        """If that one is written to, a new one begins; nobody else may write meanwhile.

        Raises:
            Full, DiskFailed: as `append`.
        """
        await self._writer.seal(segment)
