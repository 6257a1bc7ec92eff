"""A node and its bridge are two processes: either dies and comes back, and nothing is lost or doubled."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from duckrow.bridge import attach, follower
from duckrow.bridge.answers import Answers
from duckrow.bridge.process import Bridge
from duckrow.node import bridgedrow, columns, makers
from duckrow.node import bridgewire as wire
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.bridgedstore import BridgedStore
from duckrow.node.bridgewire import Said, Welcome, What
from duckrow.node.effects import Code, Result
from duckrow.node.env import Buffer, Env
from duckrow.node.errors import Disconnected, DiskFailed, NoQuorum, Timeout
from duckrow.node.frames import Frame, FrameReader
from duckrow.node.row import Bundle, Item
from sim import townkit
from sim.clusterkit import BODY
from sim.nodekit import Owner
from sim.pairkit import NODE_PORT, Split, everything, play
from sim.townkit import Town


def test_nodes_at_their_bridges_have_one_state() -> None:
    """N1."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(2)
        await split.end()

    split = play(1, script)
    assert len(split.results) > 60


def test_a_node_comes_back_to_a_bridge_that_went_on_and_reads_old_bodies_from_it() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        split.kill("n", 2)
        media = split.world.host("n2").media
        assert [path for path in media.paths() if path.startswith("state/")], "a snapshot"
        before = len(split.results)
        await trio.sleep(1)
        assert split.bridges[2].status().active, "the cluster notices nothing"
        assert len(split.results) > before + 10
        split.start_node(2)
        await split.until()
        await trio.sleep(0.5)
        await split.end()

    play(2, script)


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


async def storm(split: Split, rng: random.Random, rounds: int) -> None:
    """Bridges and nodes die and come back, links break; then all is well again."""
    net = split.world.net
    split.start_all()
    for _ in range(rounds):
        await trio.sleep(rng.expovariate(2.0))
        id_, what, chance = rng.choice((1, 2, 3)), rng.choice("mn"), rng.random()
        host = split.world.host(f"{what}{id_}")
        if host.alive and chance < 0.5:
            split.kill(what, id_, power=split.level == "fsync" and rng.random() < 0.3)
        elif not host.alive and chance < 0.7:
            (split.start_bridge if what == "m" else split.start_node)(id_)
        elif chance < 0.8:
            net.reset_some(0.3)
        elif chance < 0.9:
            one, two = rng.sample((1, 2, 3), 2)
            net.cut(f"m{one}", f"m{two}")
        else:
            net.heal()
    net.calm()
    for id_ in (1, 2, 3):
        for what, start in (("m", split.start_bridge), ("n", split.start_node)):
            if not split.world.host(f"{what}{id_}").alive:
                start(id_)
    await split.until(seconds=60)
    await trio.sleep(1)
    await split.end()


def weather(seed: int, level: str, rounds: int = 25) -> None:
    async def script(split: Split) -> None:
        await storm(split, random.Random(seed), rounds)

    try:
        play(seed, script, level)
    except BaseException as error:
        error.add_note(f"seed {seed}, {level}")
        raise


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


@pytest.mark.parametrize("level", ["fsync", "write"])
def test_whatever_dies_nothing_is_lost_or_doubled(level: str) -> None:
    weather(50, level)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", ["fsync", "write"])
def test_whatever_dies_however_often_nothing_is_lost_or_doubled(level: str) -> None:
    for seed in range(60, 100):
        weather(seed, level, 40)


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


def test_a_node_that_ends_waits_for_no_end_of_the_row_from_a_bridge_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attach, "STATUS_SECONDS", 1000.0)

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        node = split.nodes[1]
        assert node.state.position > node.row.status().position, "it is told of the end later"
        split.stops[1].set()
        await trio.sleep(0.01)
        assert isinstance(node.row, BridgedRow)
        assert node.row.is_attached
        split.kill("m", 1)
        await trio.sleep(1)
        assert not split.world.host("n1").alive

    play(1, script)


def test_a_node_that_ends_waits_for_no_answer_of_a_bridge_that_dies_before_it_gave_one() -> None:
    """Where the index has to be known before the end, the process had stood for ever."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        row = split.nodes[1].row

        async def ask() -> None:
            with pytest.raises(Disconnected):
                await row.store.sync()

        split.world.pause("m1")
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.sleep(0.1)
                assert isinstance(row, BridgedRow)
                row.leave()
                await trio.sleep(0.1)
                split.kill("m", 1)

    play(1, script)


def test_a_node_whose_index_lacks_something_tells_the_next_bridge_too() -> None:
    """The one that it told had died before it had an image."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        row = split.nodes[1].row
        assert isinstance(row, BridgedRow)
        split.kill("m", 1)
        await trio.sleep(0.1)
        row.lack()
        split.start_bridge(1)
        with trio.fail_after(20):
            while not any("m1 image_taken" in note for note in split.notes):
                await trio.sleep(0.1)

    play(1, script)


