"""What a client of a cluster is told: machines die, or are cut off; the client is told what holds, or
goes elsewhere.
"""

from __future__ import annotations

import pytest
import trio

from duckrow.node import columns, makers
from duckrow.node.cache import Cache
from duckrow.node.effects import Code, Result
from duckrow.node.errors import Conflict, NoQuorum, Refused, Timeout
from duckrow.node.server import Server
from duckrow.node.trioclient import Client

from .townkit import Town, number_of, run, values

# -- accepted -----------------------------------------------------------------------------------


def test_a_machine_that_is_cut_off_accepts_and_the_entries_get_numbers_after_the_heal() -> None:
    async def use(town: Town) -> None:
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        async with town.client(1) as row, town.client(2) as other:
            receipts = [await row.produce("t", b"%d" % i, wait="accepted") for i in range(5)]
            assert [receipt.number for receipt in receipts] == [None] * 5
            assert (await row.receipt(receipts[4])).number is None
            assert (await other.produce("t", b"elsewhere")).number == 1
            town.world.net.heal()
            numbers = [await number_of(row, each) for each in receipts]
            assert numbers == [2, 3, 4, 5, 6]
            assert await values(row) == [b"elsewhere", b"0", b"1", b"2", b"3", b"4"]

    run(use)


@pytest.mark.parametrize("died", ["node", "bridge", "both", "power"])
def test_a_receipt_outlives_what_gave_it(died: str) -> None:
    async def use(town: Town) -> None:
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        async with town.client(1) as row:
            receipts = [await row.produce("t", b"%d" % i, wait="accepted") for i in range(3)]
        if died in ("node", "both"):
            town.world.kill("n1")
        if died in ("bridge", "both"):
            town.world.kill("m1")
        if died == "power":
            town.kill(1, power=True)
        town.start(1)
        async with town.client(1, timeout=30.0) as row:
            await town.until(lambda: 1 in town.nodes and bool(town.nodes[1].row.status().missing))
            assert (await row.receipt(receipts[2])).number is None, "it is known to wait"
            town.world.net.heal()
            numbers = [await number_of(row, each) for each in receipts]
            assert numbers == [1, 2, 3]
        async with town.client(3) as row:
            await row.barrier()
            assert (await row.receipt(receipts[1])).number == 2

    run(use)


def test_accepted_is_said_before_the_order_where_the_others_take_their_time() -> None:
    async def use(town: Town) -> None:
        for id_ in (2, 3):
            town.world.hosts[f"m{id_}"].media.sync_latency = 0.5
        async with town.client(1) as row:
            began = trio.current_time()
            receipt = await row.produce("t", b"one", wait="accepted")
            assert receipt.number is None
            assert trio.current_time() - began < 0.4
            assert await number_of(row, receipt) == 1

    run(use)


def test_a_producer_that_moves_takes_along_what_only_a_dead_machine_has() -> None:
    """Batch 2 follows batch 1 in the lane, and nothing of a lane is applied where one is missing."""

    async def use(town: Town) -> None:
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        async with town.client(1, 2) as row:
            first = await row.produce("t", b"1", wait="accepted")
            second = await row.produce("t", b"2")
            assert (first.number, second.number) == (None, 2)
            town.kill(1)
            assert await number_of(row, first) == 1
        town.start(1)
        town.world.net.heal()
        await town.until_all_act()
        async with town.client(1) as row:
            await row.barrier()
            assert await values(row) == [b"1", b"2"], "what machine 1 had staged is the second copy"

    run(use)


def test_what_was_accepted_and_is_ordered_is_forgotten_by_its_client() -> None:
    """Else it would carry it to every machine, for as long as it lives."""

    async def use(town: Town) -> None:
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        async with town.client(1, 2) as row:
            first = await row.produce("t", b"1", wait="accepted")
            town.world.net.heal()
            assert await number_of(row, first) == 1
            await trio.sleep(3.0)  # all machines have told their clocks
            ordered = town.nodes[2].tally.commands
            town.kill(1)
            await trio.sleep(5.0)
            assert town.nodes[2].tally.commands == ordered

    run(use)


