"""Forgetting: which segments may go, and how they go, so that a crash leaves no doubt.

The node says what is dead; here is the veto (N6).  A segment goes, or loses what is dead, only if

- it is sealed, durable and indexed (not where the disk gave not all of it),
- its *reach*, the highest position whose record or body lies in it, is below the older snapshot,
  and below every item whose body is still waited for,
- and so much of the row lies in newer segments that followers can be served from them.

Before that a FLOOR record is durable.  It says from where on every item is whole, so that a file
that is missing in the middle is told from one that was lost.

Whoever asked may be gone before it is done, as a node whose process died: what has begun to take the place
of something, or to go, is done to its end.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import trio

from . import cbor
from .env import Disk, File
from .errors import Corrupt, Full, Refused
from .places import segment_of
from .records import RecordKind, size_of
from .segments import ASIDE, Segment, index_file, segment_file
from .shelf import Shelf
from .sparse import Rewriting
from .writing import Writer

WORTH_FREEING = 0.5  # of what a segment has on the disk: else it is copied for too little


class Forgetting:
    def __init__(self, disk: Disk, shelf: Shelf, writer: Writer, followable_bytes: int) -> None:
        self._disk, self._shelf, self._writer = disk, shelf, writer
        self._followable_bytes = followable_bytes
        self.released = 0  # position: what reaches less far may go
        # What is being given to others: those segments, and all that reach behind a position.
        self.pins: dict[int, tuple[int, frozenset[int]]] = {}

    def release(self, position: int, oldest_body: int) -> None:
        self.released = max(self.released, min(position, oldest_body))

    def may_go(self) -> list[int]:
        """The numbers of the segments that no veto holds."""
        newer, found = 0, []
        unindexed = {segment.number for segment, _ in self._shelf.unindexed}
        for segment in reversed(self._shelf.segments):
            if (
                segment is not self._writer.open
                and segment.number < segment_of(self._writer.durable)
                and segment.number not in unindexed
                and not segment.unread
                and segment.reach < self.released
                and newer >= self._followable_bytes
                and not self._is_pinned(segment)
            ):
                found.append(segment.number)
            newer += segment.size
        return found

    def _is_pinned(self, segment: Segment) -> bool:
        return any(
            segment.reach > position or segment.number in numbers
            for position, numbers in self.pins.values()
        )

    async def drop(self, numbers: Collection[int]) -> list[int]:
        """Unlinks those that may go; returns them.

        Raises:
            DiskFailed.
        """
        may = self.may_go()
        going = sorted(number for number in numbers if number in may)
        if not going:
            return []
        try:
            await self._raise_floor([self._shelf.get(number) for number in going])
        except Full:
            # It cannot be written down; that the oldest files are gone can be seen without it.
            oldest = [segment.number for segment in self._shelf.segments]
            going = [number for index, number in enumerate(going) if number == oldest[index]]
            self._note_floor([self._shelf.get(number) for number in going])
            await self._writer.sync()
        with trio.CancelScope(shield=True):  # sim-ok: some names, and the dead take none away
            await self._unlink(going)
        return going

    async def _unlink(self, going: list[int]) -> None:
        try:
            for number in going:
                # In this order: an index without its segment tells that the segment was lost.
                await self._disk.unlink(index_file(number))
                # Not before: whoever reads opens the file once more as long as it is there, and holds it.
                self._shelf.remove(number)
                await self._disk.unlink(segment_file(number))
            await self._disk.sync_names()
        except OSError as error:
            raise self._writer.fail("dropping a segment", error) from error

    async def rewrite(self, number: int, live: Collection[int]) -> int:
        """Leaves out what is dead if of its bodies those at the places `live` are not.

        Returns how many bytes of the disk that gave back.  0: it would have been less than half of
        what the segment has, and nothing was changed.

        Raises:
            Refused: it may not go.
            Full: there is no space for the copy.
            Corrupt: it is damaged, and left as it is.
            DiskFailed.
        """
        self._check_may_go(number)
        segment, handle = self._shelf.get(number), await self._shelf.files.acquire(number)
        async with self._aside(segment_file(number) + ASIDE) as aside:
            try:
                items = await self._items(segment)
                rewriting = Rewriting(segment, live, items)
                await rewriting.look(handle.file)
                if rewriting.freed < WORTH_FREEING * rewriting.allocated:
                    return 0
                self._check_may_go(number)  # its index may have turned out to be damaged
                await self._copy(handle.file, aside, rewriting)
            finally:
                self._shelf.files.release(handle)
            # Closed before its name goes: all would wait while the blocks of an open one are freed.
            self._shelf.files.forget(number)
            with trio.CancelScope(shield=True):  # sim-ok: some names, and the dead write none
                await self._replace(segment, aside, rewriting)
        return rewriting.freed

    async def _items(self, segment: Segment) -> frozenset[int]:
        """The places that its ITEM records speak of."""
        places = await self._shelf.places(segment)
        if segment.rewritten and len(places):
            # A crash may have come before a copy had its name: its index says that what is here was left out.
            column, _ = await self._shelf.read_again(segment)
            places = column.places
        return frozenset(places)

    async def _copy(self, old: File, aside: str, rewriting: Rewriting) -> None:
        new = await self._disk.open(aside, create=True)
        try:
            new.truncate(0)
            await rewriting.copy(old, new)
            await new.sync()
        finally:
            new.close()

    async def _replace(self, segment: Segment, aside: str, rewriting: Rewriting) -> None:
        await self._raise_floor([segment])
        # The index says so first: what is missing is then known to have been left out.
        if not await self._shelf.index_rewritten(segment, rewriting.mark):
            raise self._writer.full()
        await self._disk.rename(aside, segment_file(segment.number))
        await self._disk.sync_names()
        segment.rewritten = True
        self._shelf.files.forget(segment.number)  # somebody may have read it meanwhile

    @asynccontextmanager
    async def _aside(self, name: str) -> AsyncIterator[str]:
        """The name of a copy, of which nothing is left if it cannot take the place of the segment."""
        try:
            yield name
        except (Full, Corrupt, trio.Cancelled):
            await self._take_away(name)
            raise
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise self._writer.fail("rewriting a segment", error) from error
            await self._take_away(name)
            raise self._writer.full() from error

    async def _take_away(self, name: str) -> None:
        try:
            with trio.CancelScope(shield=True):  # sim-ok: a name, and the dead take none away
                if await self._disk.exists(name):
                    await self._disk.unlink(name)
        except OSError as error:
            raise self._writer.fail("taking a copy away", error) from error

    def _check_may_go(self, number: int) -> None:
        if number not in self.may_go():
            text = f"{segment_file(number)} stays as it is: an item of it may be wanted whole"
            raise Refused(text, segment=number)

    async def _raise_floor(self, going: list[Segment]) -> None:
        """Durably."""
        floor = max(segment.reach for segment in going) + 1
        if floor > self._writer.chronicle.floor:
            head = cbor.dumps([floor])
            await self._writer.room(size_of(len(head), 0))
            self._writer.append(RecordKind.FLOOR, head)
            self._note_floor(going)
        # What was released may not be durable yet, nor may the copies in the newest segment.
        await self._writer.sync()

    def _note_floor(self, going: list[Segment]) -> None:
        chronicle = self._writer.chronicle
        chronicle.floor = max([chronicle.floor, *(segment.reach + 1 for segment in going)])
