"""S4, a broker whose machines are chained over TCP: the chain."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio

from clikit import duckrow
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan
from duckrow.node import makers
from sim.alone import EPOCH_US
from sim.clusterkit import BODY
from sim.clusterkit import Cluster as Bridges
from sim.clusterkit import chain as three_in_a_row
from sim.world import World

# Machines that are chained.


@pytest.fixture(scope="module")
def chain() -> Iterator[LocalCluster]:
    """Four of them, each with a link to the next alone."""
    with LocalCluster.launch(Plan(nodes=4, topology="chain", durability="memory")) as cluster:
        yield cluster


def values_at_all(chain: LocalCluster, topic: str, count: int) -> list[list[bytes]]:
    """What a reader beside each machine sees, when there is as much as that."""
    found = []
    for machine in range(4):
        client = chain.client(machine)
        after = 0
        values: list[bytes] = []
        while len(values) < count:
            entries = client.pull(topic, after, wait=30)
            assert entries, "nothing came in time"
            assert [entry.number for entry in entries] == [
                *range(after + 1, after + 1 + len(entries))
            ]
            after, values = entries[-1].number, values + [entry.value for entry in entries]
        found.append(values)
    return found


def test_s4_11_what_is_produced_on_one_side_is_on_the_other_and_back(chain: LocalCluster) -> None:
    here, there = chain.client(0), chain.client(1)
    here.produce("both", "from here")
    there.produce("both", "from there")

    assert values_at_all(chain, "both", 2)[:2] == [[b"from here", b"from there"]] * 2


def test_s4_12_what_is_produced_at_one_end_of_a_chain_comes_out_at_the_other(
    chain: LocalCluster,
) -> None:
    chain.client(0).produce_many("far", [b"%d" % i for i in range(100)])
    chain.client(3).produce("far", b"and back")

    assert values_at_all(chain, "far", 101)[3] == [*(b"%d" % i for i in range(100)), b"and back"]
    assert values_at_all(chain, "far", 101)[0][-1] == b"and back"


def test_s4_14_all_machines_have_one_order_whoever_produces(chain: LocalCluster) -> None:
    def produce(machine: int) -> None:
        for turn in range(10):
            chain.client(machine).produce("one", b"%d of %d" % (turn, machine))

    with ThreadPoolExecutor() as together:
        for _ in together.map(produce, range(4)):
            pass

    found = values_at_all(chain, "one", 40)
    assert found == [found[0]] * 4
    assert len({*found[0]}) == 40


def test_s4_13_nothing_waits_for_a_timer_on_the_way_between_machines() -> None:
    """On a virtual clock, whose time goes on only where somebody waits for it: a round trip over links of
    10 ms takes as long as they do, and over links without a delay no time at all.
    """
    assert trips_over_links_of(0.010) == [pytest.approx(4 * 0.010, abs=0.0001)] * 10
    assert trips_over_links_of(0.0) == [pytest.approx(0.0, abs=0.0001)] * 10


def trips_over_links_of(seconds: float) -> list[float]:
    """There and back over a chain of three, at moments that no timer knows."""
    world, took = World(3), list[float]()

    async def main(world: World) -> None:
        cluster = Bridges(world, three_in_a_row(3), level="write")
        cluster.start_all()
        await cluster.until_active()
        await cluster.settled()
        world.net.split = 0.0
        for one, other in ((1, 2), (2, 1), (2, 3), (3, 2)):
            link = world.net.link(f"m{one}", f"m{other}")
            link.delay, link.jitter = seconds, 0.0
        await trio.sleep(1)

        async def way(one: int, other: int, seq: int) -> None:
            there = cluster.machines[other]
            expected = there.position + 1
            turn = makers.Turn(bytes([one]) * 16, seq, time=EPOCH_US)
            bridge = cluster.machines[one].bridge
            bridge.submit([makers.produce(turn, "rides", BODY, 3)])
            await bridge.turn()
            while there.position < expected:
                await trio.sleep(0.00001)

        for seq in range(1, 11):
            await trio.sleep(0.0137)
            began = trio.current_time()
            await way(1, 3, seq)
            await way(3, 1, seq)
            took.append(trio.current_time() - began)

    world.run(main)
    return took


def test_s4_21_a_round_trip_of_two_machines_is_measured_and_drawn(tmp_path: Path) -> None:
    plot = tmp_path / "trips.png"
    found = duckrow(f"rtt --nodes 2 --count 8 -o json --plot {plot}").document

    assert (found["nodes"], found["hops"], found["count"]) == (2, 1, 8)
    assert 0 < found["p50_ms"] <= found["p90_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert found["ratio"] == pytest.approx(found["p50_ms"] / found["relay_p50_ms"], rel=0.01)
    assert len(found["moving_average_ms"]) == 8
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("far", "hops"), [("m3", 2), ("m4", 3)])
def test_s4_22_a_round_trip_over_a_chain_of_three_and_more_is_measured(
    chain: LocalCluster, far: str, hops: int
) -> None:
    before = [*chain.client(0).topics()]
    found = duckrow(f"rtt --dir {chain.folder} --to {far} --count 5 -o json").document

    assert (found["nodes"], found["topology"], found["hops"]) == (4, "chain", hops)
    assert (found["durability"], found["count"]) == ("memory", 5)
    assert found["p50_ms"] > 0
    assert found["relay_p50_ms"] > 0
    assert [*chain.client(0).topics()] == before


def test_s4_23_the_lines_of_the_experiments_are_printed(chain: LocalCluster) -> None:
    done = duckrow(f"rtt --dir {chain.folder} --count 2 --legacy-output")

    said = [line.split(": ") for line in done.lines]
    assert [words for words, _ in said] == ["sec before", "sec after", "total time in seconds"] * 2
    before, after, total = (float(number) for _, number in said[:3])
    assert after - before == pytest.approx(total, abs=0.00001)
    assert total > 0
