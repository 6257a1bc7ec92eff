"""Images: what another machine has of the row, in the place of what is here (N5).

    incoming-image-…         the state and the index, as the other node had them at position p
    incoming-00000012.seg    bodies that they speak of (incoming.py); all of it is being received
            │ whole, and synced
    BASE                     one synced record in the journal: from here on the row begins behind p
            │
    image-… 00000012.seg     renamed; the next opening does that, if this one cannot any more

A crash leaves the old row or the new one: before the BASE the files mean nothing and are unlinked,
behind it they are part of the row.  The segments have numbers that the journal left out for them, below
that of the BASE; so the order of the files is that of the row.  The state's file stays until the node
has two snapshots above p.
"""

from __future__ import annotations

from typing import Final

from .chronicle import Chronicle
from .env import Disk
from .errors import Corrupt
from .forms import BaseForm
from .positions import Column
from .records import RecordKind, size_of
from .segments import Segment, index_number, segment_number
from .shelf import Shelf
from .writing import Writer

INCOMING: Final = "incoming-"
_STATE: Final = "image-"


def state_file(position: int, shift: int) -> str:
    """`shift`: so much higher are the numbers of the segments here than where it was made."""
    return f"{_STATE}{position}-{shift}"


def span(first: int, last: int) -> str:
    """Of the numbers of its segments, as a BASE tells it."""
    return f"{first}-{last}"


async def finish(disk: Disk, base: BaseForm | None) -> bool:
    """At an opening: what was received becomes part of the row, or goes.  True: the row has changed."""
    changed = False
    # Indexes last: one whose segment is not there is taken for a leftover.
    for name in sorted(await disk.names(), key=_is_index):
        if name.startswith(INCOMING):
            if base is not None and belongs(base, name.removeprefix(INCOMING)):
                await disk.rename(name, name.removeprefix(INCOMING))
            else:
                await disk.unlink(name)
            changed = True
        elif name.startswith(_STATE) and (base is None or name != base.files[0]):
            await disk.unlink(name)  # of an earlier one
    if changed:
        await disk.sync_names()
    return changed


async def discard(disk: Disk) -> None:
    """What was received, and will not become part of the row.

    Raises:
        OSError.
    """
    for name in await disk.names():
        if name.startswith(INCOMING):
            await disk.unlink(name)


def _is_index(name: str) -> bool:
    return index_number(name.removeprefix(INCOMING)) is not None


def belongs(base: BaseForm, name: str) -> bool:
    number = segment_number(name) or index_number(name)
    return name == base.files[0] if number is None else came_with(base, number)


def came_with(base: BaseForm | None, number: int) -> bool:
    """That segment is of the last image: it holds bodies, and records no item."""
    if base is None or len(base.files) < 2:
        return False
    first, last = map(int, base.files[1].split("-"))
    return first <= number <= last


def _first(base: BaseForm) -> int:
    """Of the numbers of its segments; 0: it does not tell."""
    return int(base.files[1].split("-")[0]) if len(base.files) > 1 else 0


class Images:
    """Of one store; whoever writes the journal calls."""

    def __init__(self, disk: Disk, chronicle: Chronicle, shelf: Shelf, writer: Writer) -> None:
        self._disk, self._chronicle = disk, chronicle
        self._shelf, self._writer = shelf, writer
        base = chronicle.base
        if base is not None:
            for segment in shelf.segments:
                if came_with(base, segment.number):
                    segment.reach = max(segment.reach, base.position)

    async def reserve(self, position: int, count: int, least: int) -> int:
        """The first of so many numbers, none below `least`, that the journal leaves out.

        They are for an image of that position, whose segments are numbered from `least` on where it
        was made.

        Raises:
            Full, DiskFailed.
        """
        writer = self._writer
        await writer.sync()  # nothing but the next one's beginning tells how long this one is
        assert writer.open is not None
        first = max(writer.open.number + 1, least)
        if state_file(position, first - least) == self.name:
            first += 1  # or the node would take it for the image that it has
        await writer.roll(first + count)
        await writer.sync()
        return first

    async def become(self, base: BaseForm, segments: list[Segment]) -> None:
        """What was received, all of it synced, is the row up to its position.

        Raises:
            Full: nothing has changed.
            DiskFailed.
        """
        writer, head = self._writer, base.encode()
        await writer.room(size_of(len(head), 0))
        writer.append(RecordKind.BASE, head)
        self._chronicle.based(base)
        begun = writer.open
        assert begun is not None
        begun.column, begun.first = Column(base.position + 1), base.position + 1
        begun.last = begun.reach = base.position
        await writer.sync()
        try:
            await finish(self._disk, base)
        except OSError as error:
            raise writer.fail("taking an image", error) from error
        self._shelf.insert(segments)

    @property
    def name(self) -> str:
        """Of the last image; empty: the row began with none."""
        base = self._chronicle.base
        return "" if base is None else base.files[0]

    @property
    def leads_on(self) -> bool:
        """The row can still be followed from the last image."""
        base = self._chronicle.base
        return base is not None and self._chronicle.floor <= base.position + 1

    def left_behind(self, number: int) -> bool:
        """That segment is of a row whose place the last image took: no item of the row lies there."""
        base = self._chronicle.base
        if base is None or number not in self._shelf or number >= _first(base):
            return False
        return self._shelf.get(number).reach <= base.position

    async def state(self) -> str | None:
        """The file with the state of the last image, if it is still there."""
        base = self._chronicle.base
        if base is None or not await self._disk.exists(base.files[0]):
            return None
        return base.files[0]

    async def read_state(self, offset: int, length: int) -> tuple[int, int, bytes] | None:
        """How long the file is, the shift, and a part of it; None: there is no image's state.

        Raises:
            Corrupt: the disk does not give it.
        """
        name = await self.state()
        if name is None:
            return None
        try:
            file = await self._disk.open(name)
            try:
                shift = int(name.rpartition("-")[2])
                return file.size, shift, await file.read(offset, length)
            finally:
                file.close()
        except OSError as error:
            raise Corrupt(f"the disk does not give {name}: {error}") from error

    async def released(self, position: int) -> None:
        """The node has two snapshots, the older one of that position.

        Raises:
            DiskFailed.
        """
        base = self._chronicle.base
        try:
            if base is not None and position > base.position and (name := await self.state()):
                await self._disk.unlink(name)
        except FileNotFoundError:
            pass  # a node that asked for the same, and died, was heard all the same
        except OSError as error:
            raise self._writer.fail("forgetting the state of an image", error) from error
