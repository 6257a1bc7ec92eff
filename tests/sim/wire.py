"""The server of a node on the simulated network, and the bare wire to it, frame by frame.

    def test_something() -> None:
        async def work(there: There) -> None:
            wire = await there.connect()
            assert await wire.ask(Verb.TOPICS) == [[], False]

        serve(work)

Whatever a client sends, the node is there afterwards: `serve` asks it at the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import attrs
import trio

from duckrow.node import columns, frames, makers, requests
from duckrow.node.alone import Options, open_node
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.effects import Result
from duckrow.node.env import Buffer, Env
from duckrow.node.frames import FrameReader
from duckrow.node.keeper import Keeper
from duckrow.node.pulled import Pulled
from duckrow.node.requests import Ask, Outcome, Verb
from duckrow.node.server import Server, ServerOptions
from sim.nodekit import SMALL
from sim.stream import SimStream
from sim.world import World

T = TypeVar("T")
PORT = 7001
PID = b"w" * PID_BYTES


@attrs.define
class There:
    """What a test sees: the world, the node in it, and connections to it."""

    world: World
    keeper: Keeper
    server: Server
    events: list[str]
    env: Env  # of the host of the clients

    async def connect(self, *, hello: bool = True, token: str = "") -> Wire:
        stream = await self.env.net.connect("a", PORT)
        assert isinstance(stream, SimStream)
        wire = Wire(stream)
        if hello:
            await wire.hello(token=token)
        return wire

    def event(self, name: str) -> bool:
        return any(event.split(" ")[0] == name for event in self.events)


class Wire:
    def __init__(self, stream: SimStream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._reader.accept_hello()
        self._reference = 0
        self._seqs: dict[str, int] = {}  # by topic: a lane each

    async def hello(self, *, token: str = "", name: str = "wire") -> list[Any]:
        return await self.ask(Verb.HELLO, requests.VERSION, name, token, {})

    async def send(self, verb: int, *fields: Any, body: Buffer = b"") -> int:
        """The reference."""
        self._reference += 1
        head = requests.request(self._reference, verb, *fields)
        await self.stream.send_all(b"".join(frames.encode(head, body)))
        return self._reference

    async def order(self, command: Command, *, accepted: bool = False) -> int:
        return await self.send(Verb.ORDER, command.head, accepted, body=command.body)

    def batch(self, values: Sequence[bytes], topic: str = "t") -> Command:
        seq = self._seqs[topic] = self._seqs.get(topic, 0) + 1
        turn = makers.Turn(PID, seq, 1, seq - 1, 0)
        return makers.produce(turn, topic, columns.encode(values), len(values))

    async def produce(self, *values: bytes, topic: str = "t") -> Result:
        await self.order(self.batch(values, topic))
        _, outcome, fields, _ = await self.answer()
        assert outcome == Outcome.DONE, fields
        return requests.result_in(fields)

    async def ask(self, verb: int, *fields: Any) -> list[Any]:
        reference = await self.send(verb, *fields)
        found, outcome, answer, _ = await self.answer()
        assert (found, outcome) == (reference, Outcome.DONE), answer
        return answer

    async def pull(self, ask: Ask) -> Pulled:
        await self.send(Verb.PULL, *ask.fields())
        _, outcome, fields, body = await self.answer()
        assert outcome == Outcome.DONE, fields
        return requests.decode_pulled(fields, body)

    async def answer(self) -> tuple[int, int, list[Any], Buffer]:
        """
        Raises:
            EOFError: the node has closed the connection.
        """
        while (frame := self._reader.next_frame()) is None:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError
            self._reader.receive_data(data)
        return *requests.opened(frame.head), frame.body

    async def failure(self) -> tuple[int, str, str]:
        """Reference, code and text of the next answer, which is a failure."""
        reference, outcome, fields, _ = await self.answer()
        assert outcome == Outcome.FAILED, fields
        return reference, fields[0], fields[1]

    async def is_closed(self) -> bool:
        """Reads on to the end."""
        try:
            while await self.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
        return True


def serve(
    work: Callable[[There], Awaitable[T]],
    *,
    server: ServerOptions | None = None,
    options: Options = SMALL,
    seed: int = 1,
    survives: bool = True,
) -> T:
    """The node on host a; `work` runs on host b."""
    world = World(seed)
    events: list[str] = []
    found: list[tuple[Keeper, Server]] = []
    results: list[T] = []
    ready, done = trio.Event(), trio.Event()

    def note(_level: int, template: str, /, *args: object, exc_info: object = None) -> None:
        events.append(template % args)

    async def program(env: Env) -> None:
        async with open_node(env, options) as keeper:
            there = Server(keeper, server or ServerOptions(), env.disk.free, note)
            async with trio.open_nursery() as nursery:
                await nursery.start(there.run)
                await nursery.start(env.net.serve, there.handle, PORT)
                found.append((keeper, there))
                ready.set()
                await done.wait()
                nursery.cancel_scope.cancel()

    async def clients(env: Env) -> None:
        await ready.wait()
        try:
            there = There(world, *found[0], events, env)
            results.append(await work(there))
            if survives:
                wire = await there.connect(token=there.server.options.token)
                assert (await wire.ask(Verb.STATUS))[0]["ready"]
        finally:
            done.set()

    async def main(world: World) -> None:
        world.start("a", program)
        world.start("b", clients)
        await done.wait()
        await trio.sleep(1)

    world.run(main)
    assert world.handler_errors == []
    assert not any("request_failed" in event for event in events), events
    return results[0]
