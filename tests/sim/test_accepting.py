"""What a node says of commands that it has, and that have no place in the row yet (N2, N3)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio

from duckrow.bridge import attach, follower, links, staging
from duckrow.bridge.founding import Listed
from duckrow.bridge.process import Bridge
from duckrow.node import columns, makers, output
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.effects import Code, Result
from duckrow.node.env import Env
from duckrow.node.errors import NoQuorum
from duckrow.node.limits import KIB, MIB
from duckrow.node.trioclient import Client
from sim import townkit
from sim.clusterkit import BODY, mesh, options_of
from sim.pairkit import Split, play
from sim.townkit import Town
from sim.world import World

PID = b"p" * 16


def accept(split: Split, seq: int, told: list[object]) -> None:
    """Somebody orders the batch with that seq at node 1, and `accepted` is enough for him."""
    node = split.nodes[1]
    turn = makers.Turn(PID, seq=seq)
    key = node.submit(makers.produce(turn, "rides", BODY, 3), accepted=True)
    node.calls.tell(key, told.append, accepted=True)


def cut_off(split: Split) -> None:
    """Machine 1 from the others."""
    split.world.net.partition(["m1"], ["m2", "m3"])


async def begin_alone(split: Split) -> None:
    """All have begun, and machine 1 has noticed by now that it is cut off."""
    split.start_all()
    await split.until()
    split.producing = False
    cut_off(split)
    await trio.sleep(3)


def break_connection(split: Split) -> None:
    """Of node 1 with its bridge."""
    for stream in list(split.world.net._streams):
        if {stream.host.name, stream.peer.host.name} == {"m1", "n1"}:
            stream.break_off()


def last(split: Split, topic: str = "rides") -> int:
    lane = split.nodes[2].state.lanes.rows.get((PID, topic, 0))
    return 0 if lane is None else lane.last


@pytest.mark.parametrize("dies", ["", "mn"])
def test_what_came_before_what_has_to_come_first_is_accepted_when_it_came_once_more_behind_it(
    dies: Sequence[str],
) -> None:
    """N3: it is on the disk already, in a place where it is refused (D3)."""

    async def script(split: Split) -> None:
        await begin_alone(split)
        early: list[object] = []
        accept(split, 2, early)
        await trio.sleep(0.5)
        assert early == [], "nothing says yet that 1 will come"
        first: list[object] = []
        accept(split, 1, first)
        await trio.sleep(0.5)
        assert first == [Result(Code.WAITING)]
        again: list[object] = []
        accept(split, 2, again)
        await trio.sleep(0.5)
        assert again == [Result(Code.WAITING)]
        for what in dies:
            split.kill(what, 1, power=True)
        if dies:
            split.start_bridge(1)
            split.start_node(1)
        split.world.net.heal()
        await split.until()
        await split.end()
        assert last(split) == 2

    play(21, script)


def test_only_what_is_durable_is_told_to_be_staged_to_a_node_that_comes_again() -> None:
    """N3: its connection broke while the disk was slow."""

    async def script(split: Split) -> None:
        await begin_alone(split)
        split.world.host("m1").media.sync_latency = 1.0
        told: list[object] = []
        accept(split, 1, told)
        await trio.sleep(0.1)
        assert split.bridges[1].staging.bundles, "written, and not durable"
        break_connection(split)
        await trio.sleep(0.5)
        row = split.nodes[1].row
        assert isinstance(row, BridgedRow)
        assert row.is_attached
        assert told == []
        await trio.sleep(3)
        assert told == [Result(Code.WAITING)]

    play(22, script)


def test_what_is_durable_is_told_to_be_staged_also_while_a_copy_of_it_is_not() -> None:
    """N3: the node submitted it once more, and was started again before that copy was durable."""

    async def script(split: Split) -> None:
        await begin_alone(split)
        told: list[object] = []
        accept(split, 1, told)
        await trio.sleep(0.1)
        assert told == [Result(Code.WAITING)]
        split.world.host("m1").media.sync_latency = 1.0
        break_connection(split)
        with trio.fail_after(3):
            while len(split.bridges[1].staging.bundles) < 2:
                await trio.sleep(0.02)
        split.kill("n", 1)
        split.start_node(1)
        await trio.sleep(5)
        now: list[object] = []
        accept(split, 2, now)
        await trio.sleep(3)
        assert now == [Result(Code.WAITING)], "it knows that 1 is on this disk"

    play(27, script)


def test_who_ordered_while_the_bridge_of_a_machine_that_is_cut_off_was_away_is_told_to_look_elsewhere() -> (
    None
):
    async def script(split: Split) -> None:
        await begin_alone(split)
        node = split.nodes[1]
        assert node.row.missing
        calls: list[object] = []
        split.kill("m", 1)
        await trio.sleep(0.2)
        assert not node.row.missing, "it is started again soon"
        node.on_missing = lambda: calls.append(node.row.missing)
        split.start_bridge(1)
        await trio.sleep(3)
        assert node.row.missing
        assert calls

    play(23, script)


def test_who_waits_for_accepted_in_vain_is_told_so_when_the_majority_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first batch was refused, so the second has no place here; nor can its order be known (N3)."""

    async def use(town: Town) -> None:
        submit = BridgedRow.submit

        def refuse(*_: object, **__: object) -> None:
            monkeypatch.setattr(BridgedRow, "submit", submit)
            raise NoQuorum("too much waits")

        async def produce(row: Client, value: bytes) -> None:
            receipt = await row.produce("t", value, id=value, wait="accepted")
            assert receipt.number is None

        town.cut_off(1)
        assert not town.nodes[1].row.missing, "it does not know that yet"
        monkeypatch.setattr(BridgedRow, "submit", refuse)
        async with town.client(1) as row:
            async with trio.open_nursery() as nursery:
                for value in (b"1", b"2"):
                    nursery.start_soon(produce, row, value)
            town.world.net.heal()
            await town.until_all_act()
            await row.barrier()
            assert sorted(await townkit.values(row)) == [b"1", b"2"]

    townkit.run(use)


