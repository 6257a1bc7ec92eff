"""A command that a bridge has taken is staged there and ordered once: a node gives again what it does not
know the fate of, and settles what is in the row."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from duckrow.bridge import attach
from duckrow.node import bridgewire as wire
from duckrow.node import makers
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.bridgewire import Welcome
from duckrow.node.effects import Code, Result
from duckrow.node.env import Buffer, Env
from duckrow.node.frames import Frame, FrameReader
from duckrow.node.row import Bundle, Item
from sim.clusterkit import BODY
from sim.pairkit import NODE_PORT, Split, play


def test_a_node_waits_for_its_bridge_and_submits_again_what_it_does_not_know_the_fate_of() -> None:
    """N2."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        for _ in range(4):
            await trio.sleep(0.7)
            split.kill("m", 1)
            await trio.sleep(0.4)
            assert not split.nodes[1].row.status().active
            split.start_bridge(1)
            await split.until()
        await split.end()

    assert len(play(3, script).results) > 100


def test_what_a_node_took_while_its_machine_is_cut_off_is_staged_there_and_ordered_later() -> None:
    """N3, P4."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        for other in (2, 3):
            split.world.net.partition(["m1"], [f"m{other}"])
        await trio.sleep(3)
        assert not split.nodes[1].row.status().active
        results = len(split.results)
        node = split.nodes[1]
        told: list[object] = []
        turn = makers.Turn(b"p" * 16, seq=1, time=node.wall_us())
        key = node.submit(makers.produce(turn, "rides", BODY, 3), accepted=True)
        node.calls.tell(key, told.append, accepted=True)
        await trio.sleep(0.5)
        assert told == [Result(Code.WAITING)], "durable here, and not ordered"

        split.kill("n", 1)
        split.kill("m", 1, power=True)
        split.start_bridge(1)
        split.start_node(1)
        await trio.sleep(1)
        split.world.net.heal()
        await split.until()
        await trio.sleep(0.5)
        await split.end()
        assert len(split.results) > results
        lanes = [key[0] for key in split.nodes[2].state.lanes.rows]
        assert b"p" * 16 in lanes

    play(4, script)


def test_a_thousand_commands_that_were_staged_one_by_one_are_ordered_once_and_in_order() -> None:
    async def script(split: Split) -> None:
        for id_ in split.links:
            split.start_bridge(id_)
        split.start_node(1)
        split.producing = False
        await trio.sleep(2)
        split.world.net.partition(["m1"], ["m2", "m3"])
        await trio.sleep(2)
        node = split.nodes[1]
        told: list[object] = []
        for seq in range(1, 1001):
            turn = makers.Turn(b"p" * 16, seq=seq, time=node.wall_us())
            key = node.submit(makers.produce(turn, "rides", BODY, 3), accepted=True)
            node.calls.tell(key, told.append, accepted=True)
            await trio.sleep(0.002)
        await trio.sleep(0.5)
        assert told == [Result(Code.WAITING)] * 1000
        assert 200 < len(split.bridges[1].store.chronicle.staged) < 520

        split.kill("n", 1)
        split.kill("m", 1, power=True)
        split.start_bridge(1)
        split.world.net.heal()
        for id_ in (1, 2, 3):
            split.start_node(id_)
        await split.until()
        await trio.sleep(1)
        await split.end()
        for keeper in split.nodes.values():
            assert keeper.state.partition(keeper.state.topic("rides").id, 0).last == 3000  # type: ignore[union-attr]

    play(9, script)


def test_a_node_that_follows_from_a_snapshot_settles_what_its_state_has_already() -> None:
    """The former one died between applying an own item and saying so."""

    async def first(env: Env) -> None:
        row = BridgedRow(env, "m1", NODE_PORT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            await row.ready.wait()
            row.follow(0)
            turn = makers.Turn(b"p" * 16, seq=1, time=env.wall_us())
            row.submit([makers.produce(turn, "rides", BODY, 3)])
            own: list[Bundle] = []
            while not own:
                contents = [item.content for item in await row.take()]
                own = [each for each in contents if isinstance(each, Bundle)]
            assert own[0].origin == 1
            nursery.cancel_scope.cancel()

    async def second(env: Env) -> None:
        row = BridgedRow(env, "m1", NODE_PORT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            await row.ready.wait()
            row.follow(row.store.position)
            turn = makers.Turn(b"p" * 16, seq=2, time=env.wall_us())
            row.submit([makers.produce(turn, "rides", BODY, 3)])
            for _ in range(2):
                with trio.move_on_after(1):
                    await row.take()
            nursery.cancel_scope.cancel()

    async def script(split: Split) -> None:
        for id_ in split.links:
            split.start_bridge(id_)
        await trio.sleep(2)
        split.world.start("n1", first)
        await trio.sleep(2)
        staged = split.bridges[1].store.chronicle.staged
        assert [stage.ordered for stage in staged.values()] == [True]
        split.world.start("n1", second)
        await trio.sleep(4)
        assert staged == {}

    play(5, script)


def test_what_is_applied_is_settled_though_the_bridge_came_to_rest_with_its_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N3: its status came together with the item, and no other one followed."""

    def is_due(node: attach._Node) -> bool:
        return node._told is None or node._told[1].position != node._bridge.store.position

    monkeypatch.setattr(attach._Node, "_is_status_due", is_due)

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(0.5)
        await split.end()

    play(12, script)


