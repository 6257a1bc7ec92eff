"""S4, a broker whose machines are chained over TCP: what of it duckrow does today.

Each test is named after its row in docs/reference/seeds.md, which also says what is still to come.
The chained machines are in `test_s4_chain.py`.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

import duckrow as library
from duckrow.node.alone import Options, open_node
from duckrow.node.cursors import FIRST, LAST, After, Back, Cursor
from duckrow.node.env import Env
from duckrow.node.errors import Full, Refused, Timeout
from postgreskit import postgres
from seeds.kit import SECOND, Node, Turns, alone, dying
from seeds.programs import example, function, program
from seeds.shell import shell
from seeds.shop import shop, visit
from sim.alone import EPOCH_US, Machine

HOUR, DAY, YEAR = 3600, 86_400, 365 * 86_400


def test_s4_5_a_reader_begins_at_the_first_entry_the_last_a_number_or_a_time() -> None:
    """A replay is a pull from there; consumer groups will begin at the same places."""

    async def main(node: Node) -> None:
        for number in range(1, 11):
            await node.produce("t", b"%d" % number)
            await trio.sleep(60)
        await node.prune("t", 2)

        async def began(after: After) -> list[int]:
            return await node.numbers("t", after)

        assert await began(FIRST) == [3, 4, 5, 6, 7, 8, 9, 10]
        assert await began(7) == [8, 9, 10]
        assert await began(Back(2)) == [9, 10]
        assert await began(LAST) == []
        minute = EPOCH_US + 5 * 60 * SECOND
        assert await began(Cursor(since=minute)) == [6, 7, 8, 9, 10]
        assert await began(Cursor(since=minute + 1)) == [7, 8, 9, 10]
        assert (await node.pull("t", FIRST)).missing == 0
        assert (await node.pull("t", 0)).missing == 2

    alone(Machine(), main)


def test_s4_7_a_full_topic_drops_its_oldest_and_counts_them() -> None:
    """`first - 1` of a partition is how many it dropped; a metric will show the same."""

    async def main(node: Node) -> None:
        await node.topic("t", max_entries=10)
        for number in range(1, 26):
            await node.produce("t", b"%d" % number)

        assert await node.numbers("t") == list(range(16, 26))
        assert node.bounds("t")[0] - 1 == 15
        assert (await node.pull("t", 0)).missing == 15

    alone(Machine(), main)


def test_s4_8_without_limits_everything_is_kept_for_ever() -> None:
    async def main(node: Node) -> None:
        await node.produce("t", b"old")
        await trio.sleep(100 * YEAR)
        for _ in range(1_000):
            await node.produce("t", b"-")

        assert await node.values("t", limit=1) == [b"old"]
        assert node.bounds("t") == (1, 1_001)

    alone(Machine(), main)


def test_s4_8_a_full_topic_can_refuse_with_an_error_that_has_a_code() -> None:
    async def main(node: Node) -> None:
        await node.topic("t", max_entries=2, when_full="reject")
        await node.produce("t", b"1", b"2")

        with pytest.raises(Full) as full:
            await node.produce("t", b"3")
        assert full.value.code == "full"
        await node.prune("t", 1)
        assert (await node.produce("t", b"3")).first == 3

    alone(Machine(), main)


@pytest.mark.parametrize("age", [HOUR, DAY])
def test_s4_8_entries_can_be_pruned_by_age(age: int) -> None:
    async def main(node: Node) -> None:
        await node.topic("t", max_age=age * SECOND)
        await node.produce("t", b"1")
        await trio.sleep(age / 2)
        await node.produce("t", b"2")
        await trio.sleep(age / 2 + 0.01)
        assert await node.values("t") == [b"2"]

    alone(Machine(), main)


def test_s4_8_a_topic_can_be_limited_in_bytes() -> None:
    """Of stored bodies; the limit is never exceeded, and nothing goes that could have stayed."""

    async def main(node: Node) -> None:
        sizes: dict[int, int] = {}
        await node.topic("t", max_bytes=1_000)
        for number in range(1, 31):
            await node.produce("t", bytes(10 * number))
            topic = node.keeper.state.topic("t")
            assert topic is not None
            first, last, _, size, *_ = node.keeper.state.partition(topic.id, 0)
            sizes[number] = size - sum(sizes[each] for each in range(first, last))
            assert size <= 1_000 < size + sizes.get(first - 1, 1_001)
        assert first > 10

    alone(Machine(), main)


# What comes of 6 batches of 2 entries, an hour apart, into a topic with that policy and room for 8
# entries or 5 batches, whichever is less, when there is room for no more: numbers there, answers.
OUTCOMES: dict[str, tuple[list[int], str]] = {
    "drop-oldest": ([5, 6, 7, 8, 9, 10, 11, 12], "......"),
    "reject": ([1, 2, 3, 4, 5, 6, 7, 8], "....FF"),
    "block": ([1, 2, 3, 4, 5, 6, 7, 8], "....ww"),
    "slot": ([1, 2, 3, 4, 5, 6, 7, 8], "....wF"),
}


@pytest.mark.parametrize("when_full", OUTCOMES)
def test_s4_8_all_limits_can_be_combined_with_every_way_to_be_full(when_full: str) -> None:
    async def main(node: Node) -> None:
        await node.produce("sample", b"x" * 100, b"y" * 100)
        sample = node.keeper.state.topic("sample")
        assert sample is not None
        size = node.keeper.state.partition(sample.id, 0).size
        await node.topic(
            "t", max_entries=8, max_bytes=5 * size, max_age=DAY * SECOND, when_full=when_full
        )
        answers = list[str]()

        async def produce(at: int) -> None:
            answers.append("w")
            try:
                await node.produce("t", b"x" * 100, b"y" * 100)
                answers[at] = "."
            except Full:
                answers[at] = "F"

        async with trio.open_nursery() as nursery:
            for at in range(6):
                nursery.start_soon(produce, at)
                await trio.sleep(HOUR)
            assert (await node.numbers("t"), "".join(answers)) == OUTCOMES[when_full]

            # Bytes: the limits of entries go, those of bytes hold.
            await node.configure("t", max_entries=None)
            room = {"drop-oldest": 8, "reject": 8, "block": 10, "slot": 10}[when_full]
            assert len(await node.numbers("t")) == room
            # Age: everything goes, and who still waited comes in its place.
            await trio.sleep(DAY)
            answered = {"drop-oldest": "......", "reject": "....FF", "block": "......"}
            assert "".join(answers) == answered.get(when_full, ".....F")
            await trio.sleep(DAY)
            assert await node.numbers("t") == []

        with pytest.raises(Refused, match="larger"):
            await node.produce("t", bytes(10 * size))

    alone(Machine(), main)


def test_s4_10_no_topic_waits_for_another_and_many_cost_no_more_than_one() -> None:
    """There is no lock to share or to split: the same work, step by step, in one topic or in 200."""

    def turns(topics: int) -> int:
        machine = Machine()
        machine.media.sync_latency = 0.001
        count = Turns()

        async def main(node: Node) -> None:
            await node.topic("full", max_entries=1, when_full="block")
            await node.produce("full", b"-")
            producer = node.producer()
            for number in range(200):
                await producer.produce(f"t{number}", [b"made before"])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.produce, "full", [b"holds nobody up"])
                await trio.sleep(1)
                began = trio.current_time()
                trio.lowlevel.add_instrument(count)
                async with trio.open_nursery() as many:
                    for number in range(200):
                        many.start_soon(producer.produce, f"t{number % topics}", [b"-"])
                trio.lowlevel.remove_instrument(count)
                assert trio.current_time() - began <= 0.002  # two syncs for all of them
                nursery.cancel_scope.cancel()

        alone(machine, main)
        return count.count

    assert turns(200) == turns(1)


def test_s4_26_entries_are_on_the_disk_unless_somebody_says_otherwise() -> None:
    """Nothing is configured, and the power fails in the moment of the answer."""
    machine = Machine()

    async def fill(node: Node) -> None:
        await node.produce("t", b"kept")

    dying(machine, fill)
    machine.media.power_loss()

    async def look(node: Node) -> None:
        assert await node.values("t") == [b"kept"]

    alone(machine, look)


def test_s4_32_a_pull_waits_until_there_is_something_or_its_time_is_over() -> None:
    async def main(node: Node) -> None:
        await node.topic("t")
        pulled: list[tuple[float, list[bytes]]] = []

        async def pull(wait: float) -> None:
            values = await node.values("t", wait=wait)
            pulled.append((trio.current_time(), values))

        async with trio.open_nursery() as nursery:
            for wait in (0, 2.5, 30):
                nursery.start_soon(pull, wait)
            await trio.sleep(10)
            await node.produce("t", b"at last")

        assert pulled == [(0, []), (2.5, []), (10, [b"at last"])]

    alone(Machine(), main)


def test_s4_35_a_node_that_is_killed_again_and_again_goes_on_where_it_was(tmp_path: Path) -> None:
    """So do its readers: what they have done is a number, and numbers stay."""
    sold = done = 0
    for _ in range(3):
        with shop(tmp_path / "data", "t", sold + 1) as answer:
            answered = [answer() for _ in range(20)]
        assert answered[0] == (sold + 1, sold + 1)
        news = visit(tmp_path / "data", "t", after=done)
        assert news == [(number, number) for number in range(done + 1, done + 1 + len(news))]
        assert news[:20] == answered
        sold = done = news[-1][1]


def test_s4_35_a_node_stops_at_once_however_much_nobody_has_read() -> None:
    """And what waits for room, though its producers are gone, still waits after the start."""
    machine = Machine()

    async def stop(env: Env) -> None:
        async def produce(node: Node, number: int) -> None:
            with pytest.raises(Timeout):
                await node.producer().produce("t", [b"waits %d" % number])

        async with trio.open_nursery() as nursery, open_node(env, Options()) as keeper:
            node = Node(env, keeper)
            await node.topic("t", max_entries=100, when_full="block")
            for _ in range(100):
                await node.produce("t", b"nobody reads this")
            for number in range(50):
                nursery.start_soon(produce, node, number)
            await trio.sleep(1)

    machine.run(stop)
    assert machine.now == 1

    async def look(node: Node) -> None:
        assert node.bounds("t") == (1, 100)
        await node.prune("t", 20)
        assert node.bounds("t") == (21, 120)
        await node.prune("t", 100)
        assert sorted(await node.values("t")) == sorted(b"waits %d" % n for n in range(50))

    alone(machine, look)


def test_s4_17_a_farm_of_simulations_has_each_result_once_and_in_order_whoever_dies(
    tmp_path: Path,
) -> None:
    """The user's jobs, three machines, a database, and back; a worker and a machine are killed."""
    said = example("simulation_farm", "demo", str(tmp_path / "results.sqlite"))

    assert said == [
        "killed: worker 1, and the machine m3 under worker 2",
        "60 results of 60 jobs",
    ]
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as base:
        rows = base.execute("select * from results order by partition, number").fetchall()
    simulate = function("simulate", of="simulation_farm")
    assert rows == [
        (partition, number, seed, simulate(seed, 5_000))
        for partition in range(3)
        for number, seed in enumerate(range(partition, 60, 3), 1)
    ]


