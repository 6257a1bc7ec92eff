"""The row store behind a bridge: what a node needs of it, asked of who owns it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Protocol

import attrs
import trio

from . import bridgewire as wire
from .adopting import Part
from .bridgewire import Welcome, What
from .env import Buffer
from .row import Bundle, RowStatus
from .segments import SegmentInfo
from .storeoptions import StoreOptions

LOOK_SECONDS: Final = 0.1
DROPPED_AT_ONCE: Final = 1024  # segments


class Owner(Protocol):
    @property
    def welcome(self) -> Welcome | None: ...
    def status(self) -> RowStatus: ...
    def check_left(self) -> None: ...
    async def ask(
        self, what: What, *arguments: object, places: Sequence[int] = ()
    ) -> tuple[Any, Buffer]: ...


@attrs.frozen
class StoredHeads:
    bundle: Bundle


class BridgedStore:
    def __init__(self, row: Owner) -> None:
        self.floor = 1
        self.told: list[SegmentInfo] = []
        self._row = row

    @property
    def uuid(self) -> bytes:
        assert self._row.welcome is not None
        return self._row.welcome.uuid

    @property
    def formers(self) -> tuple[bytes, ...]:
        assert self._row.welcome is not None
        return self._row.welcome.formers

    @property
    def position(self) -> int:
        return self._row.status().position

    @property
    def durable_position(self) -> int:
        return self._row.status().durable

    @property
    def options(self) -> StoreOptions:
        assert self._row.welcome is not None
        return StoreOptions(level=self._row.welcome.level)

    def segments(self) -> list[SegmentInfo]:
        """As they were when the bridge last told; the open one has grown since."""
        return list(self.told)

    async def place_of(self, position: int) -> int:
        return int((await self._row.ask(What.PLACE, position))[0])

    async def digest_of(self, position: int) -> bytes:
        """Waits for a row that lost its end with the power, and follows the others to here again."""
        while position > self.position:
            self._row.check_left()
            await trio.sleep(LOOK_SECONDS)
        return bytes((await self._row.ask(What.DIGEST, position))[0])

    async def read_heads(self, place: int) -> StoredHeads:
        fields, body = await self._row.ask(What.HEADS, place)
        return StoredHeads(wire.commands_of(fields, body, heads_only=True))

    async def read_body(self, place: int, *, is_live: bool = False) -> Buffer:
        return (await self._row.ask(What.BODY, place, is_live))[1]

    async def read_image(self, offset: int, length: int) -> Part | None:
        """For a node without a state: see adopting.py.  None: an image has to come first."""
        found, data = await self._row.ask(What.IMAGE, offset, length)
        if found is None:
            return None
        size, shift = found
        return Part(size, shift, bytes(data))

    async def sync(self) -> None:
        await self._row.ask(What.SYNC)

    async def drop(self, numbers: Iterable[int]) -> list[int]:
        """Some at a time: the head of a frame holds them.  Without any, too: what an image brought may go."""
        wanted, gone = list(numbers), list[int]()
        for first in range(0, max(1, len(wanted)), DROPPED_AT_ONCE):
            some = wanted[first : first + DROPPED_AT_ONCE]
            gone += (await self._row.ask(What.DROP, some))[0]
        return gone

    async def rewrite(self, segment: int, live: Collection[int]) -> int:
        found, _ = await self._row.ask(What.REWRITE, segment, places=sorted(live))
        return int(found)
