"""Carrying out what recovery decided about the files of a row, and syncing it.

In this order, so that a crash at any point leaves what the next opening finishes:

1. later files than the one with the torn tail are unlinked, the newest first;
2. the torn tail is cut off, and that is synced;
3. what is kept, but not known to have been durable, is written again: a sync that failed in an
   earlier life may have left it in the cache alone, as clean as if it were on the disk;
4. bytes that are proven to have been there are put back;
5. all of it is synced.

Where damage ends the row, 1 and 2 are left out: nothing is written behind the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import attrs

from .chronicle import Opening
from .doubt import leave_doubt
from .env import Disk, File
from .errors import DiskFailed
from .findings import Repair
from .limits import MIB
from .records import seed_of
from .recovery import Recovery, offset_in
from .segmentreads import SECTOR_BYTES, Unread
from .segments import segment_file

COPY_BYTES: Final = 1 * MIB
OpenFile = Callable[[int], Awaitable[File]]  # by the number of a segment


@attrs.define(eq=False)
class Tail:
    """A segment that is read, since no index file speaks for all of it."""

    number: int
    file: File
    uuid: bytes
    opening: Opening | None
    unread: Unread  # what the disk did not give of it
    end: int = 0  # of what is kept

    @property
    def seed(self) -> int:
        return seed_of(self.uuid, self.number)


class Carried(NamedTuple):
    cut_bytes: int
    rewritten_bytes: int


def unread_end(tail: Sequence[Tail], kept: Sequence[Tail], recovery: Recovery) -> str | None:
    """What could not be read where the row ends; None: that is known, whatever it comes to."""
    ended = any(not hole.last for hole in recovery.holes)
    for each in tail:
        file, end = segment_file(each.number), each.end if each in kept else 0
        lost = [d for d in recovery.damages if d.file == file and not d.mended] if ended else []
        for start, stop in each.unread:
            hides_end = end < each.file.size and stop > end
            if hides_end or any(d.offset < stop and start < d.offset + d.length for d in lost):
                return f"bytes {start:,} to {stop:,} of {file}"
    return None


async def carry_out(
    disk: Disk,
    tail: Sequence[Tail],
    kept: Sequence[Tail],
    recovery: Recovery,
    open_file: OpenFile,
    *,
    ended: bool,
) -> Carried:
    """`ended`: damage ends the row here, so nothing will be written behind it.

    What lies there stays: it may be read again some day, when the disk gives it.

    Raises:
        DiskFailed: a write or a sync failed.
    """
    cut_bytes = rewritten_bytes = 0
    dropped = [] if ended else [each for each in tail if each not in kept]
    written: dict[int, File] = {}
    names = bool(dropped)
    try:
        for each in reversed(dropped):
            cut_bytes += each.file.size
            await disk.unlink(segment_file(each.number))
        if dropped:
            await disk.sync_names()
        for each in kept:
            if each.end < each.file.size and not ended:
                cut_bytes += each.file.size - each.end
                each.file.truncate(each.end)
                await each.file.sync()
        for each in kept:
            start = offset_in(each.number, recovery.durable)
            if start < each.end:
                written[each.number] = each.file
                names = True
                await write_again(each.file, start, each.end)
                rewritten_bytes += each.end - start
        written |= await _put_back(recovery.repairs, open_file)
        for file in written.values():
            await file.sync()
        if names:
            await disk.sync_names()
    except OSError as error:
        raise await _failed(disk, error) from error
    return Carried(cut_bytes, rewritten_bytes)


async def put_back(disk: Disk, repairs: Sequence[Repair], open_file: OpenFile) -> None:
    """In segments that were sealed and durable long ago.

    Raises:
        DiskFailed: a write or a sync failed.
    """
    try:
        for file in (await _put_back(repairs, open_file)).values():
            await file.sync()
    except OSError as error:
        raise await _failed(disk, error) from error


async def _put_back(repairs: Sequence[Repair], open_file: OpenFile) -> dict[int, File]:
    """The files that are to be synced, by segment."""
    written: dict[int, File] = {}
    for repair in repairs:
        written[repair.segment] = file = await open_file(repair.segment)
        file.write(repair.offset, [repair.content])
    return written


async def _failed(disk: Disk, error: OSError) -> DiskFailed:
    await leave_doubt(disk)
    return DiskFailed(f"recovery of the row store could not be written: {error}")


async def write_again(file: File, start: int, end: int) -> None:
    for offset in range(start, end, COPY_BYTES):
        await _copy(file, offset, min(offset + COPY_BYTES, end))


async def _copy(file: File, start: int, end: int) -> None:
    """Onto itself; sectors of a body that cannot be read stay as they are, for its reader to be told."""
    try:
        data = await file.read(start, end - start)
    except OSError:
        if start // SECTOR_BYTES == (end - 1) // SECTOR_BYTES:
            return
        middle = ((start + end) // 2 + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES
        middle = middle if middle < end else (end - 1) // SECTOR_BYTES * SECTOR_BYTES
        await _copy(file, start, middle)
        await _copy(file, middle, end)
    else:
        file.write(start, [data])
