"""From the node: its state and its index, for an image that this bridge gives (N5)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from duckrow.node import bridgewire as wire
from duckrow.node.bridgewire import Told
from duckrow.node.env import Buffer
from duckrow.node.giving import Given


class FromNode:
    """For as long as that node is connected."""

    def __init__(self, tell: Callable[[list[Buffer]], None]) -> None:
        self._tell = tell
        self._number = 0  # of what was asked for: parts of an older one may still come
        self._write: Callable[[bytes], None] | None = None
        self._given: Given | None = None
        self._whole = False
        self._error: OSError | None = None
        self._ended = trio.Event()

    async def take(self, write: Callable[[bytes], None]) -> Given | None:
        """None: it has nothing to give, or is gone.

        Raises:
            OSError: what came could not be written.
        """
        self._write, self._given, self._whole, self._error = write, None, False, None
        self._ended = trio.Event()
        self._number += 1
        self._tell(wire.frame([int(Told.GIVE), self._number]))
        try:
            await self._ended.wait()
        finally:
            self._write = None
        if self._error is not None:
            raise self._error
        return self._given if self._whole else None

    def begins(self, number: int, given: Given) -> None:
        """What it is: all of it was intact."""
        if number == self._number:
            self._given = given

    def piece(self, number: int, body: Buffer) -> None:
        """An empty one is the last; if it was not told what it is, there is nothing."""
        if number != self._number:
            return
        if not len(body):
            self._whole = True
            self.ends()
        elif self._write is not None:
            try:
                self._write(bytes(body))
            except OSError as error:
                self._error = error
                self.ends()

    def ends(self) -> None:
        self._ended.set()
