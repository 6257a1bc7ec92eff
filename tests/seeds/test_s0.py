"""S0, a ring-buffer topic store with a text protocol over pipes: what of it duckrow does today.

Each test is named after its row in docs/reference/seeds.md, which also says what is still to come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import pytest
import trio

import duckrow as library
from core.rowkit import Row
from duckrow.node import archivetables
from duckrow.node.apply import apply
from duckrow.node.archivenames import Span
from duckrow.node.archiveplace import Place
from duckrow.node.capture import state_hash
from duckrow.node.cursors import LAST
from duckrow.node.effects import Code, Reason
from duckrow.node.entries import Entries, entries_of
from duckrow.node.errors import Full, Refused
from duckrow.node.requests import Ask, Verb
from duckrow.node.state import State
from duckrow.tools import archiver as archiver_module
from duckrow.tools.archiver import Archiver, StoppedError
from duckrow.tools.archivewriting import Writer
from real.archivekit import archived, archiver, names, node_with_archive, produce, rows
from real.daemonkit import Wire
from seeds.kit import SECOND, Node, Turns, alone
from seeds.shell import shell
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


def test_s0_24_many_who_write_and_read_one_topic_do_not_disturb_each_other() -> None:
    """No locks: one task decides the order."""
    machine = Machine(seed=24)
    machine.media.sync_latency, machine.media.sync_jitter = 0.001, 0.002

    async def main(node: Node) -> None:
        read: list[list[bytes]] = [[] for _ in range(3)]

        async def write(name: bytes) -> None:
            producer = node.producer()
            for number in range(20):
                await producer.produce("t", [b"%s%d" % (name, number)])

        async def follow(into: list[bytes]) -> None:
            while len(into) < 400:
                found = await node.entries("t", len(into), limit=7, wait=60)
                assert [entry.number for entry in found] == list(
                    range(len(into) + 1, len(into) + 1 + len(found))
                )
                into += [entry.value for entry in found]

        async with trio.open_nursery() as nursery:
            for each in read:
                nursery.start_soon(follow, each)
            for letter in b"abcdefghijklmnopqrst":
                nursery.start_soon(write, b"%c" % letter)

        assert read[0] == read[1] == read[2]
        for letter in b"abcdefghijklmnopqrst":
            mine = [value for value in read[0] if value[0] == letter]
            assert mine == [b"%c%d" % (letter, number) for number in range(20)]

    alone(machine, main)


def test_s0_25_a_full_topic_makes_its_publisher_wait() -> None:
    async def main(node: Node) -> None:
        await node.topic("t", max_entries=2, when_full="block")
        await node.produce("t", b"1", b"2")
        began = trio.current_time()

        async def make_room() -> None:
            await trio.sleep(7)
            await node.prune("t", 1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_room)
            assert (await node.produce("t", b"3")).first == 3

        assert trio.current_time() - began == 7
        assert await node.values("t") == [b"2", b"3"]

    alone(Machine(), main)


def test_s0_25_a_publisher_that_waits_may_give_up_and_its_entry_never_comes() -> None:
    async def main(node: Node) -> None:
        await node.topic("t", max_entries=2, when_full="block")
        await node.produce("t", b"1", b"2")

        with trio.move_on_after(5) as patience:
            await node.produce("t", b"too late")
        assert patience.cancelled_caught

        await node.prune("t", 1)
        assert (await node.produce("t", b"3")).first == 3
        assert await node.values("t") == [b"2", b"3"]

    alone(Machine(), main)


def test_s0_26_a_subscriber_without_a_next_entry_waits_and_costs_nothing() -> None:
    """Not one turn in an hour, by a hundred of them, nor by the node."""

    async def main(node: Node) -> None:
        await node.topic("t")
        got: list[tuple[float, list[bytes]]] = []

        async def subscribe() -> None:
            found = await node.values("t", wait=7200)
            got.append((trio.current_time(), found))

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(subscribe)
            await trio.sleep(1)
            turns = Turns()
            trio.lowlevel.add_instrument(turns)
            await trio.sleep(3599)
            assert turns.count == 1  # of the task that slept here
            await node.produce("t", b"news")

        assert got == [(3600, [b"news"])] * 100

    alone(Machine(), main, scrub_seconds=0)


def test_s0_27_subscribers_read_upwards_and_are_told_how_many_they_missed() -> None:
    """`missing` of each pull is what a metric will add up."""

    async def main(node: Node) -> None:
        await node.topic("t", max_age=5 * SECOND)
        numbers: list[int] = []
        missing = 0

        async def publish() -> None:
            for number in range(1, 101):
                await node.produce("t", b"%d" % number)
                await trio.sleep(0.5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            while not numbers or numbers[-1] < 100:
                after = numbers[-1] if numbers else 0
                pulled = await node.pull("t", after, limit=3, wait=60)
                found = entries_of("t", pulled)
                assert found[0].number == after + pulled.missing + 1
                missing += pulled.missing
                numbers += [entry.number for entry in found]
                await trio.sleep(4 if numbers[-1] < 90 else 0)

        assert numbers == sorted(set(numbers))
        assert missing > 10
        assert missing + len(numbers) == 100

    alone(Machine(), main)


def test_s0_28_what_is_pruned_is_archived_and_not_deleted(tmp_path: Path) -> None:
    """The complete history: what the archive has and what is live, each entry once."""
    with node_with_archive(archive=10, max_entries=25) as row:
        produce(row, 200)
        archived(archiver(row, tmp_path))
        live = [entry.number for entry in row.pull("t")]

        assert [each["offset"] for each in rows(tmp_path)] + live == [*range(1, 201)]
        assert [entry.number for entry in row.pull("t", archive=True)] == [*range(1, 201)]


def test_s0_29_one_buffer_fills_while_the_other_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write waits here until the next buffer is being filled, so one after the other would never end."""
    filling = [Event() for _ in range(9)]
    put, groups = Writer.put, archivetables.groups
    written = iter(range(9))

    def filled(batches: Any) -> Any:
        for group in groups(batches):
            filling[next(begun)].set()
            yield group

    def wait_and_put(writer: Writer, group: Any) -> Any:
        number = next(written)
        assert number == 8 or filling[number + 1].wait(60), "nobody fills a buffer meanwhile"
        return put(writer, group)

    begun = iter(range(9))
    monkeypatch.setattr(archiver_module, "groups", filled)
    monkeypatch.setattr(Writer, "put", wait_and_put)
    with node_with_archive(archive=1_000, max_entries=1_000) as row:
        produce(row, 10_000)
        assert archived(archiver(row, tmp_path)).files == 9
    assert len(rows(tmp_path)) == 9_000


