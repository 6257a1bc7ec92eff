"""Care for the disk of a lone row, in the background: what an item does not wait for.

written ─► sync          at once at level fsync, soon at write, never at memory
sealed  ─► index file    also in the space of the reserve: without one a segment never goes
full    ─► looked at     every second, until there is room
weekly  ─► scrub         scrubrounds.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from .limits import KIB
from .reserve import OK
from .rowstore import RowStore
from .scrubrounds import ScrubRounds
from .storeoptions import MEMORY, WRITE
from .wakeup import Wakeup

LOOK_BYTES: Final = 256 * KIB  # written between two looks at the free space


class Care:
    """`taker` is woken where the row may go on."""

    def __init__(self, store: RowStore, scrubs: ScrubRounds, taker: Wakeup) -> None:
        self.stuck = False  # there is no room even for what makes room: nothing is tried
        # Called again and again while the disk is full, or nearly.
        self.on_tight: Callable[[], None] = lambda: None
        self._store, self._scrubs, self._taker = store, scrubs, taker
        self._syncer, self._indexer, self._watcher = Wakeup(), Wakeup(), Wakeup()
        self._unseen_bytes = 0  # written since the free space was looked at
        store.reserve.on_hard = self._watcher.wake

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            DiskFailed: in a group; the process has to end.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sync_on)
            nursery.start_soon(self._index_on)
            nursery.start_soon(self._watch_on)
            nursery.start_soon(self._scrubs.run)

    def wrote(self, size: int) -> None:
        """A bundle of so many bytes was written."""
        if self._store.options.level != MEMORY:
            self._syncer.wake()
        elif self._store.unindexed:
            self._indexer.wake()
        self._unseen_bytes += size
        if self._unseen_bytes >= LOOK_BYTES:
            self._unseen_bytes = 0
            self._look()

    def _look(self) -> None:
        self._store.reserve.look()
        if self._store.reserve.state != OK:
            self._watcher.wake()

    async def _watch_on(self) -> None:
        reserve = self._store.reserve
        self._look()
        while True:
            await self._watcher.wait()
            while reserve.state != OK or self.stuck:
                self.on_tight()
                await trio.sleep(self._store.options.reserve_seconds)
                await reserve.restore()
                reserve.look()
                if self.stuck:  # perhaps it fits now
                    self.stuck = False
                    self._taker.wake()

    async def _sync_on(self) -> None:
        options = self._store.options
        try:
            while True:
                await self._syncer.wait()
                if options.level == WRITE:
                    await trio.sleep(options.sync_seconds)
                await self._store.sync()
                if self._store.unindexed:
                    self._indexer.wake()
        finally:
            self._taker.wake()  # if a sync failed, it has to hear of it

    async def _index_on(self) -> None:
        store = self._store
        while True:
            if store.unindexed:
                if store.options.level == MEMORY:
                    await store.sync()  # a sealed segment is made durable at every level
                while not await store.index_sealed():
                    await trio.sleep(store.options.reserve_seconds)
            await self._indexer.wait()
