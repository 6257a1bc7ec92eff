"""Restored: a note in the folder that this row is a copy, for its first start.

What the original took after it was copied is not here, though clients may have been told of it; and
the original may still run.  So the start takes a new uuid, and begins a new lineage.

A row that has lost its end is as such a copy.  Before a start forgets what says so, it leaves the note,
for the next one, if it should die before its new uuid is durable.
"""

from __future__ import annotations

from typing import Final

from . import smallfile
from .env import Disk

NAME: Final = "restored"


async def note(disk: Disk) -> bool:
    """Durable on return.  False: it was there before.

    Raises:
        OSError.
    """
    is_new = not await disk.exists(NAME)
    await smallfile.mark(disk, NAME)
    return is_new


async def forget(disk: Disk) -> None:
    """After the new lineage is durable; a crash before this is costs one more."""
    await disk.unlink(NAME)
