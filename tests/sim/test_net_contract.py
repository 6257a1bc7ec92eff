"""What every network keeps, the simulated one and sockets of both kinds: one set of tests on all."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from duckrow.node.env import Env, Network
from duckrow.node.realnet import RealNet
from sim.world import World

Talk = Callable[[Network, Network], Awaitable[None]]


@pytest.fixture(params=["sim", "tcp", "unix"])
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Talk], None]:
    """Runs a conversation between the networks of host a and host b."""
    if request.param == "sim":

        def in_the_world(conversation: Talk) -> None:
            nets: dict[str, Network] = {}

            async def program(env: Env) -> None:
                nets[env.name] = env.net
                await trio.sleep_forever()

            async def main(world: World) -> None:
                world.start("a", program)
                world.start("b", program)
                await trio.sleep(0.001)
                await conversation(nets["a"], nets["b"])

            World(1, guard=False).run(main)

        return in_the_world
    if request.param == "tcp":
        addresses = {"a": "127.0.0.1", "b": "127.0.0.1"}
    else:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        addresses = {name: str(tmp_path / name) for name in ("a", "b")}

    async def main(conversation: Talk) -> None:
        with trio.fail_after(20):
            await conversation(RealNet("a", addresses), RealNet("b", addresses))

    return lambda conversation: trio.run(main, conversation)


async def echo(stream: trio.abc.Stream) -> None:
    async for data in stream:
        await stream.send_all(data)


async def receive_exactly(stream: trio.abc.Stream, length: int) -> bytes:
    data = b""
    while len(data) < length and (part := await stream.receive_some(length - len(data))):
        data += part
    return data


PORT = 47_211


def test_bytes_arrive_in_order_whatever_their_number(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        async with trio.open_nursery() as nursery:
            assert await nursery.start(b.serve, echo, PORT) == PORT
            async with await a.connect("b", PORT) as stream:
                for length in (1, 10, 100_000):
                    data = bytes(range(256)) * (length // 256 + 1)
                    await stream.send_all(memoryview(data))
                    assert await receive_exactly(stream, len(data)) == data
                await stream.send_all(b"")
            nursery.cancel_scope.cancel()

    talk(conversation)


def test_a_stream_takes_without_waiting_what_it_has_room_for(
    talk: Callable[[Talk], None],
) -> None:
    async def conversation(a: Network, b: Network) -> None:
        got = bytearray()

        async def slow(stream: Any) -> None:
            await trio.sleep(0.05)
            while count := await stream.receive_into(memoryview(buffer := bytearray(5000))):
                got.extend(buffer[:count])

        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, slow, PORT)
            stream: Any = await a.connect("b", PORT)
            left = memoryview(bytes(range(250)) * 80_000)
            most = 0
            while left:
                taken = stream.send_now([left[:3], left[3:10], left[10:]])
                most = max(most, taken)
                left = left[taken:]
                if left:
                    await stream.wait_send_all_might_not_block()
            await stream.aclose()
            with pytest.raises((OSError, trio.ClosedResourceError)):
                stream.send_now([b"x"])
            while len(got) < 20_000_000:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert 10 < most < 20_000_000
        assert bytes(got) == bytes(range(250)) * 80_000

    talk(conversation)


def test_the_end_of_a_stream_comes_after_its_bytes(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        got: list[bytes] = []
        ended = trio.Event()

        async def listen(stream: trio.abc.Stream) -> None:
            async for data in stream:
                got.append(bytes(data))
            ended.set()

        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, listen, PORT)
            async with await a.connect("b", PORT) as stream:
                await stream.send_all(b"x" * 50_000)
            await ended.wait()
            nursery.cancel_scope.cancel()
        assert b"".join(got) == b"x" * 50_000

    talk(conversation)


def test_the_stream_of_a_handler_that_ended_is_closed(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        async def greet(stream: trio.abc.Stream) -> None:
            await stream.send_all(b"hello")

        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, greet, PORT)
            async with await a.connect("b", PORT) as stream:
                assert await receive_exactly(stream, 100) == b"hello"
            nursery.cancel_scope.cancel()

    talk(conversation)


def test_an_exception_of_a_handler_ends_the_handler_and_never_the_server(
    talk: Callable[[Talk], None],
) -> None:
    async def conversation(a: Network, b: Network) -> None:
        calls = 0

        async def handler(stream: trio.abc.Stream) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise LookupError("a defect")
            if calls == 2:
                async with trio.open_nursery():
                    raise trio.BrokenResourceError
            await echo(stream)

        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, handler, PORT)
            for _ in range(2):
                async with await a.connect("b", PORT) as stream:
                    assert await stream.receive_some() == b""
            async with await a.connect("b", PORT) as stream:
                await stream.send_all(b"still there")
                assert await receive_exactly(stream, 11) == b"still there"
            nursery.cancel_scope.cancel()

    talk(conversation)


def test_nobody_listening_is_an_oserror(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        with pytest.raises(OSError, match=r"."):
            await a.connect("b", PORT)

    talk(conversation)


def test_after_a_server_was_cancelled_its_port_is_free(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                await nursery.start(b.serve, echo, PORT)
                async with await a.connect("b", PORT) as stream:
                    await stream.send_all(b"x")
                    assert await stream.receive_some() == b"x"
                nursery.cancel_scope.cancel()
        with pytest.raises(OSError, match=r"."):
            await a.connect("b", PORT)

    talk(conversation)


def test_a_port_is_served_once(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, echo, PORT)
            with pytest.raises(OSError, match=r".") as caught:
                await b.serve(echo, PORT)
            assert caught.value.errno == errno.EADDRINUSE
            async with await a.connect("b", PORT) as stream:
                await stream.send_all(b"x")
                assert await stream.receive_some() == b"x"
            nursery.cancel_scope.cancel()

    talk(conversation)


def test_who_sends_more_than_is_read_waits(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        read = trio.Event()

        async def slow(stream: trio.abc.Stream) -> None:
            await read.wait()
            async for _ in stream:
                pass

        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, slow, PORT)
            async with await a.connect("b", PORT) as stream:
                with trio.move_on_after(0.2) as scope:
                    await stream.send_all(bytes(64 << 20))
                assert scope.cancelled_caught
            nursery.cancel_scope.cancel()

    talk(conversation)


def test_a_slow_reader_gets_everything_in_the_end(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        count = 0
        ended = trio.Event()

        async def slow(stream: trio.abc.Stream) -> None:
            nonlocal count
            await trio.sleep(0.05)
            async for data in stream:
                count += len(data)
            ended.set()

        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, slow, PORT)
            async with await a.connect("b", PORT) as stream:
                await stream.send_all(bytes(3 << 20))
            await ended.wait()
            nursery.cancel_scope.cancel()
        assert count == 3 << 20

    talk(conversation)


def test_a_closed_stream_refuses_and_wakes_who_waits(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, echo, PORT)
            stream = await a.connect("b", PORT)

            async def waits() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await stream.receive_some()

            async with trio.open_nursery() as inner:
                inner.start_soon(waits)
                await trio.sleep(0.05)
                await stream.aclose()
            with pytest.raises(trio.ClosedResourceError):
                await stream.send_all(b"x")
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive_some()
            await stream.aclose()
            nursery.cancel_scope.cancel()

    talk(conversation)


def test_two_tasks_cannot_receive_from_one_stream_at_once(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, echo, PORT)
            async with await a.connect("b", PORT) as stream:
                async with trio.open_nursery() as inner:
                    inner.start_soon(stream.receive_some)
                    await trio.sleep(0.05)
                    with pytest.raises(trio.BusyResourceError):
                        await stream.receive_some()
                    inner.cancel_scope.cancel()
                await stream.send_all(b"x")
                assert await stream.receive_some() == b"x"
            nursery.cancel_scope.cancel()

    talk(conversation)


def test_writing_to_who_is_gone_fails_soon(talk: Callable[[Talk], None]) -> None:
    async def conversation(a: Network, b: Network) -> None:
        async def leave(stream: trio.abc.Stream) -> None:
            await stream.receive_some(1)

        async with trio.open_nursery() as nursery:
            await nursery.start(b.serve, leave, PORT)
            async with await a.connect("b", PORT) as stream:
                with pytest.raises(trio.BrokenResourceError):
                    for _ in range(100):
                        await stream.send_all(b"x" * 1000)
                        await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    talk(conversation)
