"""Syncs beside the rounds of a bridge: what is told to be durable was written before its sync began."""

from __future__ import annotations

from typing import cast

import trio

from duckrow.bridge.syncing import Syncing
from duckrow.node.env import Env
from duckrow.node.rowstore import RowStore
from duckrow.node.storeoptions import FSYNC, MEMORY, WRITE, StoreOptions
from sim.alone import Machine


class Disk:
    """Knows how much was written, and how much of that a sync has covered."""

    options = StoreOptions()
    unindexed: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.written = self.durable = self.syncs = self.looks = 0

    @property
    def dirty(self) -> bool:
        self.looks += 1
        return self.durable < self.written

    async def sync(self) -> None:
        self.syncs += 1
        before = self.written
        await trio.sleep(0.01)
        self.durable = before


def test_nothing_is_told_to_be_durable_before_a_sync_that_began_after_it_was_written() -> None:
    told: list[int] = []

    async def main(_env: Env) -> None:
        disk = Disk()

        async def synced() -> None:
            assert syncing.done <= disk.durable
            told.append(syncing.done)

        syncing = Syncing(cast(RowStore, disk), synced, lambda: FSYNC)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(syncing.run)
            for token in range(1, 6):
                disk.written = token
                syncing.want(token)
                await trio.sleep(0.004)
                assert syncing.done <= disk.durable
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        assert told[-1] == 5
        assert disk.syncs == len(told) < 5, "what is written while one runs shares the next"

    Machine(1).run(main)


def test_at_level_write_what_was_written_is_synced_soon_and_nobody_looks_before() -> None:
    async def main(_env: Env) -> None:
        async def nobody_waits() -> None:
            raise AssertionError("what nobody wanted is told to nobody")

        disk, level = Disk(), MEMORY
        syncing = Syncing(cast(RowStore, disk), nobody_waits, lambda: level)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(syncing.run)
            disk.written = 1
            syncing.wrote()
            await trio.sleep(60)
            assert not disk.looks
            level = WRITE  # an operator has changed it
            syncing.wrote()
            await trio.sleep(disk.options.sync_seconds + 0.02)
            assert disk.durable == 1
            await trio.sleep(60)
            assert disk.syncs == 1
            nursery.cancel_scope.cancel()

    Machine(1).run(main)