def test_of_a_node_that_is_gone_no_image_is_asked() -> None:
    """Whoever wanted one had waited a minute for what did not come."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        giving = split.bridges[1].giving
        assert giving.source is not None
        split.kill("n", 1)
        await trio.sleep(0.1)
        assert giving.source is None

    play(1, script)


def test_a_second_node_takes_the_place_of_the_first() -> None:
    async def idle(env: Env) -> None:
        row = BridgedRow(env, "m1", NODE_PORT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            await row.ready.wait()
            await trio.sleep(0.05)
            nursery.cancel_scope.cancel()

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.world.start("x", idle)
        await trio.sleep(0.02)
        assert not split.nodes[1].row.status().active, "it was hung up on"
        await split.until()  # and comes back
        await trio.sleep(0.5)
        await split.end()

    play(6, script)


def test_who_does_not_say_that_it_is_a_node_takes_the_place_of_none() -> None:
    """Say who looks whether somebody listens there: the node was hung up on."""

    async def look(env: Env) -> None:
        for word in (b"", b"".join(wire.frame([int(Said.LACKS)])), b"".join(wire.frame([1, 99]))):
            stream = await env.net.connect("m1", NODE_PORT)
            if word:
                await stream.send_all(word)
                assert await stream.receive_some() == b"", "it is not answered"
            await trio.sleep(0.1)
            await stream.aclose()

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.world.start("x", look)
        for _ in range(50):
            await trio.sleep(0.02)
            assert split.nodes[1].row.status().active
        assert not split.world.host("x").alive
        await split.end()

    split = play(6, script)
    assert not [note for note in split.notes if "bridge_lost" in note]


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


def test_a_node_whose_bridge_has_another_store_begins_anew_and_has_the_same_row() -> None:
    """The disk of m1 is replaced: the others let its new store in, under the old id (U3)."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(0.5)
        split.kill("m", 1)
        split.lose_disk("m1")
        split.start_bridge(1)
        await trio.sleep(1)
        assert split.replaced == [1]
        await split.until()
        await split.end()

    play(7, script)


