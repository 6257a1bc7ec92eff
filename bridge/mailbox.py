"""The mailbox of a bridge: what links bring between two rounds, and how much of it there may be."""

from __future__ import annotations

from typing import Final

import trio

from duckrow.node.limits import MIB

from .links import Event, Heard
from .rounds import Rounds

UNREAD_BYTES_MAX: Final = 4 * MIB  # then links are not read from


class Inbox:
    """Where links put what happens: see `links.Mailbox`."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._events: list[Event] = []
        self._unread = 0  # bytes
        self._room: trio.Event | None = None

    def post(self, event: Event) -> None:
        self._events.append(event)
        self._rounds.wake()

    async def bring(self, heard: Heard, size: int) -> None:
        self._events.append(heard)
        self._unread += size
        await self._rounds.turn()
        while self._unread > UNREAD_BYTES_MAX:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    def take(self) -> list[Event]:
        """All that came since the last call; who waits for room goes on."""
        events, self._events, self._unread = self._events, [], 0
        if self._room is not None:
            self._room.set()
            self._room = None
        return events
