"""What has to wait where the order cannot be known: barriers, and the sight of what is only accepted; and
what waits for links that are slow.
"""

from __future__ import annotations

import pytest
import trio

from duckrow.bridge import links, pace
from duckrow.node import columns, keeper, makers
from duckrow.node.effects import Code, Result
from duckrow.node.errors import NoQuorum, Refused, Timeout
from duckrow.node.limits import KIB, MIB

from .clusterkit import Cluster, chain
from .townkit import IDS, Town, number_of, run, values
from .world import World


def test_a_barrier_at_a_machine_that_is_cut_off_is_not_answered_there() -> None:
    """It would say that nothing newer exists, and the others go on."""

    async def use(town: Town) -> None:
        async with town.client(1, timeout=3.0) as cut_off, town.client(2) as other:
            await other.produce("t", b"one")
            town.cut_off(1)
            await other.produce("t", b"two")
            with pytest.raises((NoQuorum, Timeout)):
                await cut_off.barrier()
            assert await values(cut_off) == [b"one"], "old, and said to be so by the barrier"
            town.world.net.heal()
            await cut_off.barrier(timeout=20.0)
            assert await values(cut_off) == [b"one", b"two"]

    run(use)


def test_a_barrier_that_is_under_way_when_its_machine_is_cut_off_waits_for_the_order() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, timeout=30.0) as cut_off, town.client(2) as other:
            await other.produce("t", b"one")
            answered: list[bytes] = []

            async def wait() -> None:
                await cut_off.barrier()
                answered.extend(await values(cut_off))

            async with trio.open_nursery() as nursery:
                town.cut_off(1)  # it does not know that yet
                nursery.start_soon(wait)
                await other.produce("t", b"two")
                assert not answered
                town.world.net.heal()
            assert answered == [b"one", b"two"]

    run(use)


def test_nobody_sees_what_is_accepted_and_has_no_number() -> None:
    async def use(town: Town) -> None:
        async with town.client(1) as cut_off, town.client(2) as other:
            await other.produce("t", b"one")
            await cut_off.barrier()
            town.cut_off(1)
            await town.until(lambda: bool(town.nodes[1].row.status().missing))
            receipt = await cut_off.produce("t", b"accepted", wait="accepted")
            for row in (cut_off, other):
                assert await values(row) == [b"one"]
                assert (await row.topic("t")).partitions[0].last == 1
            assert not await cut_off.pull("t", 1, wait=0.5)
            town.world.net.heal()
            assert await number_of(cut_off, receipt) == 2

    run(use)


def test_what_waits_here_and_was_ordered_elsewhere_is_answered_with_that_number() -> None:
    """The same batch of a producer at two machines: one of them orders it, both tell its number."""

    async def use(town: Town) -> None:
        turn, body = makers.Turn(bytes(16), 1), columns.encode_one(b"v")
        told: list[Result | Exception] = []
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        here, there = town.nodes[1], town.nodes[2]
        here.calls.tell(here.submit(makers.produce(turn, "t", body, 1)), told.append)
        async with town.client(2) as other:
            await other.produce("t", b"before")  # so that its number is not that of a lone entry
        elsewhere: list[Result | Exception] = []
        there.calls.tell(there.submit(makers.produce(turn, "t", body, 1)), elsewhere.append)
        await town.until(lambda: bool(elsewhere))
        town.world.net.heal()
        await town.until(lambda: bool(told))
        for (result,) in (told, elsewhere):
            assert isinstance(result, Result)
            assert (result.code, result.first) == (Code.ORDERED, 2)
        async with town.client(3) as third:
            await third.barrier()
            assert await values(third) == [b"before", b"v"]

    run(use)


def test_where_readers_make_topics_a_pull_at_a_machine_that_is_cut_off_finds_none() -> None:
    """It had waited for a topic that nobody could make there, and each pull left one more wish on the disk."""

    async def use(town: Town) -> None:
        settings = makers.settings(makers.Turn(bytes(16), 1), {"create": "on-subscribe"})
        await town.nodes[1].order(settings)
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        async with town.client(1, timeout=3.0) as row:
            for _ in range(3):
                assert not await row.pull("t")
            assert len(town.bridges[1].staging.bundles) == 1
            with pytest.raises(Refused, match="topic"):
                await row.pull("no topic")
            town.world.net.heal()
            await town.until_all_act()
            assert "t" in await row.topics(), "who follows it need not ask again"

    run(use)


def test_at_a_machine_that_is_cut_off_readers_wish_for_a_bounded_number_of_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, "WISHES_MAX", 2)

    async def use(town: Town) -> None:
        settings = makers.settings(makers.Turn(bytes(16), 1), {"create": "on-subscribe"})
        await town.nodes[1].order(settings)
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        async with town.client(1, timeout=3.0) as row:
            for count in range(4):
                assert not await row.pull(f"t{count}")
        assert len(town.bridges[1].staging.bundles) == 2

    run(use)


def test_what_gathers_before_slow_links_is_ordered_at_their_pace() -> None:
    """Each view ended before all of it was across, and the next one began anew (seed 793144)."""

    async def use(town: Town) -> None:
        net = town.world.net
        net.window = 4096
        for one in IDS:
            for other in IDS:
                net.link(f"m{one}", f"m{other}").delay = 0.05
            town.bridges[one].links.hang_up(1 + one % 3, "the next connection has small windows")

        async def produce(id_: int, topic: str) -> None:
            async with town.client(id_, timeout=60.0) as row:
                for _ in range(3):
                    await row.produce(topic, bytes(20_000))

        with trio.fail_after(45):  # links that carry 40 KB/s have 0.6 MB to carry, twice
            async with trio.open_nursery() as nursery:
                for count in range(30):
                    nursery.start_soon(produce, 1 + count % 3, f"t{count}")

    run(use)


def test_all_that_one_half_of_a_chain_has_under_way_goes_over_the_link_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F10: It was more than one link may keep waiting, which was therefore hung up on, and had as much to
    carry when it was there again, for ever.
    """
    monkeypatch.setattr(links, "OUTPUT_BYTES_MAX", 2 * MIB)
    monkeypatch.setattr(pace, "ORIGIN_BYTES_MAX", 1 * MIB)
    world = World(1)
    cluster = Cluster(world, chain(6), level="write", pause=100)
    body = columns.encode([bytes(60 * KIB)])

    async def main(world: World) -> None:
        cluster.start_all()
        await cluster.until_active()
        world.net.partition(["m3"], ["m4"])
        for id_, machine in cluster.machines.items():
            for seq in range(1, 31):
                turn = makers.Turn(bytes([id_]) * 16, seq, time=1)
                machine.bridge.submit([makers.produce(turn, f"t{id_}", body, 1)])
        await trio.sleep(0.3)
        world.net.heal()
        await cluster.settled(10)

    world.run(main)
    assert not [note for note in cluster.notes if "link_too_slow" in note]
    assert all(machine.position > 6 for machine in cluster.machines.values())
