"""Proof: how far the row had come, by files that are not in its folder.

A snapshot, or an index file of numbers, is given its name only after what it speaks of was synced.
So a row that ends before one of them has lost its end, though nothing in its own folder may say so:

    row        [1 ........ 80][81 ....... ?      the last segment is gone, or its end
    snapshot    1 .................... 101       the row had come to 101, and numbers were given

Numbers given again would be numbers that somebody has already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from .numberfolder import NumberFolder
from .rowstore import RowStore
from .snapshots import Snapshots


class Proof(NamedTuple):
    file: str  # who says so
    position: int


def prover(
    snapshots: Snapshots, folder: NumberFolder
) -> Callable[[RowStore], Awaitable[Proof | None]]:
    """What tells a file of the same row that speaks of more than the row has; None: there is none."""

    async def prove(store: RowStore) -> Proof | None:
        view, segments = store.view, store.segments()
        if view is None or not segments:
            return None
        stores = (store.uuid, *store.formers)
        last = segments[-1].number
        found = [
            *await snapshots.beyond(store.position, stores, view.lineage),
            *await folder.beyond(store.position, stores, last),
        ]
        return max((Proof(*each) for each in found), key=_position, default=None)

    return prove


def _position(proof: Proof) -> int:
    return proof.position