async def catching_up_in_vain(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 1 catches up, and its bridge has ended before it said where an older body lies."""
    place_of = BridgedStore.place_of

    async def ask_in_vain(store: BridgedStore, position: int) -> int:
        monkeypatch.undo()
        split.kill("m", 1)
        return await place_of(store, position)

    split.start_all()
    await split.until()
    split.producing = False
    owner, task = Owner(split.nodes[1]), Owner(split.nodes[1], b"s" * 16)
    staged = await task.order(makers.stage, "s", BODY, 3, writer=b"writer", batch=1, task=0)
    done = await owner.order(makers.commit, b"writer", 1, [(staged.position, staged.detail)])
    assert done.code == Code.ORDERED
    await trio.sleep(0.5)  # the other nodes have it
    split.kill("n", 1)
    monkeypatch.setattr(BridgedStore, "place_of", ask_in_vain)
    split.start_node(1)
    await trio.sleep(1)
    assert not split.world.host("m1").alive


def test_a_node_that_is_told_to_end_while_it_catches_up_waits_for_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives: list[bool] = []

    async def script(split: Split) -> None:
        await catching_up_in_vain(split, monkeypatch)
        host = split.world.host("n1")
        assert host.scope is not None
        host.scope.cancel()
        await trio.sleep(1)
        lives.append(host.alive)

    play(12, script)
    assert lives == [False]


def test_a_node_begins_anew_whose_bridge_has_another_store_while_it_catches_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(split: Split) -> None:
        await catching_up_in_vain(split, monkeypatch)
        split.lose_disk("m1")
        split.start_bridge(1)
        await trio.sleep(1)

    assert play(13, script).replaced == [1]


def test_what_a_bridge_does_not_take_is_told_to_who_asked() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)
        bridge, node = split.bridges[1], split.nodes[1]

        def full(_commands: object) -> None:
            raise NoQuorum("too many commands wait")

        setattr(bridge, "submit", full)  # noqa: B010
        with trio.fail_after(5), pytest.raises(NoQuorum, match="too many commands wait"):
            await node.barrier()
        delattr(bridge, "submit")
        assert await node.barrier() == node.state.position

    play(8, script)


def test_what_a_bridge_does_not_take_may_have_been_taken_by_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 800433 was told that nothing was written, and it was ordered later: that one had it on its disk."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)

        def full(_bridge: object, _commands: object) -> None:
            raise NoQuorum("too many commands wait")

        taken: list[object] = []
        monkeypatch.setattr(Bridge, "submit", lambda _bridge, commands: taken.append(commands))

        async def wait() -> None:
            with pytest.raises(Timeout, match="not known: too many commands wait"):
                await split.nodes[1].barrier()

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                while not taken:
                    await trio.sleep(0.001)
                monkeypatch.setattr(Bridge, "submit", full)
                split.kill("m", 1)
                split.start_bridge(1)
        monkeypatch.undo()

    play(8, script)


def test_of_what_a_bridge_has_taken_nobody_is_told_that_it_is_certainly_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client whose connection broke says it again by another one, and the bridge has no room for a copy."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)
        for other in (2, 3):
            split.world.net.partition(["m1"], [f"m{other}"])
        await trio.sleep(3)
        node = split.nodes[1]
        told: list[object] = []
        turn = makers.Turn(b"p" * 16, seq=1, time=node.wall_us())
        command = makers.produce(turn, "rides", BODY, 3)
        key = node.submit(command)
        node.calls.tell(key, told.append)
        await trio.sleep(0.5)

        def full(_bridge: object, _commands: object) -> None:
            raise NoQuorum("too many commands wait")

        monkeypatch.setattr(Bridge, "submit", full)
        node.submit(command)
        await trio.sleep(0.5)
        monkeypatch.undo()
        assert [type(each) for each in told] == [Timeout]
        split.world.net.heal()
        await split.until()
        await trio.sleep(0.5)
        assert b"p" * 16 in [lane[0] for lane in node.state.lanes.rows], "it is ordered"
        await split.end()

    play(8, script)


def test_what_a_bridge_was_told_cannot_be_withdrawn() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        node, turn = split.nodes[1], makers.Turn(b"w" * 16, seq=1, time=1)
        command = makers.barrier(turn)
        node.submit(command)
        assert not node.row.withdraw(command)

    play(9, script)


def test_what_fails_in_a_round_ends_the_bridge_whoever_had_brought_something() -> None:
    """L1."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()

        async def fails(*_: object) -> None:
            raise DiskFailed("a write in the row store failed")

        journal = split.bridges[2].journal
        journal.receive = fails  # type: ignore[assignment, method-assign]
        await trio.sleep(0.2)
        assert not split.world.host("m2").alive
        assert all(split.bridges[id_].status().active for id_ in (1, 3))

    play(10, script, tolerate=(DiskFailed,))


def test_a_sync_that_fails_ends_the_bridge_though_only_its_node_had_asked_for_it() -> None:
    """L1: the machine of seed 905158 went on for half a second, and counted as one that has everything."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)
        bridge, host = split.bridges[2], split.world.host("m2")
        assert bridge.store.dirty, "at this level the bridge itself syncs nothing now"
        host.media.sync_eio = 1
        with trio.move_on_after(0.05):  # of the bridge that comes next the node would ask it again
            await split.nodes[2].row.store.sync()
        assert not host.alive
        assert host.media.sync_eio == 0
        assert all(split.bridges[id_].status().active for id_ in (1, 3))

    play(10, script, "memory", tolerate=(DiskFailed,))


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


def test_who_waits_for_the_number_of_what_was_accepted_is_not_told_that_a_copy_was_refused() -> (
    None
):
    """He waits at another machine, which cannot know that one has it."""

    async def use(town: Town) -> None:
        async with town.client(1) as row, town.client(2) as elsewhere:
            town.cut_off(1)
            await town.until(lambda: bool(town.nodes[1].row.missing))
            given = elsewhere._receipt_of(await row.produce("t", b"one", wait="accepted"))
            numbers: list[int | None] = []

            async def wait() -> None:
                numbers.append((await given.ordered()).number)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(0.1)
                (staged,) = town.bridges[1].staging.bundles.values()
                bridge, node = town.bridges[2], town.nodes[2]

                def full(_commands: object) -> None:
                    raise NoQuorum("too many commands wait")

                setattr(bridge, "submit", full)  # noqa: B010
                node.row.submit(staged.commands)
                await trio.sleep(0.1)
                delattr(bridge, "submit")
                town.world.net.heal()
            assert numbers == [1]

    townkit.run(use)