def test_s4_18_measurements_of_a_stress_test_come_together_in_a_database() -> None:
    """By way of a topic and Spark; tests/spark/test_jobs.py says that each comes once."""
    with library.Node() as node, postgres() as to:
        where = {"DUCKROW_URL": node.url, "DUCKROW_POSTGRES": to}
        assert example("stress_metrics", "stress", "3", "20", **where) == []
        job = ("pipeline", "metrics", "measured", "--table", "stress", "--master", "local[1]")
        (told,) = program(*job, **where)
        head, *lines = example("stress_metrics", "report", **where)

    assert json.loads(told) == {
        "topic": "measured",
        "table": "stress",
        "entries": 60,
        "others": 0,
        "added": 60,
    }
    assert head.split() == ["host", "worker", "count", "p50", "ms", "p99", "ms"]
    assert [line.split()[1:3] for line in lines] == [["0", "20"], ["1", "20"], ["2", "20"]]
    assert all(0 < float(line.split()[3]) <= float(line.split()[4]) for line in lines)


def test_s4_25_the_two_programs_take_ten_lines_each() -> None:
    """And do what their page says: tests/real/test_two_programs.py walks through it."""
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "two-programs.md"
    programs = page.read_text().split("```python\n")[1:]
    lines = [program.split("\n```")[0].splitlines() for program in programs]

    assert [len([line for line in each if line]) for each in lines] == [6, 9]