def test_who_made_a_topic_finds_it_at_a_machine_that_is_behind() -> None:
    """Seed 762534 was told that there is no such topic."""

    async def use(town: Town) -> None:
        town.cut_off(2)
        await town.until(lambda: bool(town.nodes[2].row.status().missing))
        async with town.client(1, 2) as row:
            await row.create_topic("t")
            town.world.kill("n1")
            town.world.net.heal()
            assert (await row.topic("t")).partitions[0].entries == 0
        town.cut_off(2)
        async with town.client(3, 2) as row:
            await row.create_topic("u")
            town.world.kill("n3")
            town.world.net.heal()
            assert await row.topics() == ["t", "u"]

    run(use)


def test_what_was_accepted_is_ordered_elsewhere_while_nobody_asks_for_it() -> None:
    async def use(town: Town) -> None:
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        async with town.client(1, 2) as row:
            assert (await row.produce("t", b"1", wait="accepted")).number is None
            town.kill(1)
            await town.until(lambda: "t" in town.nodes[3].state.topics.rows)

    run(use)


def test_what_comes_again_after_it_was_accepted_is_not_staged_again() -> None:
    async def use(town: Town) -> None:
        town.cut_off(1)
        await town.until(lambda: bool(town.nodes[1].row.status().missing))
        node, staging = town.nodes[1], town.bridges[1].staging
        command = makers.produce(makers.Turn(bytes(16), 1), "t", columns.encode_one(b"v"), 1)

        async def accepted() -> None:
            told: list[Result | Exception] = []
            node.calls.tell(node.submit(command, accepted=True), told.append, accepted=True)
            await town.until(lambda: told == [Result(Code.WAITING)])

        for _ in range(2):
            await accepted()
            assert sum(len(each.commands) for each in staging.bundles.values()) == 1

    run(use)


def test_what_has_an_earlier_batch_elsewhere_is_not_accepted_under_its_name() -> None:
    """The lane goes on where the order is; at a machine that is cut off another one begins."""

    async def use(town: Town) -> None:
        async with town.client(1, 2) as row:
            await row.produce("t", b"one")
            town.cut_off(1)
            # The item is in the row of all, and so in the state of machine 1: the lane is known.
            await town.until(lambda: bool(town.nodes[1].row.status().missing))
            assert (await row.produce("t", b"two", wait="accepted")).number is None
            town.world.net.heal()
            await town.until_all_act()
            await row.barrier()
            assert await values(row) == [b"one", b"two"]

    run(use)


def test_a_machine_that_is_cut_off_accepts_nothing_in_a_lane_that_went_with_its_topic() -> None:
    """It would be refused in the row, wherever that goes on: accepted, and lost."""

    async def use(town: Town) -> None:
        async with town.client(1, timeout=3.0) as row, town.client(2) as other:
            given = await row.produce("t", b"one", wait="accepted")
            assert await number_of(row, given) == 1
            await other.delete_topic("t")
            await row.barrier()
            town.cut_off(1)
            await town.until(lambda: bool(town.nodes[1].row.status().missing))
            with pytest.raises(NoQuorum, match="nothing was written"):
                await row.produce("t", b"two", wait="accepted")

    run(use)


@pytest.mark.parametrize("partition", [None, 2])
def test_what_was_accepted_for_too_few_partitions_is_refused_and_its_client_goes_on(
    partition: int | None,
) -> None:
    """A machine with a new disk knows no topic; nor does a new client know how many partitions it has."""

    async def use(town: Town) -> None:
        async with town.client(1) as row:
            await row.create_topic("t", partitions=3)
        await town.give_new_disk(3)
        async with town.client(3, 1) as row:
            first = await row.produce("t", b"one", partition=partition, wait="accepted")
            assert first.number is None
            await row.produce("t", b"two", partition=partition)  # at machine 1
            with pytest.raises(Conflict, match="choose the partition anew"):
                await first.ordered()
        town.world.net.heal()
        await town.until_all_act()
        async with town.client(3) as row:
            await row.barrier()
            assert await values(row) == [b"two"], "nor is what machine 3 had staged ordered"

    run(use)


def test_what_had_no_answer_where_too_few_partitions_were_known_is_ordered_once_elsewhere() -> None:
    async def use(town: Town) -> None:
        async with town.client(1) as row:
            await row.create_topic("t", partitions=3)
        await town.give_new_disk(3)
        disk = town.world.hosts["m3"].media
        disk.sync_latency = 0.5
        async with town.client(3, 1) as row, trio.open_nursery() as nursery:

            async def produce() -> None:
                assert await number_of(row, await row.produce("t", b"one", wait="accepted")) == 1

            nursery.start_soon(produce)
            await trio.sleep(0.2)
            town.world.kill("n3")
        disk.sync_latency = 0.0
        town.start(3)
        town.world.net.heal()
        await town.until_all_act()
        async with town.client(3) as row:
            await row.barrier()
            assert await values(row) == [b"one"]

    run(use)


