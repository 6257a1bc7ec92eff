"""The trio and the asyncio client over a real socket; cancelled wherever they can be."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import duckrow
from duckrow.node.asyncclient import AsyncClient
from duckrow.node.blocking import Client
from duckrow.node.errors import Timeout
from duckrow.node.overview import CLIENTS_PAGE, PAGE


@pytest.fixture(scope="module")
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node() as node:
        yield node


Use = Callable[[AsyncClient], Awaitable[None]]


def in_trio(url: str, use: Use, **options: Any) -> None:
    async def main() -> None:
        async with duckrow.trio.connect(url, **options) as row:
            await use(row)

    trio.run(main)


def in_asyncio(url: str, use: Use, **options: Any) -> None:
    async def main() -> None:
        async with duckrow.aio.connect(url, **options) as row:
            await use(row)

    asyncio.run(main())


BOTH = pytest.mark.parametrize("run", [in_trio, in_asyncio])


def test_all_clients_have_the_same_names_and_arguments() -> None:
    def named(kind: type) -> dict[str, str]:
        public = {n: f for n, f in vars(kind).items() if not n.startswith("_")}
        return {
            n: str(inspect.signature(f).replace(return_annotation="")) for n, f in public.items()
        }

    blocking = named(Client)
    del blocking["close"]  # leaving `async with` closes the others
    for each in ("between", "watch", "staging", "commit"):  # of jobs on Spark, whose workers block
        del blocking[each]

    assert named(AsyncClient) == blocking


@BOTH
def test_what_was_produced_is_pulled(node: duckrow.Node, run: Callable[..., None]) -> None:
    topic = f"simple-{run.__name__}"

    async def use(row: AsyncClient) -> None:
        receipt = await row.produce(topic, b"one", key="k", headers={"h": b"v"})
        many = await row.produce_many(topic, [b"two", "three"])
        entries = await row.pull(topic)

        assert (receipt.number, many.first, many.last) == (1, 2, 3)
        assert [(e.number, e.value) for e in entries] == [(1, b"one"), (2, b"two"), (3, b"three")]
        assert topic in await row.topics()
        assert (await row.topic(topic)).partitions[0].last == 3
        assert (await row.set_topic(topic, max_entries=2)).policy["max_entries"] == 2
        await row.prune(topic, 2)
        await row.barrier()
        assert [e.number for e in await row.pull(topic)] == [3]
        assert len(await row.clients()) >= 1
        assert (await row.status())["ready"]
        await row.delete_topic(topic)
        with pytest.raises(duckrow.NotFound):
            await row.topic(topic)
        assert (await row.create_topic(topic)).partitions[0].last == 0

    run(node.url, use)


@BOTH
def test_a_flush_that_is_cancelled_or_has_no_more_time_gives_nothing_up(
    tmp_path: Path, run: Callable[..., None]
) -> None:
    async def use(row: AsyncClient) -> None:
        for value in ("1", "2", "3"):
            await row.produce("t", value, wait="none")
        with pytest.raises(duckrow.Timeout, match="3 that nobody waits for have none yet"):
            await row.flush(timeout=0.01)
        if run is in_trio:
            with trio.move_on_after(0.01) as scope:
                await row.flush()
            assert scope.cancelled_caught
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(row.flush(), 0.01)
        with duckrow.Node(listen=f"unix:{tmp_path}/node.sock"):
            await row.flush()
            assert [entry.value for entry in await row.pull("t")] == [b"1", b"2", b"3"]

    run(f"duck+unix://{tmp_path}/node.sock", use)


@BOTH
def test_who_follows_is_not_given_what_is_in_another_topic_of_that_name(
    node: duckrow.Node, run: Callable[..., None]
) -> None:
    topic = f"again-{run.__name__}"

    async def use(row: AsyncClient) -> None:
        await row.produce_many(topic, [b"1", b"2"])
        follow = row.follow(topic)
        assert [(await anext(follow)).number for _ in range(2)] == [1, 2]
        await row.delete_topic(topic)
        await row.produce_many(topic, [b"another"] * 3)
        with pytest.raises(duckrow.Conflict, match="was deleted"):
            await anext(follow)

    run(node.url, use)


@BOTH
def test_all_topics_and_sessions_are_told_however_many_there_are(
    node: duckrow.Node, run: Callable[..., None]
) -> None:
    names = [f"many-{run.__name__}-{i:03}" for i in range(PAGE + 1)]
    for name in names:
        node.client.produce(name, b"v", wait="none")
    node.client.flush()

    async def use(row: AsyncClient) -> None:
        others = [duckrow.connect(node.url) for _ in range(CLIENTS_PAGE)]
        for other in others:
            other.barrier()
        topics, sessions = await row.topics(), await row.clients()
        for other in others:
            other.close()

        assert [name for name in topics if name in names] == names
        assert topics == sorted(topics) == node.client.topics()
        assert len({each["id"] for each in sessions}) == len(sessions) > CLIENTS_PAGE

    run(node.url, use)


@BOTH
def test_many_large_entries_go_through(node: duckrow.Node, run: Callable[..., None]) -> None:
    topic = f"large-{run.__name__}"
    values = [bytes([i % 256]) * 300_000 for i in range(60)]

    async def use(row: AsyncClient) -> None:
        receipts = await row.produce_many(topic, values)
        found: list[bytes] = []
        after: object = 0
        while entries := await row.pull(topic, after, max_bytes=1 << 22):
            found += [entry.value for entry in entries]
            after = entries.after

        assert receipts.count == 60
        assert found == values

    run(node.url, use)


@BOTH
def test_a_follow_goes_on_with_what_is_new(node: duckrow.Node, run: Callable[..., None]) -> None:
    topic = f"follow-{run.__name__}"

    async def use(row: AsyncClient) -> None:
        await row.produce_many(topic, [b"1", b"2"])
        found = []
        async for entry in row.follow(topic):
            found.append(entry.value)
            if len(found) == 2:
                await row.produce(topic, b"3")
            if len(found) == 3:
                break

        assert found == [b"1", b"2", b"3"]

    run(node.url, use)


@BOTH
def test_what_nobody_waits_for_is_there_after_leaving(
    node: duckrow.Node, run: Callable[..., None]
) -> None:
    topic = f"none-{run.__name__}"

    async def use(row: AsyncClient) -> None:
        for index in range(2_000):
            await row.produce(topic, b"%d" % index, wait="none")

    run(node.url, use)
    assert [e.value for e in node.client.pull(topic, limit=5_000)] == [
        b"%d" % i for i in range(2000)
    ]


@BOTH
def test_an_accepted_entry_can_be_awaited(node: duckrow.Node, run: Callable[..., None]) -> None:
    topic = f"accepted-{run.__name__}"

    async def use(row: AsyncClient) -> None:
        await row.create_topic(topic, max_entries=1, when_full="block")
        await row.produce(topic, b"1")
        receipt = await row.produce(topic, b"2", wait="accepted")
        assert receipt.number is None
        await row.prune(topic, 1)
        assert (await receipt.ordered()).number == 2

    run(node.url, use)


@BOTH
def test_what_the_body_raises_comes_out_as_it_is(
    node: duckrow.Node, run: Callable[..., None]
) -> None:
    async def use(row: AsyncClient) -> None:
        await row.produce("raised", b"v")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(node.url, use)


@BOTH
def test_nobody_at_the_address_is_an_error_that_names_it_and_says_what_to_do(
    run: Callable[..., None],
) -> None:
    async def use(row: AsyncClient) -> None:
        with pytest.raises(
            duckrow.NoQuorum,
            match=r"none\.sock, which cannot.*`duckrow node` run there.*nothing was written",
        ):
            await row.produce("t", b"v")
        with pytest.raises(duckrow.Timeout, match=r"none\.sock"):
            await row.pull("t")

    run("duck+unix:///nowhere/none.sock", use, timeout=0.05)


@BOTH
def test_a_client_that_is_not_open_says_so(node: duckrow.Node, run: Callable[..., None]) -> None:
    async def main() -> None:
        row = (duckrow.trio if run is in_trio else duckrow.aio).connect(node.url)
        with pytest.raises(duckrow.Disconnected, match="async with"):
            await row.produce("t", b"v")

    if run is in_trio:
        trio.run(main)
    else:
        asyncio.run(main())


# -- cancelling ------------------------------------------------------------------------------------

VALUES = [b"%d" % index for index in range(3)]


async def one_use(
    row: AsyncClient, topic: str, after: list[int], at_end: Callable[[], None] = lambda: None
) -> None:
    """Entries of one's own, a look at them, and a pull that never ends."""
    for value in VALUES:
        await row.produce(topic, value)
        after.append(int(value))
    await row.produce_many(topic, [b"3", b"4"])
    after += [3, 4]
    follow = row.follow(topic)
    async for entry in follow:
        if entry.value == b"4":
            break
    follow.close()
    at_end()
    await row.pull(topic, "last", wait=60)


