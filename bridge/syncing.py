"""Syncing: what was written becomes durable beside the rounds, grouped.

    round    writes ─► wants(7)        writes ─► wants(8)   wants(9)
    sync                 [.......7.......][............9............]

What is written while one sync runs shares the next.  A sealed segment is made durable whether or not
anybody waits for it, and gets its index file: without one it never goes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from duckrow.node.rowstore import RowStore
from duckrow.node.storeoptions import WRITE
from duckrow.node.wakeup import Wakeup


class Syncing:
    def __init__(
        self, store: RowStore, on_synced: Callable[[], Awaitable[None]], level: Callable[[], str]
    ) -> None:
        """`level` of durability: an operator may change that of the view (N8)."""
        self.done = 0  # token: all that was written before it was wanted is durable
        self._store, self._on_synced, self._level = store, on_synced, level
        self._wanted = 0
        self._syncer, self._indexer, self._written = Wakeup(), Wakeup(), Wakeup()

    def want(self, token: int) -> None:
        self._wanted = token
        self._syncer.wake()

    def wrote(self) -> None:
        """Something is not durable, and perhaps nobody wants it to be."""
        if self._level() == WRITE:
            self._written.wake()

    def sealed(self) -> None:
        """A segment has no index file yet."""
        self._indexer.wake()

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            DiskFailed: in a group; the process has to end.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sync_on)
            nursery.start_soon(self._index_on)
            nursery.start_soon(self._sync_soon)

    async def _sync_on(self) -> None:
        while True:
            await self._syncer.wait()
            while self.done < self._wanted:
                token = self._wanted
                await self._store.sync()
                self.done = token
                await self._on_synced()

    async def _sync_soon(self) -> None:
        """Level write: nobody waits for it, but it comes."""
        while True:
            await self._written.wait()
            await trio.sleep(self._store.options.sync_seconds)
            if self._store.dirty:
                await self._store.sync()

    async def _index_on(self) -> None:
        store = self._store
        while True:
            await self._indexer.wait()
            while store.unindexed:
                await store.sync()
                if not await store.index_sealed():
                    await trio.sleep(store.options.reserve_seconds)
