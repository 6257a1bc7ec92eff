"""What the node sees of the row: rule N1, behind which a lone disk or a bridge does the ordering.

The node submits commands and follows items; it never orders.  `node/lonerow.py` implements this
for a cluster of one; the bridge will, over a Unix socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

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


class Row(Protocol):
    """N1.  `image` comes with the bridge: a row of one has nobody to give an image to."""

    def submit(self, commands: Sequence[Command]) -> None:
        """Takes commands into the open bundle, in this order.

        Raises:
            Full: the disk is at its reserve; nothing of it was taken.
            NoQuorum: too much is pending; nothing of it was taken.
        """
        ...

    def withdraw(self, command: Command) -> bool:
        """True: it had not entered a bundle and never will."""
        ...

    async def staged(self) -> list[Command]:
        """Own commands in the journal that were not settled, in lane order (N3)."""
        ...

    def settle(self, bundle: tuple[int, int, int]) -> None:
        """Every command of this own bundle (view, origin, s) has its final result (N3)."""
        ...

    async def take(self) -> list[Item]:
        """The next items of the row, in order; waits until there is one.  One caller at a time."""
        ...

    def release(self, position: int, oldest_body: int) -> None:
        """Items below `position` are in two snapshots; bodies below item `oldest_body` are not waited for (N6)."""
        ...

    def status(self) -> RowStatus: ...
