"""What the tests of features share: a node on the simulated machine, and what one would do with it.

    machine = Machine()

    async def main(node: Node) -> None:
        await node.topic("news", max_entries=3)
        await node.produce("news", b"one")
        assert await node.values("news") == [b"one"]

    alone(machine, main)

It says as little as possible itself: each verb is one call of the product.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import trio

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper, Options, open_node
from duckrow.node.commands import Command
from duckrow.node.cursors import After
from duckrow.node.effects import Result
from duckrow.node.entries import Entries, entries_of
from duckrow.node.env import Env
from duckrow.node.producer import Producer
from duckrow.node.pulled import Pulled
from duckrow.node.reading import Pull
from duckrow.node.storeoptions import StoreOptions
from sim.alone import Machine
from sim.park import SimCrashed

T = TypeVar("T")
SECOND = 1_000_000  # microseconds, in which policies and entries tell the time


class Node:
    """A keeper, one producer of its own, and an administrator."""

    def __init__(self, env: Env, keeper: LoneKeeper) -> None:
        self.env, self.keeper = env, keeper
        self._own = Producer(keeper)
        self._admin = keeper.fresh_pid()
        self._asked = 0

    def producer(self) -> Producer:
        return Producer(self.keeper)

    async def produce(self, topic: str, *values: bytes, **more: Any) -> Result:
        return await self._own.produce(topic, values, **more)

    # What a topic is.

    async def topic(self, name: str, **policy: Any) -> Result:
        return await self.ask(makers.create(self.turn(), name, policy))

    async def configure(self, name: str, **policy: Any) -> Result:
        return await self.ask(makers.configure(self.turn(), name, policy))

    async def delete(self, name: str) -> Result:
        return await self.ask(makers.delete(self.turn(), name))

    async def prune(self, name: str, number: int) -> Result:
        return await self.ask(makers.prune(self.turn(), name, number))

    async def settings(self, **values: Any) -> Result:
        return await self.ask(makers.settings(self.turn(), values))

    async def ask(self, command: Command) -> Result:
        return await self.keeper.order(command)

    def turn(self) -> makers.Turn:
        self._asked += 1
        return makers.Turn(self._admin, self._asked, time=self.keeper.wall_us())

    # What is in it.

    async def pull(self, topic: str, after: After = 0, **more: Any) -> Pulled:
        return await self.keeper.reader.pull(Pull(topic, after, **more))

    async def entries(self, topic: str, after: After = 0, **more: Any) -> Entries:
        return entries_of(topic, await self.pull(topic, after, **more))

    async def values(self, topic: str, after: After = 0, **more: Any) -> list[bytes]:
        return [entry.value for entry in await self.entries(topic, after, **more)]

    async def numbers(self, topic: str, after: After = 0, **more: Any) -> list[int]:
        return [entry.number for entry in await self.entries(topic, after, **more)]

    def bounds(self, name: str, partition: int = 0) -> tuple[int, int]:
        """The numbers of the oldest and the newest entry."""
        topic = self.keeper.state.topic(name)
        assert topic is not None, f"there is no topic {name}"
        now = self.keeper.state.partition(topic.id, partition)
        return now.first, now.last


def alone(machine: Machine, main: Callable[[Node], Awaitable[T]], **store: Any) -> T:
    """A life of the node: it starts, does this, and closes; `store` holds options of its store."""
    options = Options(store=StoreOptions(**store))

    async def life(env: Env) -> T:
        async with open_node(env, options) as keeper:
            return await main(Node(env, keeper))

    return machine.run(life)


def dying(machine: Machine, main: Callable[[Node], Awaitable[None]], **store: Any) -> None:
    """A life that ends in the moment when `main` is done: nothing is closed, nothing synced."""

    async def until_then(node: Node) -> None:
        await main(node)
        machine.media.crash_before(1)

    with pytest.raises(SimCrashed):
        alone(machine, until_then, **store)


class Turns(trio.abc.Instrument):
    """Counts how often tasks got a turn: what a node costs while nothing happens."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
