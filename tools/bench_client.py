"""A client inside the node's process: produces in flight, as many as one client may have.

They are submitted together, as they come from a socket, and then the answer to the last is waited
for.  Making commands is the client's work and not counted as the node's; and so that making ten
million of them does not take longer than what is measured, those of a topic are made once, and then
seq and done are written into the bytes of the head:

    ... 1A 7FFFFFFF 1A 7FFFFFFE ...      CBOR has five bytes for any number from 65,536 on
"""

from __future__ import annotations

from collections.abc import Sequence
from resource import RUSAGE_SELF, getrusage
from struct import Struct
from typing import Final, NamedTuple

from duckrow.node import columns, makers
from duckrow.node.calls import Key
from duckrow.node.commands import Command
from duckrow.node.keeper import Keeper
from duckrow.node.limits import CLIENT_REQUESTS_MAX
from duckrow.node.producer import Producer

BLOCK: Final = 1_024  # produces, whose CPU time is one figure
VALUE_BYTES: Final = 100

_PAIR: Final = Struct(">BIBI")
_U32: Final = 0x1A  # CBOR: a number in four bytes follows
_LEAST: Final = 1 << 16  # that is written so
_SEQ, _DONE = 0x7FFF_FFFF, 0x7FFF_FFFE


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

    async def block(self) -> None:
        for _ in range(BLOCK // CLIENT_REQUESTS_MAX):
            made, last = self._next()
            self._node.row.submit(made)
            await self._node.calls.wait(last)

    async def measured(self) -> Cost:
        """A block: what one produce of it costs the node."""
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
        topics, made = len(self._topics), self._made
        self._made += CLIENT_REQUESTS_MAX
        if topics == 1 and made > _LEAST:
            return self._printed(made)
        commands = []
        for number in range(made, self._made):
            round_, index = divmod(number, topics)
            done = (made + topics - 1 - index) // topics
            commands.append(self._command(self._topics[index], round_ + 1, done))
        round_, index = divmod(self._made - 1, topics)
        return commands, (self._pid, 0, self._topics[index], 0, round_ + 1)

    def _printed(self, made: int) -> tuple[list[Command], Key]:
        mark = _PAIR.pack(_U32, _SEQ, _U32, _DONE)
        before, found, after = self._command(self._topics[0], _SEQ, _DONE).head.partition(mark)
        assert found, "a head has seq and done one after the other"
        pack, body = _PAIR.pack, self._body
        commands = [
            Command(before + pack(_U32, seq, _U32, made) + after, body)
            for seq in range(made + 1, self._made + 1)
        ]
        return commands, (self._pid, 0, self._topics[0], 0, self._made)

    def _command(self, topic: str, seq: int, done: int) -> Command:
        turn = makers.Turn(self._pid, seq, done=done, time=self._node.wall_us())
        return makers.produce(turn, topic, self._body, self._count)


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
