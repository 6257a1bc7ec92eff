"""A node and its bridge end: neither waits for what the other cannot give any more, and what fails is an end."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from duckrow.bridge import attach
from duckrow.bridge.options import BridgeOptions
from duckrow.bridge.timing import Timing
from duckrow.node import makers
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.bridgedstore import BridgedStore
from duckrow.node.effects import Code
from duckrow.node.errors import Disconnected, DiskFailed
from sim import pairkit
from sim.clusterkit import BODY, options_of
from sim.nodekit import Owner, keep_no_places
from sim.pairkit import Split, play


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


async def catching_up_in_vain(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 1 catches up, and its bridge has ended before it said where an older body lies."""
    place_of = BridgedStore.place_of

    async def ask_in_vain(store: BridgedStore, position: int) -> int:
        monkeypatch.undo()
        split.kill("m", 1)
        return await place_of(store, position)

    keep_no_places(monkeypatch)
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


@pytest.mark.parametrize("slower", [1, 50])
def test_a_bridge_that_has_nothing_to_do_is_not_taken_for_one_that_stands_still(
    monkeypatch: pytest.MonkeyPatch, slower: int
) -> None:
    """However seldom it beats."""

    def slow(*args: Any, **more: Any) -> BridgeOptions:
        return attrs.evolve(options_of(*args, **more), timing=Timing().scaled(slower))

    monkeypatch.setattr(pairkit, "options_of", slow)

    async def script(split: Split) -> None:
        split.start_bridge(1)
        split.start_node(1)
        await trio.sleep(60)

    assert not any("bridge_" in note for note in play(1, script).notes)


def test_one_that_stands_still_is_hung_up_on_once() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        goes_on = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(split.bridges[1].between, goes_on.wait)
            await trio.sleep(20)
            goes_on.set()
        await split.until()
        await split.end()

    notes = play(1, script).notes
    assert sum("n1 bridge_silent" in note for note in notes) == 1
