"""The simulated network: what TCP shows of cut cables, dead hosts and bad links, and no more."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from duckrow.node.env import Env
from sim.net import RTO, WINDOW
from sim.stream import SimStream
from sim.world import World

PORT = 1


async def echo_server(env: Env) -> None:
    async def echo(stream: trio.abc.Stream) -> None:
        async for data in stream:
            await stream.send_all(data)

    await env.net.serve(echo, PORT)


def between(
    client: Callable[[World, Env], Awaitable[None]],
    *,
    server: Callable[[Env], Awaitable[None]] = echo_server,
    seed: int = 1,
) -> World:
    """Runs `client` on host a, with `server` on host b."""
    world = World(seed)
    done = trio.Event()

    async def program(env: Env) -> None:
        await client(world, env)
        done.set()

    async def main(world: World) -> None:
        world.start("b", server)
        await trio.sleep(0.01)
        world.start("a", program)
        await done.wait()

    world.run(main)
    assert done.is_set()
    return world


async def exchange(stream: trio.abc.Stream, data: bytes = b"x") -> bytes:
    await stream.send_all(data)
    received = b""
    while len(received) < len(data) and (part := await stream.receive_some()):
        received += part
    return received


def test_a_message_takes_the_delay_of_its_link() -> None:
    async def client(world: World, env: Env) -> None:
        for link in (world.net.link("a", "b"), world.net.link("b", "a")):
            link.delay, link.jitter = 0.25, 0.0
        began = trio.current_time()
        async with await env.net.connect("b", PORT) as stream:
            assert trio.current_time() - began == pytest.approx(0.5)
            await exchange(stream)
            assert trio.current_time() - began == pytest.approx(1.0)

    between(client)


def test_jitter_never_changes_the_order_of_a_stream() -> None:
    async def client(world: World, env: Env) -> None:
        world.net.link("a", "b").jitter = 1.0
        world.net.split = 0.5
        async with await env.net.connect("b", PORT) as stream:
            data = b"".join(b"%04d" % number for number in range(500))
            for at in range(0, len(data), 40):
                await stream.send_all(data[at : at + 40])
            received = b""
            while len(received) < len(data):
                received += await stream.receive_some()
            assert received == data

    between(client)


def test_loss_is_a_stall_and_nothing_is_missing() -> None:
    async def client(world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            world.net.trouble("a", loss=0.5)
            began = trio.current_time()
            for number in range(20):
                assert await exchange(stream, b"%d" % number) == b"%d" % number
            assert trio.current_time() - began > 10 * RTO

    world = between(client)

    assert world.net.counts["stalls"] > 10


def test_segments_are_split_and_joined() -> None:
    sizes: set[int] = set()

    async def client(world: World, env: Env) -> None:
        world.net.split = 1.0
        async with await env.net.connect("b", PORT) as stream:
            for _ in range(50):
                await stream.send_all(b"x" * 100)
            total = 0
            while total < 5000:
                part = await stream.receive_some()
                sizes.add(len(part))
                total += len(part)

    between(client)

    assert min(sizes) < 100 < max(sizes)


def test_a_receive_gives_no_more_than_it_was_asked_for() -> None:
    async def client(_world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            await stream.send_all(b"0123456789")
            await trio.sleep(1)
            assert await stream.receive_some(3) == b"012"
            assert await stream.receive_some(100) == b"3456789"

    between(client)


def test_what_was_sent_and_not_read_is_bounded_until_it_is_read() -> None:
    async def lazy_server(env: Env) -> None:
        async def handler(stream: trio.abc.Stream) -> None:
            await trio.sleep(10)
            async for _ in stream:
                pass

        await env.net.serve(handler, PORT)

    async def client(_world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            await stream.send_all(bytes(WINDOW))
            assert trio.current_time() < 1
            await stream.wait_send_all_might_not_block()
            assert trio.current_time() > 10
            await stream.send_all(bytes(WINDOW))
            assert trio.current_time() < 11

    between(client, server=lazy_server)


def test_each_byte_that_is_read_makes_room_for_one() -> None:
    async def lazy_server(env: Env) -> None:
        async def handler(stream: trio.abc.Stream) -> None:
            await trio.sleep(10)
            await stream.receive_some(1000)
            await trio.sleep_forever()

        await env.net.serve(handler, PORT)

    async def client(_world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            await stream.send_all(bytes(WINDOW))
            await stream.send_all(bytes(1000))
            assert trio.current_time() > 10
            with trio.move_on_after(50) as scope:
                await stream.send_all(b"x")
            assert scope.cancelled_caught

    between(client, server=lazy_server)


# -- cuts ---------------------------------------------------------------------------------


def test_a_cut_link_is_silent_and_what_was_sent_arrives_after_it_is_healed() -> None:
    async def client(world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            world.net.cut("a", "b")
            with trio.move_on_after(5) as scope:
                await exchange(stream)
            assert scope.cancelled_caught
            await stream.send_all(b"y")
            world.net.heal("a", "b")
            received = await stream.receive_some(1) + await stream.receive_some(1)
            assert received == b"xy"

    between(client)


def test_a_cut_is_one_way() -> None:
    heard: list[bytes] = []

    async def server(env: Env) -> None:
        async def handler(stream: trio.abc.Stream) -> None:
            async for data in stream:
                heard.append(bytes(data))
                await stream.send_all(data)

        await env.net.serve(handler, PORT)

    async def client(world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            world.net.cut("b", "a")
            with trio.move_on_after(5) as scope:
                await exchange(stream, b"heard, not answered")
            assert scope.cancelled_caught
        assert b"".join(heard) == b"heard, not answered"

    between(client, server=server)


def test_connecting_through_a_cut_times_out_and_works_again_when_healed() -> None:
    async def client(world: World, env: Env) -> None:
        for one, two in (("a", "b"), ("b", "a")):
            world.net.cut(one, two)
            with pytest.raises(OSError, match="timed out") as caught:
                await env.net.connect("b", PORT)
            assert caught.value.errno == errno.ETIMEDOUT
            world.net.heal()
        async with await env.net.connect("b", PORT) as stream:
            assert await exchange(stream) == b"x"

    between(client)


def test_a_partition_separates_two_sides_and_nobody_else() -> None:
    world = World(1)
    reached: dict[tuple[str, str], bool] = {}

    async def program(env: Env) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo_server, env)
            await trio.sleep(1)
            for other in "abcd":
                with trio.move_on_after(0.5) as scope:
                    async with await env.net.connect(other, PORT):
                        pass
                reached[env.name, other] = not scope.cancelled_caught
            await trio.sleep_forever()

    async def main(world: World) -> None:
        for name in "abcd":
            world.start(name, program)
        world.net.partition("ab", "cd")
        await trio.sleep(10)

    world.run(main)

    assert {pair for pair, ok in reached.items() if ok} == {
        (one, two) for side in ("ab", "cd") for one in side for two in side
    }


def test_an_isolated_host_still_reaches_itself() -> None:
    async def client(world: World, env: Env) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo_server, env)
            await trio.sleep(0.1)
            world.net.isolate("a")
            async with await env.net.connect("a", PORT) as stream:
                assert await exchange(stream) == b"x"
            with trio.move_on_after(1) as scope:
                await env.net.connect("b", PORT)
            assert scope.cancelled_caught
            nursery.cancel_scope.cancel()

    between(client)


# -- dead hosts ---------------------------------------------------------------------------


def test_the_connections_of_a_killed_process_are_reset() -> None:
    async def client(world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            world.kill("b")
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        with pytest.raises(ConnectionRefusedError):
            await env.net.connect("b", PORT)

    between(client)


def test_a_host_without_power_is_silent_until_it_is_back_and_then_resets() -> None:
    async def client(world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            world.kill("b", power=True)
            await stream.send_all(b"into the dark")
            with trio.move_on_after(5) as scope:
                await stream.receive_some()
            assert scope.cancelled_caught
            with pytest.raises(OSError, match="timed out"):
                await env.net.connect("b", PORT)
            world.start("b", echo_server)
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        async with await env.net.connect("b", PORT) as stream:
            assert await exchange(stream) == b"x"

    between(client)


def test_the_connections_of_a_process_that_ends_are_reset() -> None:
    async def server(env: Env) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo_server, env)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    async def client(_world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            assert await exchange(stream) == b"x"
            with trio.fail_after(3):
                with suppress(trio.BrokenResourceError):
                    assert await stream.receive_some() == b""

    between(client, server=server)


def test_a_stopped_process_still_accepts_and_answers_when_it_goes_on() -> None:
    async def client(world: World, env: Env) -> None:
        world.pause("b")
        async with await env.net.connect("b", PORT) as stream:
            world.clock.call_at(trio.current_time() + 5, world.resume, "b")
            assert await exchange(stream) == b"x"
            assert trio.current_time() > 5

    between(client)


def test_a_server_that_stops_closes_what_it_never_got_to() -> None:
    scopes: list[trio.CancelScope] = []

    async def server(env: Env) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await echo_server(env)
        await trio.sleep_forever()

    async def client(world: World, env: Env) -> None:
        world.pause("b")
        async with await env.net.connect("b", PORT) as stream:
            scopes[0].cancel()
            assert await stream.receive_some() == b""

    between(client, server=server)


def test_a_connection_can_be_reset_in_the_middle() -> None:
    async def client(world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            assert world.net.reset_some(1.0) == 1
            with pytest.raises(trio.BrokenResourceError):
                await stream.send_all(b"x")
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        assert world.net.reset_some(1.0) == 0

    between(client)


def test_closing_with_unread_data_resets_the_peer() -> None:
    async def server(env: Env) -> None:
        async def handler(stream: trio.abc.Stream) -> None:
            await trio.sleep(1)

        await env.net.serve(handler, PORT)

    async def client(_world: World, env: Env) -> None:
        async with await env.net.connect("b", PORT) as stream:
            await stream.send_all(b"nobody reads this")
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()

    between(client, server=server)


def test_a_host_that_nobody_has_heard_of_is_silent() -> None:
    async def client(_world: World, env: Env) -> None:
        with pytest.raises(OSError, match="timed out"):
            await env.net.connect("nobody", PORT)

    between(client)


def test_a_defect_in_a_handler_is_kept_for_the_scenario_and_lost_connections_are_not() -> None:
    calls: list[int] = []

    async def server(env: Env) -> None:
        async def handler(_stream: trio.abc.Stream) -> None:
            calls.append(1)
            if len(calls) == 1:
                raise trio.BrokenResourceError
            raise LookupError("a defect")

        await env.net.serve(handler, PORT)

    async def client(_world: World, env: Env) -> None:
        for _ in range(2):
            async with await env.net.connect("b", PORT) as stream:
                assert await stream.receive_some() == b""

    world = between(client, server=server)

    assert world.handler_errors == ["b: LookupError: a defect"]


def test_the_dead_neither_send_nor_receive() -> None:
    streams: list[SimStream] = []

    async def program(env: Env) -> None:
        stream = await env.net.connect("b", PORT)
        assert isinstance(stream, SimStream)
        streams.append(stream)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.1)
                await stream.send_all(b"last words")

    heard: list[bytes] = []

    async def server(env: Env) -> None:
        async def handler(stream: trio.abc.Stream) -> None:
            try:
                async for data in stream:
                    heard.append(bytes(data))
            except trio.BrokenResourceError:
                heard.append(b"reset")

        await env.net.serve(handler, PORT)

    async def main(world: World) -> None:
        world.start("b", server)
        await trio.sleep(0.01)
        world.start("a", program)
        await trio.sleep(1)
        world.kill("a")
        await trio.sleep(1)

    World(1).run(main)

    assert len(streams) == 1
    assert heard == [b"reset"]
