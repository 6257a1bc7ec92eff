"""S1, a distributed queue over HTTP with a database: what of it duckrow does today.

Each test is named after its row in docs/reference/seeds.md, which also says what is still to come.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from duckrow.node.entries import entries_of
from duckrow.node.errors import Damaged
from seeds.kit import Node, alone, dying
from seeds.shell import shell
from seeds.shop import shop, visit
from sim.alone import Machine


def kept(level: str, seed: int, *, rest: float = 0.0) -> int:
    """How many of 10 answered entries are there when the power failed `rest` seconds later."""
    machine = Machine(seed)
    machine.media.sync_latency = 0.005

    async def fill(node: Node) -> None:
        for number in range(10):
            await node.produce("t", b"%d" % number)
        await trio.sleep(rest)

    dying(machine, fill, level=level)
    machine.media.power_loss()

    async def look(node: Node) -> int:
        found = await node.values("t")
        assert found == [b"%d" % number for number in range(len(found))]
        return len(found)

    return alone(machine, look, level=level)


def test_s1_1_at_level_fsync_nothing_that_was_answered_is_lost() -> None:
    assert [kept("fsync", seed) for seed in range(20)] == [10] * 20


def test_s1_1_at_level_write_the_last_fifty_milliseconds_may_be_lost_and_no_more() -> None:
    assert min(kept("write", seed) for seed in range(20)) < 10
    assert [kept("write", seed, rest=0.056) for seed in range(20)] == [10] * 20


def test_s1_1_at_level_memory_nothing_is_written_for_its_own_sake() -> None:
    assert min(kept("memory", seed, rest=60) for seed in range(20)) < 10


def test_s1_1_fsync_is_the_default_and_shared_by_all_who_wait_for_it() -> None:
    machine = Machine()
    machine.media.sync_latency = 0.005

    async def main(node: Node) -> None:
        before, began = machine.media.counts["sync"], trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(node.producer().produce, "t", [b"-"])

        assert machine.media.counts["sync"] - before <= 2
        assert trio.current_time() - began == pytest.approx(0.005, abs=0.006)

    alone(machine, main)


@pytest.mark.parametrize("level", ["write", "memory"])
def test_s1_1_the_lower_levels_wait_for_no_disk_and_outlive_the_process(level: str) -> None:
    machine = Machine()
    machine.media.sync_latency = 1.0

    async def fill(node: Node) -> None:
        began = trio.current_time()
        for number in range(10):
            await node.produce("t", b"%d" % number)
        assert trio.current_time() == began

    dying(machine, fill, level=level)

    async def look(node: Node) -> None:
        assert len(await node.values("t")) == 10

    alone(machine, look, level=level)


def test_s1_2_a_position_in_the_queue_is_the_number_less_the_bias() -> None:
    """Numbers are absolute; `bias` is `first - 1`, and nothing that stays is renumbered."""

    async def main(node: Node) -> None:
        await node.topic("t", max_entries=5)
        for number in range(1, 13):
            await node.produce("t", b"%d" % number)
            bias = node.bounds("t")[0] - 1
            queue = await node.entries("t")
            assert bias == max(0, number - 5)
            assert [entry.number - bias for entry in queue] == list(range(1, len(queue) + 1))
            assert [int(entry.value) for entry in queue] == [entry.number for entry in queue]

    alone(Machine(), main)


def test_s1_25_what_was_answered_survives_a_kill_of_the_process(tmp_path: Path) -> None:
    with shop(tmp_path / "data", "t", 1) as answer:
        answered = [answer() for _ in range(50)]

    found = visit(tmp_path / "data", "t")
    assert found[:50] == answered == [(number, number) for number in range(1, 51)]
    assert found == [(number, number) for number in range(1, len(found) + 1)]


def test_s1_25_a_record_whose_bytes_changed_is_noticed_and_the_others_are_served() -> None:
    machine = Machine()

    async def fill(node: Node) -> None:
        for number in range(1, 21):
            await node.produce("t", b"value %d." % number)

    alone(machine, fill)
    (segment,) = (path for path in machine.media.paths() if path.endswith(".seg"))
    machine.media.flip(segment, machine.media.content(segment).index(b"value 7."))

    async def look(node: Node) -> None:
        before = await node.pull("t")
        with pytest.raises(Damaged) as damage:
            await node.pull("t", before.after)

        assert [entry.number for entry in entries_of("t", before)] == list(range(1, 7))
        assert (damage.value.first, damage.value.last) == (7, 7)
        assert await node.numbers("t", 7) == list(range(8, 21))

    alone(machine, look)


def test_s1_27_one_producer_one_consumer_one_topic_and_the_message_is_the_same() -> None:
    """The second system test of the queue, on duckrow's own verbs."""

    async def main(node: Node) -> None:
        received: list[bytes] = []

        async def consume() -> None:
            received.extend(await node.values("DS", wait=60))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await trio.sleep(1)
            await node.produce("DS", "a message, ünd a snowman ☃".encode())

        assert [value.decode() for value in received] == ["a message, ünd a snowman ☃"]

    alone(Machine(), main)


def test_s1_14_the_topics_are_listed_with_what_they_hold() -> None:
    with shell() as sh:
        sh("topic new orders --partitions 2")
        sh("produce news one two")
        rows = sh.rows("topic ls")

    assert [(row["topic"], row["partitions"], row["entries"]) for row in rows] == (
        [("news", 1, 2), ("orders", 2, 0)]
    )