def test_s4_27_doctor_trace_and_why_tell_what_is_going_on() -> None:
    """As far as one node goes: `trace` will show all of them."""
    with shell() as sh:
        sh("topic new jobs --max-entries 1 --when-full reject")
        sh("produce jobs one")

        assert {row["check"] for row in sh.rows("doctor")} >= {"program", "configuration", "node"}
        assert sh("trace jobs 1").document["state"] == "there"
        assert "what comes is refused" in sh("why jobs").text


def test_s4_28_a_topic_has_partitions_and_a_key_stays_in_one() -> None:
    """Each counts from one; a reader takes one of them, or all merged; they grow while it runs."""
    with library.Node() as node, library.connect(node.url) as row:
        row.create_topic("orders", partitions=3)
        for turn in range(4):
            for customer in range(10):
                row.produce("orders", b"%d" % turn, key=b"customer %d" % customer)

        ends = [partition.last for partition in row.topic("orders").partitions]
        assert sum(ends) == 40
        assert sum(1 for end in ends if end) > 1, "one partition has them all"
        homes: dict[bytes | None, list[int]] = {}
        for partition, end in enumerate(ends):
            entries = list(row.pull("orders", partition=partition))
            assert [entry.number for entry in entries] == [*range(1, end + 1)]
            for entry in entries:
                homes.setdefault(entry.key, []).append(partition)
        assert all(len({*found}) == 1 and len(found) == 4 for found in homes.values())
        merged = list(row.pull("orders"))
        assert [entry.value for entry in merged] == sorted(entry.value for entry in merged)

        row.set_topic("orders", partitions=5)
        assert len(row.topic("orders").partitions) == 5
        assert row.produce("orders", b"named", partition=4).number == 1