def test_all_that_a_node_holds_goes_to_a_bridge_that_comes_back_however_much_it_is() -> None:
    """N2: it is more than a connection has in its queue."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)
        split.kill("m", 1)
        await trio.sleep(0.2)
        node, told = split.nodes[1], list[object]()
        body = bytes(1 * MIB)
        for seq in range(1, 31):
            key = node.submit(makers.produce(makers.Turn(PID, seq=seq), "large", body, 1))
            node.calls.tell(key, told.append)
        split.start_bridge(1)
        with trio.fail_after(20):
            while len(told) < 30:
                await trio.sleep(0.1)

    play(24, script)


def test_a_node_is_told_of_all_that_is_staged_however_much_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N3: it is more than a connection has in its queue, and the node was hung up on, each time."""
    monkeypatch.setattr(output, "OUTPUT_BYTES_MAX", 64 * KIB)
    for name in ("LIVE_BYTES_MAX", "PAST_BYTES"):
        monkeypatch.setattr(follower, name, 4 * KIB)
    monkeypatch.setattr(attach, "AHEAD_BYTES", 4 * KIB)

    async def script(split: Split) -> None:
        split.world.net.window = 4 * KIB
        await begin_alone(split)
        told: list[object] = []
        for seq in range(1, 2001):
            accept(split, seq, told)
            await trio.sleep(0.002)
        await trio.sleep(0.5)
        assert len(told) == 2000
        split.kill("n", 1)
        split.start_node(1)
        await trio.sleep(2)
        assert 1 in split.nodes
        now: list[object] = []
        accept(split, 2001, now)
        await trio.sleep(0.5)
        assert now == [Result(Code.WAITING)], "it knows that all before it are on this disk"
        split.world.net.heal()
        await split.until()
        await split.end()
        assert last(split) == 2001

    play(25, script)


def accept_large(split: Split, seq: int, told: list[object], size: int = 32 * KIB) -> None:
    node, turn = split.nodes[1], makers.Turn(PID, seq=seq)
    body = columns.encode([bytes(size)])
    key = node.submit(makers.produce(turn, "large", body, 1), accepted=True)
    node.calls.tell(key, told.append, accepted=True)


async def fill(split: Split, told: list[object]) -> None:
    """Machine 1 is cut off, and its disk runs full with the last of ten batches."""
    split.start_all()
    await split.until()
    split.producing = False
    cut_off(split)
    await trio.sleep(3)
    media = split.world.host("m1").media
    for seq in range(1, 11):
        accept_large(split, seq, told)
        await trio.sleep(0.1)
        if seq == 9:
            media.capacity = media.used + 1024
    assert told == 10 * [Result(Code.WAITING)]
    assert split.nodes[1].row.status().disk == "hard"


def test_what_a_node_holds_is_not_written_once_more_into_the_reserve_of_a_full_disk() -> None:
    """Its bridge, started again, would have ended of that, each time."""

    async def script(split: Split) -> None:
        await fill(split, [])
        for _ in range(3):
            split.kill("m", 1)
            split.start_bridge(1)
            await trio.sleep(2)
            assert split.world.host("m1").alive
        split.world.host("m1").media.capacity = 1 << 40
        split.world.net.heal()
        await split.until()
        await trio.sleep(1)
        assert last(split, "large") == 10

    play(26, script, keep=1000)


