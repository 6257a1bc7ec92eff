"""S0, a ring-buffer topic store: publishers and subscribers, who wait and do not disturb each other."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import duckrow as library
from duckrow.node.cursors import LAST
from duckrow.node.effects import Code
from duckrow.node.entries import entries_of
from duckrow.node.errors import Full
from duckrow.node.requests import Ask, Verb
from real.daemonkit import Wire
from seeds.kit import SECOND, Node, Turns, alone
from seeds.shell import shell
from sim.alone import Machine


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