def test_what_came_while_a_node_waited_for_a_place_is_settled_however_much_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bridge sends 4 MiB ahead, which are 30,000 small items of this machine when the node starts again; the
    names of 11,000 were more than a frame holds, and the node ended whenever it came there.
    """
    said: list[list[Buffer]] = []
    row = BridgedRow(SimpleNamespace(), "m1", NODE_PORT)  # type: ignore[arg-type]
    row._link = SimpleNamespace(  # type: ignore[assignment]
        is_up=True, put=said.append, send=said.append, flush=lambda: None
    )
    row.welcome = Welcome(1, 1, bytes(16), (), "fsync", 1, (), "")
    row.follow(0)
    frame = Frame(b"", b"")
    for position in range(1, 12_001):
        item = Item(position, position, 0, Bundle(1, 1, 1 << 20 | position, position, 1, ()))
        monkeypatch.setattr(wire, "item_of", lambda *_, item=item: item)
        row._on_frame(wire.Told.ITEM, [], frame)
    del said[:]

    async def take_all() -> None:
        assert len(await row.take()) == 12_000
        row._tell_staged([])
        assert await row.take() == []

    trio.run(take_all)
    settled = 0
    for buffers in said:
        reader = FrameReader()
        reader.accept_hello()
        reader.receive_data(b"".join(buffers))
        found = reader.next_frame()
        assert found is not None
        kind, fields = wire.opened(found)
        assert kind == wire.Said.SETTLE
        settled += len(fields[0])
    assert settled == 12_000


@pytest.mark.parametrize("members", [(2, 3), (1, 2)], ids=["handed on", "sent to both"])
def test_what_is_ordered_for_a_machine_without_a_vote_by_another_one_is_not_submitted_again(
    monkeypatch: pytest.MonkeyPatch, members: tuple[int, ...]
) -> None:
    """R3: Its node had kept all of it, until it could take no more.  Who has a vote orders what is here itself."""
    row = BridgedRow(SimpleNamespace(), "m1", NODE_PORT)  # type: ignore[arg-type]
    row._link = SimpleNamespace(  # type: ignore[assignment]
        is_up=True, put=lambda _: None, send=lambda _: None, flush=lambda: None
    )
    row.welcome = Welcome(1, 1, bytes(16), (), "fsync", 1, (), "")
    row._status = row._status._replace(members=members)
    row.follow(0)
    command = makers.barrier(makers.Turn(bytes(16), 1))
    row.submit([command])
    item = Item(1, 1, 0, Bundle(1, 2, 1, 1, 1, (command,)))
    monkeypatch.setattr(wire, "item_of", lambda *_: item)
    row._on_frame(wire.Told.ITEM, [], Frame(b"", b""))

    assert trio.run(row.take) == [item]
    assert list(row._unsettled) == ([command] if 1 in members else [])
