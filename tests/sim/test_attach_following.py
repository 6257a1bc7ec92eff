"""A node follows the row of its bridge, and has from it what it reads and may drop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from duckrow.bridge import attach, follower
from duckrow.bridge.answers import Answers
from duckrow.bridge.follower import Follower
from duckrow.node import bridgedrow, columns, makers
from duckrow.node import bridgewire as wire
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.bridgedstore import BridgedStore
from duckrow.node.bridgewire import What
from duckrow.node.commands import Command
from duckrow.node.env import Buffer, Env
from duckrow.node.errors import DiskFailed
from duckrow.node.limits import KIB, MIB
from duckrow.node.row import Bundle, Item
from sim.clusterkit import BODY
from sim.pairkit import NODE_PORT, Split, everything, play


def test_however_many_segments_die_at_once_a_bridge_is_asked_to_drop_them() -> None:
    """Of a row of some TB the list was more than a frame holds: the node ended, and at each start again."""

    class Row:
        async def ask(self, what: What, *arguments: object) -> tuple[object, Buffer]:
            wire.ask(1, what, *arguments)
            return arguments[0], b""

    numbers = range(100_000, 130_000)
    assert trio.run(BridgedStore(cast(Any, Row())).drop, numbers) == [*numbers]
    assert trio.run(BridgedStore(cast(Any, Row())).drop, []) == []


def test_a_node_hears_what_was_dropped_though_its_bridge_died_before_it_could_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The index of such a segment stayed until the node started again: a file on the disk, and an open one."""
    answer, dropped = Answers.to, list[int]()

    async def die(answers: Answers, reference: int, what: int, *rest: Any) -> list[Buffer]:
        before = answers._bridge.store.segments()
        found = await answer(answers, reference, what, *rest)
        there = answers._bridge.store.segments()
        gone = {each.number for each in before} - {each.number for each in there}
        if what == What.DROP and gone and not dropped and answers._bridge.options.id == 1:
            dropped.extend(gone)
            await trio.sleep_forever()
        return found

    monkeypatch.setattr(Answers, "to", die)

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        with trio.fail_after(60):
            while not dropped:
                await trio.sleep(0.01)
        split.kill("m", 1)
        split.start_bridge(1)
        await split.until()
        await trio.sleep(3)
        assert not {*dropped} & {*split.nodes[1].numbers.installed}
        await split.end()

    play(7, script, keep=60)


def test_a_node_that_applies_nothing_is_not_sent_the_whole_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was away for long has far to go, and a few bytes of memory."""
    monkeypatch.setattr(attach, "UNTAKEN_BYTES_MAX", 4096)
    monkeypatch.setattr(bridgedrow, "TAKEN_AT", 1024)
    monkeypatch.setattr(follower, "PAST_BYTES", 1024)
    monkeypatch.setattr(follower, "LIVE_BYTES_MAX", 1024)
    held: list[int] = []
    taken: list[int] = []

    async def idle(env: Env) -> None:
        row = BridgedRow(env, "m1", NODE_PORT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            row.follow(0)
            await row.ready.wait()
            await trio.sleep(1)
            held.append(len(row._items))
            while len(taken) < row.status().position:
                taken.extend(item.position for item in await row.take())
            nursery.cancel_scope.cancel()

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        split.kill("n", 1)
        split.world.start("x", idle)
        await trio.sleep(2)

    play(14, script)
    assert len(taken) > 80
    assert taken == list(range(1, len(taken) + 1))
    assert 0 < held[0] < 50


def test_a_node_reads_what_it_produced_itself_without_asking_its_bridge() -> None:
    """Its bridge does not send those bodies back, and the node has them."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        for node in split.nodes.values():

            async def asks(place: int, *, is_live: bool = False) -> bytes:
                raise AssertionError(f"for the body at {place}")

            node.row.store.read_body = asks  # type: ignore[method-assign]
        await trio.sleep(1)
        assert len(split.results) > 20
        for node in split.nodes.values():
            assert len(await everything(node)) > 20

    play(11, script)


def test_a_node_whose_bridge_lost_the_end_of_its_row_finds_what_comes_again_where_it_lies_now() -> (
    None
):
    """A sync failed, and the kernel dropped what was written.  The node lives on, and knew the old places."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        host = split.world.host("m1")
        host.media.sync_eio = 1
        while host.alive:
            await trio.sleep(0.01)
        del split.bridges[1]
        for path in host.media.paths():
            host.media.evict(path)
        await trio.sleep(0.2)
        split.start_bridge(1)
        await split.until()
        await trio.sleep(1)
        await split.end()
        node = split.nodes[1]
        topic = node.state.topic("rides")
        assert topic is not None
        rows = node.numbers.rows(topic.id, 0, 1, 1_000)
        assert sum(row.count for row in rows) == node.state.partition(topic.id, 0).last
        for row in rows:
            assert await node.row.store.read_body(row.place) == BODY
        assert split.replaced == [1]

    play(1, script, "write", tolerate=(DiskFailed,))


def test_a_node_that_asks_for_many_large_bodies_at_once_gets_all_of_them() -> None:
    """They are more than may wait in a connection: it was cut, and all were asked for again, for ever."""
    body = columns.encode([bytes(1_000_000)] * 4)

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        node = split.nodes[1]
        pid = node.fresh_pid()
        for seq in range(1, 7):
            turn = makers.Turn(pid, seq=seq, time=node.wall_us())
            await node.order(makers.produce(turn, "large", body, 4))
        topic = node.state.topic("large")
        assert topic is not None
        came: list[bool] = []

        async def read(place: int) -> None:
            came.append(await node.row.store.read_body(place) == body)

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for row in node.numbers.rows(topic.id, 0, 1, 6):
                    nursery.start_soon(read, row.place)
        assert came == [True] * 6
        assert not [note for note in split.notes if "node_lost" in note]

    play(12, script)


def test_a_node_that_stands_still_is_not_hung_up_on_however_large_what_comes_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a round gave, and what was placed behind it, was more than may wait in a connection together."""
    monkeypatch.setattr(attach._Node, "_is_status_due", lambda _node: False)
    notes: list[str] = []
    waiting: list[int] = []

    class Deaf:
        def send_now(self, _buffers: object) -> int:
            return 0

        async def wait_send_all_might_not_block(self) -> None:
            await trio.sleep_forever()

        async def aclose(self) -> None:
            pass

    def item(position: int, size: int) -> Item:
        command = Command(b"head", bytes(size))
        return Item(position, position, 0, Bundle(1, 2, position, position, 0, (command,)))

    async def main() -> None:
        cursor = Follower(0, 0, cast(Any, None))
        bridge = SimpleNamespace(
            store=SimpleNamespace(images=None),
            giving=SimpleNamespace(source=None),
            options=SimpleNamespace(id=1),
            follow=lambda _after: cursor,
        )
        async with trio.open_nursery() as nursery:
            rest = nursery, lambda _, text, *facts: notes.append(text % facts), None, print
            node = attach._Node(*cast(Any, (bridge, Deaf(), *rest)))
            node._welcome = True
            node._follow(0)
            sizes = [MIB - KIB, *[4 * MIB - KIB] * 4]
            for position, size in enumerate(sizes, start=1):
                cursor.placed(item(position, size))
                if position % 2:  # a round
                    node.tell_round()
                    await trio.testing.wait_all_tasks_blocked()
                    waiting.append(node._output.bytes)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert notes == []
    assert waiting[-1] > 8 * MIB