def test_s0_30_who_fills_waits_for_who_writes_and_there_are_never_more_than_two_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archivetables, "GROUP_ROWS", 50)
    put, groups = Writer.put, archivetables.groups
    there, most = set[int](), 0

    def filled(batches: Any) -> Any:
        nonlocal most
        for group in groups(batches):
            there.add(group[0].first)
            most = max(most, len(there))
            yield group

    def written(writer: Writer, group: Any) -> Any:
        found = put(writer, group)
        there.discard(group[0].first)
        return found

    monkeypatch.setattr(archiver_module, "groups", filled)
    monkeypatch.setattr(Writer, "put", written)
    with node_with_archive(archive=1_000, max_entries=1_000) as row:
        produce(row, 5_000)
        archived(archiver(row, tmp_path))
    assert (len(rows(tmp_path)), most, there) == (4_000, 2, set())


def test_s0_31_each_topic_has_files_of_its_own(tmp_path: Path) -> None:
    with node_with_archive() as row:
        for topic in ("a", "b"):
            row.create_topic(topic, archive=10, max_entries=10)
            produce(row, 30, topic=topic)
        archived(archiver(row, tmp_path))
    assert names(tmp_path)[1:] == [
        f"topic={topic}/partition=0/{Span(first, first + 9).name}"
        for topic in ("a", "b")
        for first in (1, 11)
    ]
    assert [each["value"] for each in rows(tmp_path, "b")] == [b"%030d" % n for n in range(1, 21)]


