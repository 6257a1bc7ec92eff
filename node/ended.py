"""Ended: a note of where the row ended, for a close that could write no index file.

A disk may be full to the last byte when a node is closed, its reserve used up.  Then nothing but the
newest segment itself would say that it was there, and its loss would look like a torn tail.  So a
block was written while there was space, and what is written over it needs none.  (A file system
that copies on write may refuse that, too: then there is no proof, as after a kill.)

    crc32c of the rest | length | [uuid, lineage, position]      zeros: it was never needed
"""

from __future__ import annotations

import errno
import struct
from typing import Final, NamedTuple

from . import cbor
from .checksum import crc32c
from .chronicle import Chronicle
from .env import Disk
from .errors import Corrupt, DiskFailed
from .limits import KIB

NAME: Final = "ended"
BLOCK_BYTES: Final = 4 * KIB
_START: Final = struct.Struct("<II")
_FIELDS: Final = 3


class Ended(NamedTuple):
    """The row of that store and lineage had come durably to that position."""

    store: bytes
    lineage: int
    position: int


async def prepare(disk: Disk) -> None:
    """Makes the block; on a full disk the next start tries again.

    Raises:
        DiskFailed.
    """
    try:
        file = await disk.open(NAME, create=True)
        try:
            if file.size != BLOCK_BYTES:
                file.write(0, [bytes(BLOCK_BYTES)])
                await file.sync()
                await disk.sync_names()
        finally:
            file.close()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise DiskFailed(f"the file {NAME} could not be made: {error}") from error


async def note(disk: Disk, chronicle: Chronicle) -> None:
    """Everything in the chronicle is durable.

    Raises:
        DiskFailed: for anything but a lack of space.
    """
    view = chronicle.installed_view
    if view is None:
        return  # nothing is in the row
    raw = cbor.dumps([chronicle.uuid, view.lineage, chronicle.position])
    length = len(raw).to_bytes(4, "little")
    try:
        file = await disk.open(NAME)
        try:
            file.write(0, [crc32c(length + raw).to_bytes(4, "little") + length + raw])
            await file.sync()
        finally:
            file.close()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOENT):
            raise DiskFailed(f"writing down where the row ended: {error}") from error


async def read(disk: Disk) -> Ended | None:
    """None: it was never needed, or it is damaged, and proves nothing."""
    try:
        file = await disk.open(NAME)
    except FileNotFoundError:
        return None
    try:
        content = await file.read(0, BLOCK_BYTES)
    except OSError:
        return None
    finally:
        file.close()
    if len(content) < _START.size:
        return None
    crc, length = _START.unpack_from(content)
    raw = content[_START.size : _START.size + length]
    if not length or crc32c(content[4:8] + raw) != crc:
        return None
    try:
        found = cbor.loads_array(raw, BLOCK_BYTES)
    except Corrupt:
        return None
    return Ended(*found) if len(found) == _FIELDS else None
