"""S0, a ring-buffer topic store with a text protocol over pipes: what of it duckrow does today.

Each test is named after its row in docs/reference/seeds.md, which also says what is still to come.
What it archives is in `test_s0_archive.py`, who uses it in `test_s0_clients.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import trio

import duckrow as library
from core.rowkit import Row
from duckrow.node.apply import apply
from duckrow.node.capture import state_hash
from duckrow.node.effects import Reason
from duckrow.node.entries import Entries
from duckrow.node.errors import Full, Refused
from duckrow.node.state import State
from seeds.kit import SECOND, Node, Turns, alone
from sim.alone import EPOCH_US, Machine


def test_s0_15_a_topic_of_three_keeps_its_newest_three() -> None:
    async def main(node: Node) -> None:
        await node.topic("ring", max_entries=3)
        await node.topic("all", max_entries=0)  # as if it were not said
        for value in (b"a", b"b", b"c", b"d", b"e"):
            await node.produce("ring", value)
            await node.produce("all", value)

        assert await node.values("ring") == [b"c", b"d", b"e"]
        assert await node.values("all") == [b"a", b"b", b"c", b"d", b"e"]

    alone(Machine(), main)


def test_s0_15_there_are_at_most_so_many_topics() -> None:
    """The quota is the setting `topics_max`, the same on every node."""

    async def main(node: Node) -> None:
        await node.settings(topics_max=2)
        await node.produce("one", b"-")
        await node.produce("two", b"-")

        with pytest.raises(Refused, match="topics"):
            await node.produce("three", b"-")
        assert (await node.topic("three")).reason == Reason.TOO_MANY_TOPICS
        await node.produce("two", b"-")
        await node.delete("one")
        await node.produce("three", b"-")

    alone(Machine(), main)


def test_s0_17_first_is_the_oldest_and_last_the_newest_and_first_beyond_last_is_empty() -> None:
    """Both `State.partition` and every pull (`spans`) tell them; commands that print them come."""

    async def main(node: Node) -> None:
        await node.topic("t")
        told = [node.bounds("t")]

        async def look(_result: object) -> None:
            assert (await node.pull("t")).spans == {0: node.bounds("t")}
            told.append(node.bounds("t"))

        await look(await node.produce("t", b"a", b"b", b"c"))
        await look(await node.prune("t", 2))
        await look(await node.prune("t", 3))
        await look(await node.produce("t", b"d"))

        assert told == [(1, 0), (1, 3), (3, 3), (4, 3), (4, 4)]

    alone(Machine(), main)


def test_s0_18_a_number_is_given_when_the_order_is_decided_not_when_the_entry_arrives() -> None:
    async def main(node: Node) -> None:
        await node.topic("t", max_entries=2, when_full="block")
        await node.produce("t", b"1", b"2")
        numbers: list[int] = []

        async def early() -> None:
            result = await node.producer().produce("t", [b"waited"])
            assert result.position > arrived
            numbers.append(result.first)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(early)
            await trio.sleep(1)
            arrived = node.keeper.state.position
            assert node.bounds("t") == (1, 2)
            await node.configure("t", when_full="reject")
            with pytest.raises(Full):
                await node.produce("t", b"refused, and no number is lost")
            await node.prune("t", 1)

        assert numbers == [3]
        assert await node.numbers("t") == [2, 3]

    alone(Machine(), main)


def test_s0_18_numbers_count_up_from_one_and_times_never_go_back() -> None:
    """The stamp is the accepting node's; an hour back on its clock does not show in the row."""
    machine = Machine()

    async def main(node: Node) -> None:
        for skew in (0, 0, -3600 * SECOND, -3600 * SECOND, 0):
            machine.skew_us = skew
            await node.produce("t", b"x", b"y")
            await trio.sleep(1)
        found = await node.entries("t")

        assert [entry.number for entry in found] == list(range(1, 11))
        seconds = [(entry.time - EPOCH_US) / SECOND for entry in found]
        assert seconds == [0, 0, 1, 1, 1, 1, 1, 1, 4, 4]

    alone(machine, main)


def getentry(found: Entries, lastentry: int) -> tuple[int, bytes | None]:
    """The integers of the ring-buffer store, from what a pull with limit=1 brings.

    1 and the next entry; or the number of a newer one and that; or minus the last number there was.
    Caught up is the same as empty; where nothing was ever written, that is 0.
    """
    if not found:
        return -found.last, None
    return (found[0].number if found.missing else 1), found[0].value


def test_s0_19_a_pull_tells_the_next_entry_from_a_newer_one_and_from_none() -> None:
    """An entry; a gap (`missing`, and `first` is where it ends); nothing (and `last` says why)."""

    async def main(node: Node) -> None:
        await node.topic("t")
        for number in range(1, 9):
            await node.produce("t", b"%d" % number)
        await node.prune("t", 5)

        async def ask(lastentry: int) -> tuple[int, bytes | None]:
            return getentry(await node.entries("t", lastentry, limit=1), lastentry)

        assert await ask(6) == (1, b"7")
        assert await ask(2) == (6, b"6")
        assert await ask(8) == (-8, None)
        gap = await node.entries("t", 2, limit=1)
        assert (gap.missing, gap[0].number, gap.first, gap.last) == (3, 6, 6, 8)
        none = await node.entries("t", 8, limit=1)
        assert (none.missing, list(none), none.first, none.last) == (0, [], 6, 8)
        await node.prune("t", 8)
        assert await ask(8) == (-8, None)
        assert await ask(2) == (-8, None)

    alone(Machine(), main)


