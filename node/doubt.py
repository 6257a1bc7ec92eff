"""Doubt: a note in the folder that a sync failed, for the next start.

After a failed sync the kernel may drop what was written and forget that it did.  The process ends;
the next one reads what is left, and cannot see that something was answered which is not there.  At
level `fsync` nothing was: answers wait for syncs.  At the others the note makes the next start
begin a new lineage, as after a power loss.

A note on a disk that fails may fail too.  Then nothing tells; but a name needs no block of its own,
and as long as the machine runs it is enough that it is in the kernel's memory.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from . import smallfile
from .env import Disk

NAME: Final = "doubt"


async def leave_doubt(disk: Disk) -> None:
    """Before the process ends; nobody can wait for it to be cancelled."""
    with trio.CancelScope(shield=True), suppress(OSError):  # sim-ok: the dead write nothing
        await smallfile.mark(disk, NAME)


async def clear_doubt(disk: Disk) -> None:
    """After everything that is there was synced, and a new lineage with it.

    A crash before this is durable costs one more lineage.
    """
    await disk.unlink(NAME)