def test_what_was_accepted_stays_so_when_a_copy_of_it_is_refused() -> None:
    """N3: the disk was full, its bridge was started again, and what came next had no place for ever."""

    async def script(split: Split) -> None:
        told: list[object] = []
        await fill(split, told)
        split.kill("m", 1)
        split.start_bridge(1)
        await trio.sleep(2)
        assert len(told) == 10, "it will be ordered, so nothing else is said of it"
        split.world.host("m1").media.capacity = 1 << 40
        with trio.fail_after(20):
            while split.nodes[1].row.status().disk != "ok":
                await trio.sleep(0.1)
        now: list[object] = []
        accept_large(split, 11, now)
        await trio.sleep(1)
        assert now == [Result(Code.WAITING)]
        split.world.net.heal()
        await split.until()
        await trio.sleep(1)
        assert last(split, "large") == 11

    play(28, script, keep=1000)


def test_what_is_staged_in_front_of_what_has_to_come_first_is_not_told_to_a_node_that_comes_again() -> (
    None
):
    """N3: it went once more while the bridge was away, and that copy is not on the disk yet."""

    async def script(split: Split) -> None:
        await begin_alone(split)
        for seq in (2, 1):
            accept(split, seq, [])
            await trio.sleep(0.5)
        split.kill("m", 1)
        await trio.sleep(0.2)
        again: list[object] = []
        accept(split, 2, again)
        split.world.host("m1").media.sync_latency = 1.0
        split.start_bridge(1)
        with trio.fail_after(10):
            while not again:
                await trio.sleep(0.01)
        assert again == [Result(Code.WAITING)]
        for what in "mn":
            split.kill(what, 1, power=True)
        split.world.host("m1").media.sync_latency = 0.001
        split.start_bridge(1)
        split.start_node(1)
        split.world.net.heal()
        await split.until()
        await split.end()
        assert last(split) == 2

    play(29, script)


def test_what_a_retired_machine_accepted_comes_over_a_slow_link_and_does_not_cost_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R3: it was said again while it was on its way, until the link was cut, each time."""
    monkeypatch.setattr(links, "OUTPUT_BYTES_MAX", 1 * MIB)

    async def script(split: Split) -> None:
        await begin_alone(split)
        told: list[object] = []
        accept_large(split, 1, told, size=800 * KIB)
        await trio.sleep(0.5)
        assert told == [Result(Code.WAITING)]
        await split.nodes[2].row.administer({"what": "retire", "node": "m1"})
        net = split.world.net
        net.window = 4 * KIB
        for other in (2, 3):
            net.link("m1", f"m{other}").delay = net.link(f"m{other}", "m1").delay = 0.05
        net.heal()
        with trio.fail_after(30):  # it carries 40 KB/s
            while last(split, "large") < 1:
                await trio.sleep(0.1)
        assert not any("link_too_slow" in note for note in split.notes)

    play(30, script)


def test_a_machine_that_is_to_be_a_witness_accepts_nothing_before_it_knows_a_view() -> None:
    """N3: it had staged that durably, and neither orders anything later nor hands it on."""
    done = trio.Event()

    async def machine(env: Env) -> None:
        options = options_of(env, mesh(3), 3, "fsync")
        listed = {3: Listed("m3", 1, witness=True)}
        bridge = await Bridge.open(env, attrs.evolve(options, listed=listed))
        with pytest.raises(NoQuorum, match="m3 is to be a witness"):
            bridge.submit([makers.produce(makers.Turn(PID, seq=1), "rides", BODY, 3)])
        bridge.abandon()
        done.set()

    async def main(world: World) -> None:
        world.start("m3", machine)
        await done.wait()

    World(1).run(main)


def test_a_member_without_a_node_takes_no_more_from_a_retired_one_than_it_may_have_staged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R3, N6: Nobody settles it there, and each new segment begins with the list of what is staged."""

    async def script(split: Split) -> None:
        await begin_alone(split)
        told: list[object] = []
        for seq in range(1, 11):
            accept_large(split, seq, told, size=200 * KIB)
            await trio.sleep(0.1)
        assert told == 10 * [Result(Code.WAITING)]
        monkeypatch.setattr(staging, "STAGES_MAX", 4)
        split.kill("n", 2)
        await split.nodes[3].row.administer({"what": "retire", "node": "m1"})
        split.world.net.heal()
        await trio.sleep(20)
        assert len(split.bridges[2].staging.bundles) == 5
        split.start_node(2)
        with trio.fail_after(60):
            while 2 not in split.nodes or last(split, "large") < 10:
                await trio.sleep(0.1)

    play(31, script)