def test_s0_32_a_buffer_that_is_part_filled_at_shutdown_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it held is still pinned at the node: nothing goes before its file is synced."""
    monkeypatch.setattr(archivetables, "GROUP_ROWS", 50)
    with node_with_archive(archive=1_000, max_entries=1_000) as row:
        produce(row, 3_000)
        told = iter([False] * 30 + [True])
        stopped = Archiver(row, Place(str(tmp_path)), "m1", lambda: next(told))
        with pytest.raises(StoppedError):
            archived(stopped)

        assert names(tmp_path)[1:] == [f"topic=t/partition=0/{Span(1, 1_000).name}"]
        assert row.pins().pins[0].safe == 1_000
        archived(archiver(row, tmp_path))
        assert [each["offset"] for each in rows(tmp_path)] == [*range(1, 2_001)]


def test_s0_32_while_both_buffers_are_full_nothing_is_deleted_and_producers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writer: Writer, _group: Any) -> Any:
        raise OSError(ENOSPC, "No space left on device")

    with node_with_archive(archive=10, max_entries=10) as row:
        with monkeypatch.context() as disk:
            disk.setattr(Writer, "put", full)
            for first in (1, 101, 201):
                produce(row, 100, first)
                archived(archiver(row, tmp_path))
        assert row.status()["archive"]["pinned"] == 290
        assert [entry.number for entry in row.pull("t", kept=True)] == [*range(1, 301)]
        archived(archiver(row, tmp_path))
        assert row.status()["archive"]["pinned"] == 0
        assert len(rows(tmp_path)) == 290


def test_s0_34_a_full_topic_keeps_one_entry_of_each_publisher_and_says_retry_to_the_next() -> None:
    """The answer about the kept one comes when it is decided; meanwhile a second one is `Full`."""

    async def main(node: Node) -> None:
        await node.topic("t", max_entries=1, when_full="slot")
        ann, bob = node.producer(), node.producer()
        await ann.produce("t", [b"there"])
        successful: list[bytes] = []

        async def put(who: Any, value: bytes) -> None:
            await who.produce("t", [value])
            successful.append(value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, ann, b"ann's")
            await trio.sleep(1)
            nursery.start_soon(put, bob, b"bob's")
            await trio.sleep(1)
            for who in (ann, bob):
                with pytest.raises(Full, match="wait"):
                    await who.produce("t", [b"retry"])
            assert successful == []
            await node.prune("t", 1)
            await trio.sleep(1)
            assert successful == [b"ann's"]
            nursery.start_soon(put, ann, b"ann's next")
            await trio.sleep(1)
            await node.prune("t", 2)
            await node.prune("t", 3)

        assert successful == [b"ann's", b"bob's", b"ann's next"]

    alone(Machine(), main)


def test_s0_35_a_full_topic_does_not_stall_its_publishers_other_topics() -> None:
    async def main(node: Node) -> None:
        await node.topic("full", max_entries=1, when_full="block")
        publisher = node.producer()
        await publisher.produce("full", [b"1"])
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(publisher.produce, "full", [b"%d" % number])
            await trio.sleep(1)
            began = trio.current_time()
            for number in range(100):
                assert (await publisher.produce("other", [b"-"])).first == number + 1

            assert trio.current_time() == began
            assert node.bounds("full") == (1, 1)
            nursery.cancel_scope.cancel()

    alone(Machine(), main)


def test_s0_38_new_entries_come_from_memory_and_old_ones_from_the_disk() -> None:
    """A reader at the end does not wait for the disk, which takes 10 ms here for any reading."""
    machine = Machine()

    async def fill(node: Node) -> None:
        for number in range(50):
            await node.produce("t", b"old %d" % number)

    alone(machine, fill)
    machine.media.latency = 0.010

    async def main(node: Node) -> None:
        async def timed(after: int) -> tuple[float, int]:
            began = trio.current_time()
            count = len(await node.values("t", after))
            return trio.current_time() - began, count

        end = (await node.pull("t", LAST)).after
        for number in range(50):
            await node.produce("t", b"new %d" % number)

        assert await timed(50) == (0.0, 50)
        slow, count = await timed(0)
        assert (slow >= 0.010, count) == (True, 100)
        assert await node.values("t", end) == [b"new %d" % number for number in range(50)]

    alone(machine, main)


def test_s0_38_who_begins_at_the_last_entry_gets_only_what_is_new() -> None:
    async def main(node: Node) -> None:
        await node.produce("t", b"old")
        news: list[bytes] = []

        async def follow() -> None:
            after: Any = LAST
            while len(news) < 2:
                pulled = await node.pull("t", after, wait=60)
                news.extend(entry.value for entry in entries_of("t", pulled))
                after = pulled.after

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.sleep(1)
            result = await node.produce("t", b"new")
            assert result.code == Code.ORDERED
            await node.produce("t", b"newer")

        assert news == [b"new", b"newer"]

    alone(Machine(), main)


def test_s0_5_every_connection_has_a_record_with_who_it_is() -> None:
    """Role and topics are of groups; there are no roles: a client does either."""
    with shell() as sh, library.connect(sh.url, name="publisher 1") as publisher:
        publisher.produce("news", b"one")
        records = {row["name"]: row for row in sh.rows("client ls")}

    assert records["publisher 1"]["id"] != records["duckrow"]["id"]
    assert records["publisher 1"]["pid"] == records["duckrow"]["pid"]
    assert records["publisher 1"]["requests"] >= 1


def test_s0_39_producers_consumers_and_topics_in_all_combinations_see_the_same() -> None:
    """1/1/1, 1/m/1, n/1/1, again with two topics, n/m/t; rates and responsiveness vary."""
    sizes = "--producers 1,3 --consumers 1,2 --topics 1,2"
    with shell() as sh:
        rows = sh.rows(f"bench matrix {sizes} --rate 500,0 --think 0,1ms --count 3")

    assert len(rows) == 32
    assert all(row["ok"] for row in rows)
    assert all(
        row["deliveries"] == 3 * row["producers"] * row["consumers"] * row["topics"] for row in rows
    )


def test_s0_10_every_client_is_served_by_a_task_of_its_own() -> None:
    """Twenty that wait, and one that asks for megabytes and takes none of them, hold up no other."""

    async def waits(url: str, topic: str, told: list[bytes]) -> None:
        async with library.trio.connect(url) as row:
            told.extend(entry.value for entry in await row.pull(topic, wait=60))

    async def main(url: str) -> list[bytes]:
        told: list[bytes] = []
        async with trio.open_nursery() as nursery, library.trio.connect(url) as row:
            for index in range(20):
                nursery.start_soon(waits, url, f"t{index}", told)
            for index in reversed(range(20)):
                await row.produce(f"t{index}", b"%d" % index)
        return told

    with library.Node() as node, Wire(node.url.removeprefix("duck+unix://")) as greedy:
        node.client.produce_many("much", [bytes(100_000)] * 40)
        for _ in range(30):
            greedy.send(Verb.PULL, *Ask("much", max_bytes=1 << 22).fields())
        told = trio.run(main, node.url)

    assert sorted(told) == sorted(b"%d" % index for index in range(20))


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
