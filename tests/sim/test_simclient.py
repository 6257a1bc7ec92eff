"""The trio client and the server in a simulated world: what breaks between the two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from duckrow.node.alone import open_node
from duckrow.node.entries import Entry
from duckrow.node.env import Env
from duckrow.node.errors import Full, NoQuorum, Timeout
from duckrow.node.events import unheard
from duckrow.node.limits import CLIENT_REQUESTS_MAX, MIB
from duckrow.node.trioclient import Client

from .net import NOTICE_SECONDS
from .nodekit import SMALL
from .service import NODE, client, serve
from .world import World

Use = Callable[[World, Client], Awaitable[None]]


async def program(env: Env) -> None:
    async with open_node(env, SMALL) as node:
        await serve(env, node, unheard, trio.Event())


def run(use: Use) -> None:
    """`use` has a client of a node that it may kill, and start again with `program`."""
    done = trio.Event()

    async def main(world: World) -> None:
        async def user(env: Env) -> None:
            async with client(env, timeout=60.0) as row:
                await row.produce("t", b"zero")
                await use(world, row)
            done.set()

        world.start(NODE, program)
        world.start("user", user)
        await done.wait()

    World(1).run(main)


def test_an_order_that_went_down_with_a_silent_machine_is_sent_again_by_itself() -> None:
    """The client has nothing more to send, so no reset tells it that nobody will ever answer."""

    async def use(world: World, row: Client) -> None:
        world.hosts[NODE].media.sync_latency = 1.0
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_and_return, world)
            receipt = await row.produce("t", b"one")

        assert receipt.number == 2
        assert trio.current_time() - began < NOTICE_SECONDS + 5.0

    async def fail_and_return(world: World) -> None:
        await trio.sleep(0.5)
        world.kill(NODE, power=True)
        await trio.sleep(0.5)
        world.start(NODE, program)

    run(use)


def test_a_call_that_was_cancelled_anywhere_leaves_the_client_as_it_was() -> None:
    async def use(_world: World, row: Client) -> None:
        for number in range(1, 60):
            with trio.move_on_after(number * 0.0001):
                await row.produce("t", b"%d" % number)
            with trio.move_on_after(number * 0.0001):
                await row.pull("t")
        receipt = await row.produce("t", b"last")
        values = [entry.value for entry in await row.pull("t", limit=1000)]

        assert len(values) == len(dict.fromkeys(values)) == receipt.number
        assert values[-1] == b"last"

    run(use)


def test_reads_that_are_cancelled_make_room_at_the_node_for_those_that_wait_for_it() -> None:
    """Those were sent first, and so there was one too many: it was refused as breaking a limit."""

    async def use(_world: World, row: Client) -> None:
        scopes = [trio.CancelScope() for _ in range(2 * CLIENT_REQUESTS_MAX)]

        async def pull(scope: trio.CancelScope) -> None:
            with scope:
                await row.pull("nothing", wait=50.0)

        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(pull, scope)
            await trio.sleep(1.0)
            for scope in scopes[:CLIENT_REQUESTS_MAX]:
                scope.cancel()

    run(use)


def test_a_connection_that_is_cut_again_and_again_loses_and_doubles_nothing() -> None:
    async def use(world: World, row: Client) -> None:
        world.net.split = 0.5

        async def cut() -> None:
            while True:
                await trio.sleep(world.net.rng.uniform(0.0, 0.01))
                world.net.reset_some(0.5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            for number in range(200):
                nursery.start_soon(row.produce, "t", b"%d" % number)
            while len(await row.pull("t", limit=1000)) < 201:
                pass
            await trio.sleep(5.0)
            nursery.cancel_scope.cancel()
        values = [entry.value for entry in await row.pull("t", limit=1000)]

        assert sorted(values[1:], key=int) == [b"%d" % number for number in range(200)]

    run(use)


def test_whoever_gives_up_while_there_is_no_node_is_told_what_is_certain() -> None:
    async def use(world: World, row: Client) -> None:
        world.kill(NODE)
        with pytest.raises(Timeout):  # it went out before the reset came
            await row.produce("t", b"one", timeout=2.0)
        with pytest.raises(NoQuorum, match="nothing was written"):
            await row.produce("t", b"two", timeout=2.0)
        world.start(NODE, program)

        assert (await row.produce("t", b"three")).number == 2

    run(use)


def test_what_nobody_waits_for_is_not_written_if_it_was_told_that_too_much_waits() -> None:
    async def use(world: World, row: Client) -> None:
        taken = []
        world.kill(NODE)
        for number in range(40):
            value = b"%d " % number + bytes(MIB - 1000)
            try:
                await row.produce("t", value, wait="none", timeout=2.0)
            except NoQuorum:
                break
            taken.append(value)
        world.start(NODE, program)
        await row.flush()

        assert len(taken) < 40
        assert [entry.value async for entry in _all(row)] == [b"zero", *taken]

    run(use)


def test_a_produce_that_tells_what_became_of_an_earlier_one_is_not_done() -> None:
    async def use(_world: World, row: Client) -> None:
        await row.create_topic("small", max_entries=1, when_full="reject")
        await row.produce("small", b"fits")
        await row.produce("small", b"does not", wait="none")
        await trio.sleep(1.0)
        with pytest.raises(Full):
            await row.produce("t", b"one", wait="none")
        await row.flush()

        assert [entry.value for entry in await row.pull("t")] == [b"zero"]

    run(use)


def test_a_client_that_is_closed_waits_for_all_though_something_of_it_went_wrong_at_once() -> None:
    """The others had not been sent yet, and nobody was told that they never would be."""

    async def use(world: World, row: Client) -> None:
        await row.create_topic("small", max_entries=1, when_full="reject")
        await row.produce("small", b"fits")
        world.hosts[NODE].media.sync_latency = 0.5
        closed = trio.Event()

        async def other(env: Env) -> None:
            with pytest.raises(Full):
                async with client(env, timeout=60.0) as another:
                    await another.produce("small", b"does not", wait="none")
                    for _ in range(14):
                        await another.produce("t", bytes(MIB - 1000), wait="none")
            closed.set()

        world.start("other", other)
        await closed.wait()
        assert (await row.topic("t")).partitions[0].last == 15

    run(use)


async def _all(row: Client) -> AsyncIterator[Entry]:
    after: object = 0
    while found := await row.pull("t", after):
        for entry in found:
            yield entry
        after = found.after
