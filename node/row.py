"""The row in values: bundles, views, and the items that either becomes at its place.

What a node asks of its row, whoever keeps it, is in keptrow.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from .commands import Command


class Bundle(NamedTuple):
    """Commands that one node submitted together; named (view, origin, s); immutable."""

    view: int
    origin: int  # node id
    s: int  # 1, 2, 3 ... per view and origin
    lamport: int  # PROTOCOL's L; the row is in (view, lamport, origin) order
    stamp: int  # wall clock of the bridge that made it, microseconds; the time of the row
    commands: tuple[Command, ...]


class Member(NamedTuple):
    id: int
    incarnation: int
    weight: int


@attrs.frozen
class View:
    """A decided view record; as an item of the row it is a *mark*: what follows is in this view.

    Voters, cut and cont are filled by the bridge.  A cluster of one has itself everywhere.
    """

    id: int
    members: tuple[Member, ...]
    cluster: bytes  # 16 random bytes; rows of different clusters never merge (N7)
    lineage: int  # random; a new one when acknowledged entries may have been lost
    durability: str
    min_copies: int = 1
    voters: tuple[tuple[int, int, bytes, bool], ...] = ()  # (id, weight, uuid, data?)
    cut: tuple[tuple[int, int], ...] = ()  # (origin, s) of the previous view
    cont: tuple[int, ...] = ()


class Item(NamedTuple):
    """An element of the row: a bundle or a view mark, at its position."""

    position: int
    place: int  # of the record that holds the bodies; local
    crc: int  # crc32c over the heads, and so over the bodies' checksums; the same everywhere
    content: Bundle | View


class RowStatus(NamedTuple):
    active: bool  # may order
    members: tuple[int, ...]
    position: int  # of the last item
    durable: int  # position up to which the row is durable here
    view: int
    disk: str  # "ok", "soft" or "hard": which reserve is being used
    missing: tuple[str, ...] = ()  # without these machines there is no majority, by name
    witness: bool = False  # it votes and keeps no row


def alone(id_: int, uuid: bytes, durability: str, status: RowStatus) -> dict[str, Any]:
    """Who votes, as `duckrow member ls` shows it, where there is only one, and no cluster file."""
    one = {"id": id_, "name": str(id_), "weight": 1, "witness": False, "uuid": uuid.hex()}
    return {
        "alone": True,
        "view": status.view,
        "active": status.active,
        "exact": True,
        "waits": "",
        "position": status.position,
        "furthest": status.position,
        "durability": durability,
        "min_copies": 1,
        "nodes": [one | {"state": "acts", "listed": None, "listed_witness": False}],
    }