def test_what_is_refused_where_another_copy_of_it_may_come_is_in_doubt() -> None:
    """The node gave both to its bridge again, and in this order the second copy of batch 2 has its batch 1.
    Told that it was not done, a client that finds its lane gone writes it again in another one.
    """

    async def use(town: Town) -> None:
        for id_ in (1, 2, 3):
            town.world.hosts[f"m{id_}"].media.sync_latency = 0.2
        node = town.nodes[1]
        told: list[Result | Exception] = []

        def submit(seq: int) -> None:
            body = columns.encode_one(b"%d" % seq)
            command = makers.produce(makers.Turn(bytes(16), seq), "t", body, 1)
            node.calls.tell(node.submit(command), told.append)

        submit(2)
        submit(1)
        await trio.sleep(0.05)
        town.world.net.reset_some(1.0)
        await town.until(lambda: len(told) == 2)
        assert isinstance(told[0], Timeout)
        assert isinstance(told[1], Result) and told[1].code == Code.ORDERED
        async with town.client(1) as row:
            await row.barrier()
            assert await values(row) == [b"1", b"2"]
        submit(4)
        await town.until(lambda: len(told) == 3)
        assert isinstance(told[2], Result) and told[2].code == Code.GAP, "it is ordered once"

    run(use)


def test_a_receipt_of_a_deleted_topic_does_not_say_that_it_waits() -> None:
    async def use(town: Town) -> None:
        async with town.client(1) as row:
            given = await row.produce("t", b"one", wait="accepted")
            assert await number_of(row, given) == 1
            await row.delete_topic("t")
            with pytest.raises(NoQuorum, match="it was forgotten, with its topic"):
                await row.receipt(given)

    run(use)


# -- no quorum ----------------------------------------------------------------------------------


def test_without_a_majority_a_producer_is_told_who_is_missing() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, timeout=3.0) as row:
            await row.produce("t", b"one")
            town.kill(2)
            town.kill(3)
            await town.until(lambda: bool(town.nodes[1].row.status().missing))
            with pytest.raises(
                NoQuorum, match=r"n1 can order nothing: it does not reach m2 and m3"
            ):
                await row.produce("t", b"two")
            assert await values(row) == [b"one"], "it can be read from all the same"
            town.start(2)
            assert (await row.produce("t", b"three", timeout=20.0)).number == 2

    run(use)


def test_of_what_was_under_way_when_the_majority_went_it_is_not_known() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, timeout=5.0) as row:
            await row.produce("t", b"one")
            town.cut_off(1)
            with pytest.raises(Timeout, match="does not reach m2 and m3"):
                await row.produce("t", b"two")
            town.world.net.heal()
            await town.until_all_act()
            assert (await row.produce("t", b"three", timeout=20.0)).number in (2, 3)

    run(use)


def test_a_client_of_several_nodes_moves_on_when_its_own_can_order_nothing() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, 2, 3) as row:
            await row.produce("t", b"one")
            town.cut_off(1)
            await town.until(lambda: bool(town.nodes[1].row.status().missing))
            await town.until(lambda: town.nodes[2].row.status().active)
            began = trio.current_time()
            assert (await row.produce("t", b"two")).number == 2
            assert trio.current_time() - began < 1.0
            assert await values(row) == [b"one", b"two"]

    run(use)


@pytest.mark.parametrize("level", ["node", "machine"])
def test_a_client_of_several_nodes_moves_on_when_its_own_dies(level: str) -> None:
    async def use(town: Town) -> None:
        async with town.client(1, 2, 3) as row:
            await row.produce("t", b"one")
            town.world.kill("n1")
            if level == "machine":
                town.world.kill("m1")
            began = trio.current_time()
            assert (await row.produce("t", b"two")).number == 2
            assert trio.current_time() - began < (0.1 if level == "node" else 1.5)

    run(use)


