"""The row store: the row on one machine's disk.  (Skeleton: the interface that others build on.)"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import attrs

from .commands import Command
from .damage import Damage
from .env import Disk, Env
from .row import Bundle, Item, View
from .storeoptions import StoreOptions


class StoredHeads(NamedTuple):
    """A bundle without its bodies, as it lies in the store."""

    bundle: Bundle  # its commands have empty bodies
    crc: int  # of the item
    bodies: tuple[tuple[int, int], ...]  # (offset in the segment, length) of each command's body


@attrs.frozen
class SegmentInfo:
    number: int
    first: int  # positions of the items recorded in it, first to last; first > last: none
    last: int
    reach: int  # the highest position whose record or body lies in it
    bytes: int  # its length; a rewritten one takes less of the disk
    sealed: bool
    rewritten: bool


@attrs.frozen
class Recovered:
    """What recovery found and did."""

    blank: bool  # there was no row
    position: int  # of the last item that was kept
    records: int  # that were looked at one by one
    cut_bytes: int  # of a torn tail
    rewritten_bytes: int  # kept, but perhaps only in the cache, and so written again
    damages: tuple[Damage, ...]


class RowStore:
    """One folder, one writer."""

    uuid: bytes
    formers: tuple[bytes, ...]  # uuids that this store had before damage made it take a new one
    recovered: Recovered
    view: View | None  # the installed one; None before genesis
    position: int  # of the last item
    durable_position: int
    digest: bytes  # of the row up to `position`
    floor: int  # the lowest position from which every item is whole

    @classmethod
    async def open(cls, disk: Disk, env: Env, options: StoreOptions) -> RowStore:
        """Takes the lock of the folder and recovers; nothing new is written yet.

        Raises:
            Conflict: another process has the folder; names its pid.
            Corrupt: no row can be made out of what is there; says which file.
            DiskFailed: a write or a sync failed.
        """
        raise NotImplementedError

    async def place_of(self, position: int) -> int:
        """The record of the bundle or mark at a position.

        Raises:
            NotFound: it was dropped, or is still to come.
            Corrupt: damage took it.
        """
        raise NotImplementedError

    async def digest_of(self, position: int) -> bytes:
        """Of the row up to and with a position; position 0 has one too.

        Raises: as `place_of`.
        """
        raise NotImplementedError

    async def read_heads(self, place: int) -> StoredHeads:
        """The bundle whose record is at `place`; the place's command is ignored.

        Raises:
            NotFound: its segment was dropped.
            Corrupt: names file, offset and position.
        """
        raise NotImplementedError

    async def read_body(self, place: int) -> bytes:
        """The body of one command; checked.

        Raises:
            NotFound: its segment was dropped, or a rewrite left it out.
            Corrupt: names file, offset and position.
        """
        raise NotImplementedError

    async def read_items(
        self, position: int, limit_bytes: int, *, bodies: bool = False
    ) -> list[Item]:
        """Items from `position` on, in order, at least one if there is one, up to the row's end.

        Without `bodies` the commands have empty ones; an item then counts with its heads.
        """
        raise NotImplementedError

    async def scrub(self) -> list[Damage]:
        """Reads everything that is durable and checks every byte."""
        raise NotImplementedError

    def segments(self) -> list[SegmentInfo]:
        raise NotImplementedError

    def release(self, position: int, oldest_body: int) -> None:
        """See `Row.release`; `drop` acts on it."""
        raise NotImplementedError

    async def drop(self) -> int:
        """Unlinks the segments that may go; returns how many."""
        raise NotImplementedError

    async def rewrite(self, segment: int, live: Collection[int]) -> int:
        """Leaves the bodies out whose places are not in `live`; returns the bytes it freed.

        Every record stays at its offset.  `floor` passes the segment's reach.

        Raises:
            Refused: the segment is open, or an item of it may still be wanted whole.
        """
        raise NotImplementedError

    async def append(
        self, view: int, origin: int, s: int, lamport: int, stamp: int, commands: Sequence[Command]
    ) -> Item:
        raise NotImplementedError

    async def sync(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