def test_s4_31_a_node_is_a_server_of_its_own() -> None:
    with shell() as sh:
        assert sh("produce news one").code == 0
        assert sh("status").document["active"]


def test_s4_19_three_speeds_of_producers_meet_three_of_consumers() -> None:
    with shell() as sh:
        words = "bench matrix --rate slow,medium,fast --think slow,medium,fast --messages 3"
        rows = sh.rows(words)

    assert {(row["rate"], row["think"]) for row in rows} == (
        {(rate, think) for rate in (10.0, 100.0, 0.0) for think in (0.02, 0.002, 0.0)}
    )
    assert all(row["ok"] for row in rows)


def test_s4_10_one_topic_can_be_compared_with_many_on_a_disk() -> None:
    with shell() as sh:
        rows = sh.rows("bench topics --topics 1,20 --clients 3 --count 90")

    assert [(row["topics"], row["count"], row["ok"]) for row in rows] == [
        (1, 90, True),
        (20, 90, True),
    ]
    assert all(row["rate"] > 0 for row in rows)


def test_s4_20_one_seven_and_twelve_consumers_get_fourteen_messages() -> None:
    """How long that takes is in each row; all of them got all."""
    with shell() as sh:
        rows = sh.rows("bench fanout --consumers 1,7,12 --messages 14")

    assert [row["deliveries"] for row in rows] == [14, 98, 168]
    assert all(row["ok"] and row["seconds"] > 0 for row in rows)
