"""A node alone on a simulated machine, for tests: small segments, short ways, and what it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import pytest

from duckrow.node import keptplaces, makers
from duckrow.node.alone import LoneKeeper, Options, open_node
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.effects import Result
from duckrow.node.entries import entries_of
from duckrow.node.env import Env
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.reading import Pull
from duckrow.node.storeoptions import StoreOptions

from .alone import Machine

T = TypeVar("T")
PID = b"p" * PID_BYTES

SMALL = Options(
    store=StoreOptions(
        segment_bytes=8 * 1024,
        followable_bytes=8 * 1024,
        soft_reserve_bytes=16 * 1024,
        soft_reserve_fraction=0.0,
        hard_reserve_bytes=16 * 1024,
        window_bytes=64 * 1024,
        scrub_seconds=0,  # so that a deadlock is seen, instead of the years going by
    ),
    housekeeping=HousekeepingOptions(
        snapshot_items=40, snapshot_bytes=16 * 1024, followable_bytes=8 * 1024
    ),
)


def run(
    machine: Machine, work: Callable[[LoneKeeper], Awaitable[T]], options: Options = SMALL
) -> T:
    """One life of a node, from opening to closing in order."""

    async def main(env: Env) -> T:
        async with open_node(env, options) as node:
            return await work(node)

    return machine.run(main)


def at_level(level: str) -> Options:
    return attrs.evolve(SMALL, store=attrs.evolve(SMALL.store, level=level))


def keep_no_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a start from a snapshot of an earlier version: of bodies that wait the row is asked where they lie."""
    monkeypatch.setattr(keptplaces, "note", lambda *_: None)


class Owner:
    """Whoever creates and configures topics: commands in the lane without a topic."""

    def __init__(self, node: Keeper, pid: bytes = PID) -> None:
        self._node, self._pid = node, pid
        self._seq = 0

    async def order(self, make: Callable[..., Command], *args: Any, **named: Any) -> Result:
        self._seq += 1
        turn = makers.Turn(self._pid, self._seq, 1, self._seq - 1, self._node.wall_us())
        return await self._node.order(make(turn, *args, **named))


async def values(node: Keeper, topic: str, partition: int = 0) -> list[bytes]:
    """All values there are, oldest first."""
    found: list[bytes] = []
    done = 0
    while entries := entries_of(
        topic, await node.reader.pull(Pull(topic, done, partition=partition))
    ):
        found += [entry.value for entry in entries]
        done = entries[-1].number
    return found