def test_a_client_of_several_nodes_moves_on_when_the_bridge_of_its_own_stays_away() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, 2, 3) as row, town.client(1, timeout=2.0) as stays:
            await row.produce("t", b"one")
            await stays.produce("t", b"two")
            town.world.kill("m1")
            await town.until(lambda: town.nodes[2].row.status().active)
            began = trio.current_time()
            assert (await row.produce("t", b"three")).number == 3
            assert trio.current_time() - began < 1.0
            with pytest.raises(
                NoQuorum, match="n1 can order nothing: it does not reach its bridge"
            ):
                await stays.produce("t", b"four")
            assert await values(stays) == [b"one", b"two"]
            town.start(1)
            assert (await stays.produce("t", b"five", timeout=20.0)).number == 4

    run(use)


def test_a_bridge_that_stands_still_is_away_and_when_it_goes_on_it_is_there() -> None:
    """Its node said that it acts, for ever, and whoever produced there waited for nothing."""

    async def use(town: Town) -> None:
        async with (
            town.client(1, 2, 3, timeout=60.0) as row,
            town.client(1) as stays,
            trio.open_nursery() as nursery,
        ):
            await row.produce("t", b"one")
            await stays.produce("t", b"two")
            goes_on = trio.Event()
            nursery.start_soon(town.bridges[1].between, goes_on.wait)
            with trio.fail_after(6.0):
                assert (await row.produce("t", b"three")).number == 3
            with pytest.raises(
                NoQuorum, match="n1 can order nothing: it does not reach its bridge"
            ):
                await stays.produce("t", b"four")
            goes_on.set()
            assert (await stays.produce("t", b"five", timeout=20.0)).number == 4

    run(use)


def test_nobody_waits_for_accepted_while_the_bridge_that_would_say_so_stays_away() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, 2, 3, timeout=5.0) as row, town.client(1, timeout=2.0) as stays:
            await row.produce("t", b"one")
            town.world.kill("m1")
            given = await row.produce("t", b"two", wait="accepted")
            await town.until(lambda: bool(town.nodes[1].row.missing))
            with pytest.raises(
                NoQuorum, match="n1 can order nothing: it does not reach its bridge"
            ):
                await stays.produce("t", b"three", wait="accepted")
            assert await number_of(row, given) == 2

    run(use)


# -- exactly once, and one's own writes ------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 5])
def test_a_producer_that_moves_in_mid_flight_writes_everything_once_and_in_order(seed: int) -> None:
    async def use(town: Town) -> None:
        wanted = [b"%d" % i for i in range(300)]
        async with town.client(1, 2, 3, timeout=60.0) as row, trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            for start in range(0, 300, 10):
                async with trio.open_nursery() as together:
                    for value in wanted[start : start + 10]:
                        together.start_soon(row.produce, "t", value)
            await town.until_all_act()
            found = await values(row)
            assert sorted(found) == sorted(wanted)
            assert [int(value) // 10 for value in found] == [i // 10 for i in range(300)]

    async def trouble() -> None:
        town = towns[-1]
        for id_ in (1, 2, 3, 1):
            await trio.sleep(0.15)
            town.kill(id_)
            await trio.sleep(0.4)
            town.start(id_)
            await town.until_all_act()

    towns: list[Town] = []

    async def remembered(town: Town) -> None:
        towns.append(town)
        await use(town)

    run(remembered, seed)


def test_a_client_reads_what_it_wrote_also_at_a_node_that_is_behind() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, 3) as row:
            await row.produce("t", b"one")
            town.world.pause("n3")
            await row.produce("t", b"two")
            town.world.kill("n1")

            async def go_on() -> None:
                await trio.sleep(0.5)
                town.world.resume("n3")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(go_on)
                assert await values(row) == [b"one", b"two"]

    run(use)


def test_a_reader_of_several_nodes_leaves_one_that_does_not_come_as_far_as_it_was_told() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, 3, 2) as row:
            await row.produce("t", b"one")
            town.cut_off(3)
            await town.until(lambda: bool(town.nodes[3].row.status().missing))
            await row.produce("t", b"two")
            town.world.kill("n1")
            assert await values(row) == [b"one", b"two"]

    run(use)


