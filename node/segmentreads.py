"""Reading the files of a row whose bytes may be anything: sectors, beginnings, index files."""

from __future__ import annotations

from array import array
from collections.abc import Generator
from typing import Final, TypeVar

from .chronicle import Opening
from .env import Disk, File
from .errors import Corrupt
from .limits import KIB
from .positions import IndexHead, check_places, decode_index_head, index_head_length
from .records import RecordKind, decode, seed_of
from .segments import index_file

T = TypeVar("T")
PAGE_BYTES: Final = 4 * KIB
SECTOR_BYTES: Final = 512
Unread = list[tuple[int, int]]  # of a file, from where to where the disk did not give it


async def feed(
    scan: Generator[tuple[int, int], bytes, T], file: File, unread: Unread | None = None
) -> T:
    """Lets a pure reader see a file."""
    try:
        wanted = next(scan)
        while True:
            wanted = scan.send(await read_or_zeros(file, *wanted, unread))
    except StopIteration as stop:
        result: T = stop.value
        return result


async def read_or_zeros(
    file: File, offset: int, length: int, unread: Unread | None = None, step: int = PAGE_BYTES
) -> bytes:
    """A sector that cannot be read is zeros, which no checksum fits; `unread` is told of it."""
    try:
        return await file.read(offset, length)
    except OSError:
        end = min(offset + length, file.size)
        if end <= offset:
            return b""
        if offset // SECTOR_BYTES == (end - 1) // SECTOR_BYTES:
            if unread is not None:
                unread.append((offset, end))
            return bytes(end - offset)
        smaller, parts = max(SECTOR_BYTES, step // 8), []
        while offset < end:
            following = min(end, (offset // step + 1) * step)
            parts.append(await read_or_zeros(file, offset, following - offset, unread, smaller))
            offset = following
        return b"".join(parts)


def touches(unread: Unread, offset: int, length: int) -> bool:
    """Whether the disk did not give some of it."""
    return any(start < offset + length and offset < end for start, end in unread)


async def read_index_head(disk: Disk, number: int) -> IndexHead | None:
    """None: there is no whole index file of that segment."""
    try:
        file = await disk.open(index_file(number))
    except FileNotFoundError:
        return None
    try:
        return await index_head_in(file, number)
    except Corrupt:
        return None
    finally:
        file.close()


async def index_head_in(file: File, number: int) -> IndexHead:
    """
    Raises:
        Corrupt: it is no whole index file of that segment.
    """
    raw = await read_or_zeros(file, 0, PAGE_BYTES)
    if len(raw) < (needed := index_head_length(raw)):
        raw = await read_or_zeros(file, 0, needed)
    head = decode_index_head(raw)
    if head.segment != number or file.size != head.size:
        raise Corrupt(f"{index_file(number)} is not the index of its segment")
    return head


async def read_places(disk: Disk, head: IndexHead) -> array[int]:
    """
    Raises:
        Corrupt: they are not those that were written.
    """
    file = await disk.open(index_file(head.segment))
    try:
        return await places_in(file, head)
    finally:
        file.close()


async def places_in(file: File, head: IndexHead) -> array[int]:
    """
    Raises:
        Corrupt: as `read_places`.
    """
    raw = await read_or_zeros(file, head.places_at, 8 * head.count)
    check_places(head, raw)
    places = array("Q")
    places.frombytes(raw)
    return places


def opening_in(raw: bytes, number: int) -> Opening | None:
    """The SEGMENT record at the beginning of a file; it proves itself."""
    record = decode(raw, 0, 0, None)
    if record is None or record.kind != RecordKind.SEGMENT:
        return None
    try:
        opening = Opening.decode(record)
    except Corrupt:
        return None
    whole = decode(raw, 0, 0, seed_of(opening.uuid, number)) is not None
    return opening if whole and opening.segment == number else None
