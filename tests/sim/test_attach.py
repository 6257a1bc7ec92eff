"""A node and its bridge are two processes: either dies and comes back, and nothing is lost or doubled."""

from __future__ import annotations

import random

import pytest
import trio

from duckrow.node import bridgewire as wire
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.bridgewire import Said
from duckrow.node.env import Env
from sim.pairkit import NODE_PORT, Split, play


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


@pytest.mark.parametrize("level", ["fsync", "write"])
def test_whatever_dies_nothing_is_lost_or_doubled(level: str) -> None:
    weather(50, level)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", ["fsync", "write"])
def test_whatever_dies_however_often_nothing_is_lost_or_doubled(level: str) -> None:
    for seed in range(60, 100):
        weather(seed, level, 40)


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


def test_a_node_without_a_row_yet_begins_anew_whose_bridge_has_another_store() -> None:
    """No place of an item would tell it, and its files would carry the name of the store that is gone."""

    async def script(split: Split) -> None:
        split.producing = False
        split.start_all()
        await split.until()
        split.kill("m", 1)
        split.lose_disk("m1")
        split.start_bridge(1)
        await trio.sleep(1)
        assert split.replaced == [1]
        split.producing = True
        await split.until()
        await split.end()

    play(7, script)
