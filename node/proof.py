"""Proof: how far the row had come, by files that are not of the row.

A snapshot, or an index file of numbers, is given its name only after what it speaks of was synced;
the note `ended` is written after the last sync.  So a row that ends before one of them has lost its end, though nothing in its own folder may say so:

    row        [1 ........ 80][81 ....... ?      the last segment is gone, or its end
    snapshot    1 .................... 101       the row had come to 101, and numbers were given

Numbers given again would be numbers that somebody has already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from . import ended
from .chronicle import Chronicle
from .env import Disk
from .errors import Corrupt
from .numberfolder import NumberFolder
from .snapshots import Snapshots


class Proof(NamedTuple):
    file: str  # who says so
    position: int


def prover(
    disk: Disk, snapshots: Snapshots, folder: NumberFolder
) -> Callable[[Chronicle, int], Awaitable[Proof | None]]:
    """What tells a file of the same row that speaks of more than the row has; None: there is none.

    It is asked before anything that seems torn is cut off.  It raises Corrupt if the row is gone.
    """

    async def prove(chronicle: Chronicle, last: int) -> Proof | None:
        view = chronicle.installed_view
        if view is None:
            if names := [*await snapshots.names(), *await folder.names()]:
                raise Corrupt(
                    f"the row is empty, and {names[0]} speaks of one that was there: put its folder "
                    "back, or move `state` and `numbers` away for a row that begins anew"
                )
            return None
        end, stores = chronicle.position, (chronicle.uuid, *chronicle.formers)
        found = [
            *await snapshots.beyond(end, stores, view.lineage),
            *await folder.beyond(end, stores, last),
        ]
        note = await ended.read(disk)
        if note is not None and note.store in stores and note.lineage == view.lineage:
            found.append((ended.NAME, note.position))
        proof = max((Proof(*each) for each in found), key=_position, default=None)
        return proof if proof is not None and proof.position > end else None

    return prove


def _position(proof: Proof) -> int:
    return proof.position