def check(node: duckrow.Node, topic: str, told: list[int]) -> None:
    found = [int(entry.value) for entry in node.client.pull(topic)]

    assert found == sorted(set(found)), "twice, or out of order"
    assert set(told) <= set(found), "what was answered is there"


class _Steps(trio.abc.Instrument):
    """Cancels a scope before a certain step of a task."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.left, self.scope, self.task = step, scope, trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


@pytest.mark.parametrize("step", range(1, 12))
def test_trio_cancelled_at_every_step_leaves_the_client_in_order(
    node: duckrow.Node, step: int
) -> None:
    topic = f"trio-steps-{step}"
    told: list[int] = []

    async def other(row: AsyncClient) -> None:
        await row.produce_many(f"{topic}-other", [b"x"] * 100)

    async def use(row: AsyncClient) -> None:
        ending = trio.Event()

        async def cancel_at_the_end(scope: trio.CancelScope) -> None:
            await ending.wait()
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other, row)
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_at_the_end, scope)
                steps = _Steps(step, scope)
                trio.lowlevel.add_instrument(steps)
                try:
                    await one_use(row, topic, told, ending.set)
                finally:
                    trio.lowlevel.remove_instrument(steps)
            ending.set()
        assert scope.cancelled_caught
        await row.produce(f"{topic}-after", b"works")

    in_trio(node.url, use)
    check(node, topic, told)
    assert len(node.client.pull(f"{topic}-other")) == 100


@pytest.mark.parametrize("passes", [*range(12), 20, 50])
def test_asyncio_cancelled_at_every_pass_leaves_the_client_in_order(
    node: duckrow.Node, passes: int
) -> None:
    topic = f"aio-passes-{passes}"
    told: list[int] = []

    async def use(row: AsyncClient) -> None:
        other = asyncio.create_task(row.produce_many(f"{topic}-other", [b"x"] * 100))
        task = asyncio.create_task(one_use(row, topic, told))
        for _ in range(passes):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await other).count == 100
        await row.produce(f"{topic}-after", b"works")

    in_asyncio(node.url, use)
    check(node, topic, told)


@BOTH
def test_a_machine_that_falls_silent_is_noticed_in_ten_seconds(run: Callable[..., None]) -> None:
    """An answer that will never come would otherwise be waited for: nothing more is sent."""

    async def use(row: AsyncClient) -> None:
        await row.topics()
        if isinstance(row, duckrow.trio.Client):
            sock: Any = row._stream.socket  # type: ignore[union-attr]  # a real one
        else:
            assert isinstance(row, duckrow.aio.Client) and row._transport is not None
            sock = row._transport.get_extra_info("socket")

        of_tcp = [
            sock.getsockopt(socket.IPPROTO_TCP, name)
            for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert of_tcp == [5, 2, 3]
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000

    with duckrow.Node(listen="tcp://127.0.0.1:0") as over_tcp:
        run(over_tcp.url, use)


def _forward(source: socket.socket, target: socket.socket, stands_still: threading.Event) -> None:
    while data := source.recv(4096):
        if not stands_still.is_set():
            target.sendall(data)


@pytest.fixture
def standing() -> Iterator[tuple[str, threading.Event]]:
    """Two ways to a node; and what lets nothing more through on the first, and hangs up on nobody."""
    stands_still = threading.Event()
    with (
        duckrow.Node(listen="tcp://127.0.0.1:0") as node,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(("127.0.0.1", int(node.url.rpartition(":")[2]))) as far,
    ):

        def serve() -> None:
            near, _ = server.accept()
            with near:
                back = threading.Thread(target=_forward, args=(far, near, stands_still))
                back.start()
                _forward(near, far, stands_still)
                far.shutdown(socket.SHUT_RDWR)
                back.join()

        serving = threading.Thread(target=serve)
        serving.start()
        first = f"127.0.0.1:{server.getsockname()[1]}"
        yield node.url.replace("duck://", f"duck://{first},"), stands_still
        serving.join()


@BOTH
def test_who_has_several_nodes_leaves_one_of_which_nothing_comes(
    run: Callable[..., None], standing: tuple[str, threading.Event]
) -> None:
    url, stands_still = standing

    async def use(row: AsyncClient) -> None:
        await row.topics()
        stands_still.set()
        with pytest.raises(Timeout):
            await row.topics()
        await row.topics()

    run(url, use, timeout=1.0)


def test_a_blocking_client_of_several_nodes_leaves_one_of_which_nothing_comes(
    standing: tuple[str, threading.Event],
) -> None:
    url, stands_still = standing
    with duckrow.connect(url, timeout=1.0) as row:
        row.topics()
        stands_still.set()
        with pytest.raises(Timeout):
            row.topics()
        row.topics()
