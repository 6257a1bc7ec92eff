"""Scrub of the index of numbers: every row of every file is read, and mended where that is proven.

The directory of a file is in memory, and so are blocks of rows that were used lately: they are put
back.  Else a single bit is found by the checksum of its block (onebit.py), and the rows must follow
each other as the directory says.  What cannot be mended is told; a start that finds the file
missing makes it again, if the row reaches back to a snapshot before it.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

from .checksum import crc32c
from .damage import Damage
from .env import Buffer, File
from .errors import DiskFailed
from .numberfile import BLOCK_BYTES, BLOCK_ROWS, ROW_BYTES, NumberFile, decode_rows
from .onebit import mended
from .places import segment_of
from .segmentreads import read_or_zeros

Pace = Callable[[int], Awaitable[None]]


async def scrub_file(name: str, on_disk: File, file: NumberFile, pace: Pace) -> list[Damage]:
    """Of one file that is in use.

    Raises:
        DiskFailed: what is mended could not be written.
    """
    damages, end = [], file.rows * ROW_BYTES
    for offset in range(0, end, BLOCK_BYTES):
        index, length = offset // BLOCK_BYTES, min(BLOCK_BYTES, end - offset)
        found = await read_or_zeros(on_disk, offset, length)
        await pace(length)
        if crc32c(found) != file.sums[index]:
            block = file.checked_before(index) or _mended(file, index, found)
            if block is not None:
                await _put(on_disk, offset, block, name)
            what = f"rows {index * BLOCK_ROWS:,} and following of the index of numbers"
            damages.append(Damage(name, offset, length, what, mended=block is not None))
    found = await read_or_zeros(on_disk, end, len(file.tail))
    await pace(len(found))
    if found != file.tail:
        await _put(on_disk, end, file.tail, name)
        what = "the directory of the index of numbers"
        damages.append(Damage(name, end, len(file.tail), what, mended=True))
    return damages


def _mended(file: NumberFile, index: int, found: bytes) -> bytes | None:
    block = mended(found, file.sums[index])
    return block if block is not None and _makes_sense(file, index, block) else None


def _makes_sense(file: NumberFile, index: int, block: Buffer) -> bool:
    """Whether the rows follow each other, and are those of this file."""
    cover, start = file.cover, index * BLOCK_ROWS
    rows = decode_rows(block, 0, len(block) // ROW_BYTES)
    for entry in range(len(file.keys)):
        first, stop = file.span(entry)
        expected, position, time = file.firsts[entry], cover.after + 1, 0
        for at in range(max(first, start), min(stop, start + len(rows))):
            row = rows[at - start]
            follows = at > start or at == first  # the row before it can be seen
            if follows and row.first != expected:
                return False
            if row.position < position or row.time < time:
                return False
            if at == stop - 1 and row.last != file.lasts[entry]:
                return False
            if row.position > cover.upto or segment_of(row.place) > cover.segment:
                return False
            expected, position, time = row.last + 1, row.position, row.time
    return True


async def _put(on_disk: File, offset: int, content: bytes, name: str) -> None:
    """Over what is damaged: a crash leaves it damaged, or in part."""
    try:
        on_disk.write(offset, [content])
        await on_disk.sync()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise DiskFailed(f"mending {name}: {error}") from error
