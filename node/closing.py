"""Closing in order: `clean`, and what makes the next start a quick one and proves where the row ended.

CLEAN ─► sync ─► index files of the sealed segments ─► of the open one
full:    once more in the space of the reserve, which the next start makes again
full:    the note `ended`, which needs no space
"""

from __future__ import annotations

from . import cbor, ended
from .chronicle import Chronicle
from .env import Disk
from .errors import Full
from .records import RecordKind
from .reserve import Reserve
from .shelf import Shelf
from .writing import Writer


async def close(
    disk: Disk,
    chronicle: Chronicle,
    incarnation: int,
    shelf: Shelf,
    writer: Writer,
    reserve: Reserve,
) -> None:
    """
    Raises:
        DiskFailed.
    """
    if await _finish(chronicle, incarnation, shelf, writer):
        return
    while await reserve.give_up(last=True):
        if await _finish(chronicle, incarnation, shelf, writer):
            return
    await ended.note(disk, chronicle)


async def _finish(chronicle: Chronicle, incarnation: int, shelf: Shelf, writer: Writer) -> bool:
    """False: something did not fit on the disk."""
    fits = True
    if not chronicle.starts[incarnation].clean:
        try:
            writer.append(RecordKind.CLEAN, cbor.dumps([incarnation]))
            chronicle.clean(incarnation)
        except Full:
            fits = False
    await writer.sync(mark=False)
    fits &= await writer.index_sealed()
    segment = writer.open
    if segment is not None and segment.column is not None:
        fits &= await shelf.write_index(segment, segment.column, chronicle, sealed=False)
    return fits
