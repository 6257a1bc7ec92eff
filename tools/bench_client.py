"""A client inside the node's process: produces in flight, as many as one client may have.

They are submitted together, as they come from a socket, and then the answer to the last is waited
for.  Making commands is the client's work and not counted as the node's.
"""

from __future__ import annotations

from collections.abc import Sequence
from resource import RUSAGE_SELF, getrusage
from typing import NamedTuple

from duckrow.node import columns, makers
from duckrow.node.calls import Key
from duckrow.node.commands import Command
from duckrow.node.keeper import Keeper
from duckrow.node.limits import CLIENT_REQUESTS_MAX
from duckrow.node.producer import Producer

BLOCK = 1_024  # produces, whose CPU time is one figure
VALUE_BYTES = 100


class Cost(NamedTuple):
    """CPU seconds."""

    user: float
    kernel: float  # what a new page of the cache costs depends on the machine, and on the day


class Client:
    """Goes from topic to topic, one produce each."""

    def __init__(self, node: Keeper, batch: int, topics: Sequence[str]) -> None:
        self._node = node
        self._pid = node.fresh_pid()
        self._topics = topics
        self._count = batch
        self._body = columns.encode([bytes(VALUE_BYTES)] * batch)
        self._made = 0

    async def block(self) -> Cost:
        """Of one produce."""
        node, user, kernel = self._node, 0.0, 0.0
        for _ in range(BLOCK // CLIENT_REQUESTS_MAX):
            made, last = self._next()
            before = getrusage(RUSAGE_SELF)
            node.row.submit(made)
            await node.calls.wait(last)
            after = getrusage(RUSAGE_SELF)
            user += after.ru_utime - before.ru_utime
            kernel += after.ru_stime - before.ru_stime
        return Cost(user / BLOCK, kernel / BLOCK)

    def _next(self) -> tuple[list[Command], Key]:
        """Commands, and how the last of them is called."""
        made, topics = [], len(self._topics)
        answered = self._made
        for number in range(answered, answered + CLIENT_REQUESTS_MAX):
            round_, index = divmod(number, topics)
            done = (answered + topics - 1 - index) // topics
            turn = makers.Turn(self._pid, round_ + 1, done=done, time=self._node.wall_us())
            made.append(makers.produce(turn, self._topics[index], self._body, self._count))
        self._made += CLIENT_REQUESTS_MAX
        return made, (self._pid, turn.epoch, self._topics[index], 0, turn.seq)


async def alone(node: Keeper, topic: str) -> Cost:
    """Of a produce of one entry that nothing goes along with, its making included."""
    producer, values = Producer(node), [bytes(VALUE_BYTES)]
    before = getrusage(RUSAGE_SELF)
    for _ in range(BLOCK):
        await producer.produce(topic, values)
    after = getrusage(RUSAGE_SELF)
    return Cost(
        (after.ru_utime - before.ru_utime) / BLOCK, (after.ru_stime - before.ru_stime) / BLOCK
    )
