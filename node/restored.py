"""Restored: a note in the folder that this row is a copy, for its first start.

What the original took after it was copied is not here, though clients may have been told of it; and
the original may still run.  So the start takes a new uuid, and begins a new lineage.
"""

from __future__ import annotations

from typing import Final

from .env import Disk

NAME: Final = "restored"


async def forget(disk: Disk) -> None:
    """After the new lineage is durable; a crash before this is costs one more."""
    await disk.unlink(NAME)