def test_s0_20_one_entry_is_not_entry_one_and_nothing_ever_is_not_nothing_now() -> None:
    """Where the integers of the ring-buffer store mean two things, a pull says which."""

    async def main(node: Node) -> None:
        await node.topic("t")
        never = await node.entries("t")
        await node.produce("t", b"first")
        entry_one = await node.entries("t", 0, limit=1)
        await node.produce("t", b"second")
        the_next = await node.entries("t", 1, limit=1)
        caught_up = await node.entries("t", 2)
        await node.prune("t", 2)
        empty = await node.entries("t", 2)
        nobody = await node.pull("nobody")

        assert getentry(entry_one, 0)[0] == getentry(the_next, 1)[0] == 1
        assert (entry_one[0].number, the_next[0].number) == (1, 2)
        assert getentry(caught_up, 2)[0] == getentry(empty, 2)[0] == -2
        assert (caught_up.first, caught_up.last) == (1, 2)
        assert (empty.first, empty.last) == (3, 2)
        assert getentry(never, 0)[0] == 0
        assert (never.first, never.last) == (1, 0)
        assert (nobody.topic_id, nobody.spans) == (0, {})

    alone(Machine(), main)


def test_s0_21_an_entry_that_is_older_than_max_age_goes() -> None:
    """To the microsecond, and although nobody produces, reads or asks."""

    async def main(node: Node) -> None:
        await node.topic("t", max_age=10 * SECOND)
        await node.produce("t", b"old")
        await trio.sleep(4)
        await node.produce("t", b"young")

        await trio.sleep(5.999)
        assert await node.values("t") == [b"old", b"young"]
        await trio.sleep(0.002)
        assert await node.values("t") == [b"young"]
        await trio.sleep(4)
        assert node.bounds("t") == (3, 2)

    alone(Machine(), main)


def test_s0_22_pruning_is_decided_in_the_row_so_that_every_node_has_the_same_first() -> None:
    """Somebody else applies the same row years later, and comes to the same `first` at each item."""

    async def main(node: Node) -> None:
        seen: dict[int, tuple[int, int]] = {}
        await node.topic("t", max_age=10 * SECOND, max_entries=7)

        def note(_item: object) -> None:
            seen[node.keeper.state.position] = node.bounds("t")

        node.keeper.on_progress = note
        for number in range(30):
            await node.produce("t", b"%d" % number)
            await trio.sleep(number % 5)
        await trio.sleep(60)
        assert len({first for first, _ in seen.values()}) > 15

        other = State()
        for item in await node.keeper.row.store.read_items(1, 1 << 30):
            apply(other, item)
            topic = other.topic("t")
            if other.position in seen:
                assert topic is not None
                assert other.partition(topic.id, 0)[:2] == seen[other.position]
        assert state_hash(other) == state_hash(node.keeper.state)

    alone(Machine(), main)


def test_s0_22_one_task_prunes_all_topics() -> None:
    async def main(node: Node) -> None:
        tasks = []
        for number in range(50):
            await node.topic(f"t{number}", max_age=(number + 1) * SECOND)
            await node.produce(f"t{number}", b"-")
            tasks.append(trio.lowlevel.current_statistics().tasks_living)
        assert min(tasks) == max(tasks)

        await trio.sleep(51)
        assert [node.bounds(f"t{number}") for number in range(50)] == [(2, 1)] * 50

    alone(Machine(), main)


def calls_of(step: Callable[[], Any]) -> int:
    """How many functions are called while it runs: a cost that is the same on every machine."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


def test_s0_23_a_pruning_pass_costs_what_it_prunes_not_what_there_is() -> None:
    """Nothing has to be set: a pass comes when something is due, and looks at that alone."""

    def cost(entries: int, topics: int, pruned: int) -> int:
        row = Row()
        for number in range(topics):
            row.create(f"other{number}", max_age=10**15)
            row.produce(f"other{number}")
        row.create("t", max_age=2000 * SECOND)
        for number in range(entries):
            row.produce("t")
            row.tick(1000 if number < pruned else 0.001)
        assert row.bounds("t") == (1, entries)
        row.time += 1000 * SECOND  # the next item finds so many too old
        calls = calls_of(lambda: row.item())
        assert row.bounds("t") == (pruned + 1, entries)
        return calls

    assert cost(5_000, 0, 1) <= cost(50, 0, 1) + 20
    assert cost(50, 2_000, 1) <= cost(50, 0, 1) + 20


def test_s0_23_old_entries_go_by_themselves_and_until_then_only_the_clock_is_looked_at() -> None:
    async def main(node: Node) -> None:
        turns = Turns()
        await node.topic("t", max_age=3600 * SECOND)
        for _ in range(10):
            await node.produce("t", b"-")
            await trio.sleep(60)
        trio.lowlevel.add_instrument(turns)
        await trio.sleep(2000)
        assert turns.count <= 2001  # once a second, for a clock may be set; and this one's
        await trio.sleep(1000 + 0.5)
        assert node.bounds("t") == (2, 10)
        await trio.sleep(240)
        assert node.bounds("t") == (6, 10)

    alone(Machine(), main)


def test_s0_16_an_entry_has_a_number_a_time_its_producer_and_a_value_of_bounded_size() -> None:
    with library.Node() as node:
        row = node.client
        receipt = row.produce("t", b"value", key=b"key", headers={"name": b"1"})
        row.produce("t", bytes(1 << 20))
        with pytest.raises(Refused, match="1,048,577, and the limit is 1,048,576"):
            row.produce("t", bytes((1 << 20) + 1))
        first, second = row.pull("t", max_bytes=1 << 22)

    assert (first.topic, first.partition, first.number) == ("t", 0, 1)
    assert (first.key, first.value, dict(first.headers)) == (b"key", b"value", {"name": b"1"})
    assert (first.time, second.number) == (receipt.time, 2)
    assert first.producer == second.producer
    assert second.time >= first.time
