"""A small file that is there as a whole or not at all: written aside, synced, and renamed.

A *mark* has no content: that it is there says all.
"""

from __future__ import annotations

import errno

from .env import Disk
from .errors import DiskFailed
from .segments import ASIDE


async def put(disk: Disk, name: str, content: bytes) -> bool:
    """False: the disk is full, and what was there is still there.

    Raises:
        DiskFailed: for any other error.
    """
    try:
        file = await disk.open(name + ASIDE, create=True)
        try:
            file.truncate(0)
            file.write(0, [content])
            await file.sync()
        finally:
            file.close()
        await disk.rename(name + ASIDE, name)
        await disk.sync_names()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise DiskFailed(f"the file {name} could not be written: {error}") from error
        if await disk.exists(name + ASIDE):
            await disk.unlink(name + ASIDE)
        return False
    return True


async def get(disk: Disk, name: str, bytes_max: int) -> bytes:
    """Empty: it is not there.

    Raises:
        OSError: the disk does not give it.
    """
    try:
        file = await disk.open(name)
    except FileNotFoundError:
        return b""
    try:
        return bytes(await file.read(0, bytes_max))
    finally:
        file.close()


async def mark(disk: Disk, name: str) -> None:
    """Durable on return.

    Raises:
        OSError.
    """
    file = await disk.open(name, create=True)
    try:
        await file.sync()
    finally:
        file.close()
    await disk.sync_names()
