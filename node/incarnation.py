"""An incarnation: one life of the row store, how it begins and how it ends in order.

    rename   a new name, where the old one cannot be trusted
    begin    START, synced (N7)
    close    CLEAN ─► sync ─► index files of the sealed segments ─► of the open one
             full: once more in the space of the reserve, which the next start makes again
             full: the note `ended`, which needs no space

What `close` leaves makes the next start a quick one, and proves where the row ended.
"""

from __future__ import annotations

from . import cbor, ended, restored
from .chronicle import Chronicle
from .env import Disk, Env
from .errors import Corrupt, Full
from .forms import UUID_BYTES, Start
from .records import RecordKind
from .reserve import Reserve
from .segmentreads import read_index_head, read_places
from .segments import Segment, index_file, index_number, segment_number
from .shelf import Shelf
from .writing import Writer


class Incarnation:
    def __init__(
        self, disk: Disk, env: Env, chronicle: Chronicle, shelf: Shelf, writer: Writer
    ) -> None:
        self._disk, self._env, self._chronicle = disk, env, chronicle
        self._shelf, self._writer = shelf, writer
        self._number: int | None = None  # None: it has not begun
        self._noted = False  # that the end of the row was lost, until the new name is durable

    async def rename(self) -> None:
        """With the next `begin`.

        Raises:
            Full: nothing has changed.
            DiskFailed.
        """
        await self._forget_lost()
        self._chronicle.rename(self._env.rng.randbytes(UUID_BYTES))

    async def begin(self, number: int, level: str) -> None:
        """
        Raises:
            Full, DiskFailed.
        """
        chronicle, writer = self._chronicle, self._writer
        if writer.open is None or writer.open.uuid != chronicle.uuid:
            await writer.roll()
        await ended.prepare(self._disk)
        count = chronicle.start_count + 1
        start = Start(number, self._env.boot_id, level, count, chronicle.uuid)
        chronicle.start_count = count
        writer.append(RecordKind.START, start.encode())
        chronicle.start(start)
        # Without a MARK damage to it would look torn: a name, or a number of starts, would be there twice.
        await writer.sync()
        if self._noted:
            await restored.forget(self._disk)
        self._number = number

    async def _forget_lost(self) -> None:
        """What recovery has left behind the end that damage made, and index files that may speak of it: other
        items come there now.

        It may be all that says that something was lost.

        Raises:
            Full, DiskFailed.
        """
        writer, names = self._writer, await self._disk.names()
        last = 0 if writer.open is None else writer.open.number
        kept = writer.open is not None and await self._is_true(writer.open)
        indexes = [number for name in names if (number := index_number(name)) is not None]
        gone = [index_file(n) for n in indexes if n >= last + kept or await self._speaks_behind(n)]
        gone += [name for name in reversed(names) if (segment_number(name) or -1) > last]
        if not (gone or writer.overhang):
            return
        try:
            self._noted |= await restored.note(self._disk)
            for name in gone:
                await self._disk.unlink(name)
            await self._disk.sync_names()
            await writer.cut()
        except OSError as error:
            raise writer.refusal("forgetting what was lost", error) from error

    async def _speaks_behind(self, number: int) -> bool:
        """Of a segment that is lost, as was the end: it would be missed later, with items that are there."""
        if number in self._shelf:
            return False
        head = await read_index_head(self._disk, number)
        return head is not None and head.last > self._chronicle.position

    async def _is_true(self, segment: Segment) -> bool:
        """What its index says is what recovery came to: it may know places that nothing else tells any more."""
        head, column = await read_index_head(self._disk, segment.number), segment.column
        if head is None or column is None or head.covered > segment.size:
            return False
        try:
            places = await read_places(self._disk, head)
        except Corrupt:
            return False
        return (head.first, places) == (column.first, column.places[: head.count])

    async def close(self, reserve: Reserve) -> None:
        """
        Raises:
            DiskFailed.
        """
        if self._number is None or self._writer.failed is not None:
            return
        if await self._finish(self._number):
            return
        while await reserve.give_up(last=True):
            if await self._finish(self._number):
                return
        await ended.note(self._disk, self._chronicle)

    async def _finish(self, number: int) -> bool:
        """False: something did not fit on the disk."""
        chronicle, writer, fits = self._chronicle, self._writer, True
        if not chronicle.starts[number].clean:
            try:
                writer.append(RecordKind.CLEAN, cbor.dumps([number]))
                chronicle.clean(number)
            except Full:
                fits = False
        await writer.sync(mark=False)
        fits &= await writer.index_sealed()
        segment = writer.open
        if segment is not None and segment.column is not None:
            fits &= await self._shelf.write_index(segment, segment.column, chronicle, sealed=False)
        return fits