def test_a_reader_whom_no_node_can_serve_tries_them_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had dialled one after the other without any pause, as each had let it in."""

    def refuse(server: Server) -> None:
        raise Refused("it keeps no row", witness=server.options.name)

    async def use(town: Town) -> None:
        async with town.client(1, 2) as row:
            await row.produce("t", b"one")
            before = town.world.net.counts["dials"]
            with monkeypatch.context() as witnesses:
                witnesses.setattr(Server, "refuse_if_witness", refuse)
                with pytest.raises(Timeout, match="it keeps no row"):
                    await row.pull("t", timeout=3.0)
            assert town.world.net.counts["dials"] - before < 20
            assert await values(row) == [b"one"]

    run(use)


def test_who_follows_what_is_new_misses_nothing_when_the_node_dies_before_anything_came() -> None:
    async def use(town: Town) -> None:
        found: list[bytes] = []

        async def follow(row: Client) -> None:
            async for entry in row.follow("t", "last"):
                found.append(entry.value)
                if entry.value == b"three":
                    return

        async with (
            town.client(1, 2) as reader,
            town.client(2) as row,
            trio.open_nursery() as nursery,
        ):
            await row.produce("t", b"one")
            await town.until(lambda: town.nodes[1].state.topic("t") is not None)
            nursery.start_soon(follow, reader)
            await town.until(lambda: town.nodes[1].waiters.statistics().waiting > 0)
            town.world.pause("n1")
            await row.produce("t", b"two")
            town.world.kill("n1")
            await row.produce("t", b"three")
            await town.until(lambda: b"three" in found)
        assert found == [b"two", b"three"]

    run(use)


def test_who_reads_a_partition_that_came_later_goes_on_at_a_machine_that_is_behind() -> None:
    """It was told that there is no such partition."""

    async def use(town: Town) -> None:
        async with town.client(1, 3) as row, town.client(2) as writer:
            await writer.create_topic("t")
            await town.until(lambda: all(node.state.topic("t") for node in town.nodes.values()))
            town.cut_off(3)
            await town.until(lambda: bool(town.nodes[3].row.status().missing))
            await writer.set_topic("t", partitions=2)
            await writer.produce("t", b"one", partition=1)
            follow = row.follow("t", partition=1)
            assert (await anext(follow)).value == b"one"
            town.world.kill("n1")
            await writer.produce("t", b"two", partition=1)

            async def go_on() -> None:
                await trio.sleep(2)
                town.world.net.heal()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(go_on)
                assert (await anext(follow)).value == b"two"

    run(use)


def test_a_pull_that_finds_nothing_ends_in_its_time_though_its_node_died_meanwhile() -> None:
    async def use(town: Town) -> None:
        async with town.client(1, 2, timeout=5.0) as row, trio.open_nursery() as nursery:
            nursery.start_soon(die, town)
            began = trio.current_time()
            assert not await row.pull("t", wait=20)
            assert 20 <= trio.current_time() - began < 21

    async def die(town: Town) -> None:
        await trio.sleep(15)
        town.world.kill("n1")

    run(use)


def test_the_level_of_durability_that_is_told_is_that_of_now() -> None:
    """N8: The status told what the cluster file had said at the start."""

    async def use(town: Town) -> None:
        async with town.client(2) as row:
            assert (await row.status())["level"] == "fsync"
            await row.members("set", durability="write")
            await row.barrier()
            assert (await row.status())["level"] == "write"

    run(use)


def test_a_barrier_makes_a_read_new() -> None:
    async def use(town: Town) -> None:
        async with town.client(1) as here, town.client(3) as there:
            for number in range(1, 20):
                await here.produce("t", b"%d" % number)
                await there.barrier()
                assert len(await values(there)) == number

    run(use)


def test_a_client_of_several_nodes_leaves_one_of_which_nothing_comes() -> None:
    """It stands still, or its disk does, and keeps its connections: each call had cost all of its time."""

    async def use(town: Town) -> None:
        async with town.client(1, 2, timeout=2.0) as row:
            assert (await row.produce("t", b"one")).number == 1
            town.world.pause("n1")
            with pytest.raises(Timeout):
                await row.topics()
            assert [entry.value for entry in await row.pull("t")] == [b"one"]
            assert (await row.produce("t", b"two")).number == 2
            town.world.resume("n1")

    run(use)


def test_what_a_node_cannot_read_while_its_bridge_is_away_is_read_at_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has only the newest in memory: each call had waited there, and ended with Timeout."""
    monkeypatch.setattr(Cache, "get", lambda *_: None)

    async def use(town: Town) -> None:
        async with town.client(1, 2, timeout=2.0) as row:
            for value in (b"one", b"two", b"three"):
                await row.produce("t", value)
            town.world.kill("m1")
            with pytest.raises(Timeout):
                await row.pull("t")
            assert [entry.value for entry in await row.pull("t")] == [b"one", b"two", b"three"]

    run(use)
