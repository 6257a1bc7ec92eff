"""S2, publish and subscribe by request and reply, exactly once: what of it duckrow does today.

Each test is named after its row in docs/reference/seeds.md, which also says what is still to come.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path

import pytest
import trio

import duckrow as library
from clikit import duckrow
from duckrow.node import columns, frames, makers, requests
from duckrow.node.commands import PID_BYTES
from duckrow.node.effects import Code, Result
from duckrow.node.entries import entries_of
from duckrow.node.errors import Conflict, NotFound
from duckrow.node.pulled import Pulled
from duckrow.node.requests import Ask, Verb
from real.daemonkit import Wire
from seeds.kit import Node, alone
from sim.alone import Machine


def test_s2_10_no_two_entries_of_a_topic_have_the_same_number() -> None:
    """Not even after all were pruned, nor after a restart."""
    machine = Machine()
    numbers: list[int] = []

    async def main(node: Node) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(node.producer().produce, "t", [b"a", b"b", b"c"])
        numbers.extend(await node.numbers("t", after=len(numbers)))
        await node.prune("t", numbers[-1])

    for _ in range(3):
        alone(machine, main)

    assert numbers == list(range(1, 91))


def test_s2_10_no_two_topics_have_the_same_name() -> None:
    """And one that was deleted and made again is told from the one that it replaced."""

    async def main(node: Node) -> None:
        first = await node.topic("t")
        again = await node.topic("t")
        assert (again.code, again.detail) == (Code.EXISTS, first.detail)

        await node.produce("t", b"of the old one")
        reader = await node.pull("t")
        await node.delete("t")
        second = await node.topic("t")
        assert second.detail != first.detail
        with pytest.raises(Conflict, match="was deleted"):
            await node.pull("t", reader.after, topic_id=reader.topic_id)

    alone(Machine(), main)


def test_s2_11_the_same_request_gets_the_same_answer_until_the_reader_says_it_is_done() -> None:
    """The reader's last id is in the request, so a lost reply is asked for again."""
    machine = Machine()

    async def first(node: Node) -> list[tuple[int, bytes]]:
        await node.produce("t", b"one", b"two", b"three")
        answers = []
        for _ in range(3):
            (entry,) = await node.entries("t", 1, limit=1)
            answers.append((entry.number, entry.value))
            await node.produce("t", b"more")
        return answers

    async def second(node: Node) -> list[tuple[int, bytes]]:
        found = [*await node.entries("t", 1, limit=1), *await node.entries("t", 2, limit=1)]
        return [(entry.number, entry.value) for entry in found]

    assert alone(machine, first) == [(2, b"two")] * 3
    assert alone(machine, second) == [(2, b"two"), (3, b"three")]


class Knife(trio.abc.Instrument):
    """Cancels scopes, each after so many turns of whatever task."""

    def __init__(self) -> None:
        self._turns = self._asked = 0
        self._due: list[tuple[int, int, trio.CancelScope]] = []

    def after(self, turns: int, scope: trio.CancelScope) -> None:
        self._asked += 1
        heappush(self._due, (self._turns + turns, self._asked, scope))

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._turns += 1
        while self._due and self._due[0][0] <= self._turns:
            heappop(self._due)[2].cancel()


def test_s2_15_ten_thousand_time_out_around_their_answer_and_nothing_is_lost_or_stuck() -> None:
    """Whoever gives up a produce asks what became of it; whoever gives up a pull pulls again.

    The end of patience falls on any turn of the scheduler: before, at and after the answer.
    """
    machine = Machine(seed=15)
    knife, rng = Knife(), random.Random(15)
    gave_up = dict.fromkeys(("produce", "pull"), 0)
    in_time = dict.fromkeys(("produce", "pull"), 0)
    values: list[bytes] = []
    readers: list[list[bytes]] = [[] for _ in range(4)]

    async def produce(node: Node, seq: int) -> None:
        value = b"value %d" % seq
        turn = makers.Turn(b"p" * PID_BYTES, seq, done=seq - 1)
        result: Result | None = None
        with trio.CancelScope() as patience:
            knife.after(rng.randrange(25), patience)
            result = await node.ask(makers.produce(turn, "t", columns.encode([value]), 1))
            in_time["produce"] += 1
        if result is None:
            gave_up["produce"] += 1
            result = await node.ask(makers.skip(turn, "t"))
        values.append(value)
        assert (result.code, result.first) == (Code.ORDERED, len(values))

    async def pull(node: Node, done: list[bytes], until: int) -> None:
        while len(done) < until:
            pulled: Pulled | None = None
            with trio.CancelScope() as patience:
                knife.after(rng.randrange(12), patience)
                pulled = await node.pull("t", len(done), wait=60)
                in_time["pull"] += 1
            if pulled is None:
                gave_up["pull"] += 1
            else:
                entries = entries_of("t", pulled)
                assert entries[0].number == len(done) + 1
                done += [each.value for each in entries]

    async def main(node: Node) -> None:
        trio.lowlevel.add_instrument(knife)
        seq = 0
        while sum(gave_up.values()) < 10_000:
            seq += 1
            async with trio.open_nursery() as nursery:
                for done in readers:
                    nursery.start_soon(pull, node, done, seq)
                nursery.start_soon(produce, node, seq)

        assert min(*gave_up.values(), *in_time.values()) > 500
        for done in readers:
            assert done == values
        assert node.keeper.waiters.statistics().waiting == 0
        assert len(node.keeper.calls) == 0

    alone(machine, main)


def test_s2_18_a_put_on_a_topic_nobody_knows_is_kept() -> None:
    async def main(node: Node) -> None:
        await node.produce("new", b"kept")
        assert await node.values("new") == [b"kept"]

    alone(Machine(), main)


@pytest.mark.parametrize("create", ["on-subscribe", "explicit"])
def test_s2_18_or_refused_where_the_settings_say_so(create: str) -> None:
    async def main(node: Node) -> None:
        await node.settings(create=create)
        with pytest.raises(NotFound):
            await node.produce("new", b"refused")

        await node.topic("new")
        await node.produce("new", b"kept")
        assert await node.values("new") == [b"kept"]

    alone(Machine(), main)


def test_s2_14_every_call_has_a_time_out_that_says_for_whom_it_waited() -> None:
    """No thread and no shutting down is needed for it, and the client goes on."""
    calls: list[Callable[[library.Client], object]] = [
        lambda row: row.produce("t", b"v"),
        lambda row: row.produce_many("t", [b"v"]),
        lambda row: row.pull("t"),
        lambda row: row.topics(),
        lambda row: row.topic("t"),
        lambda row: row.create_topic("t"),
        lambda row: row.set_topic("t", max_entries=1),
        lambda row: row.delete_topic("t"),
        lambda row: row.prune("t", 1),
        lambda row: row.barrier(),
        lambda row: row.status(),
        lambda row: row.clients(),
    ]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with library.connect(f"duck://127.0.0.1:{port}", timeout=0.02) as row:
            for call in calls:
                with pytest.raises((library.Timeout, library.NoQuorum), match=f"127.0.0.1:{port}"):
                    call(row)


def test_s2_16_the_folder_is_made_at_the_first_start_and_loaded_and_verified_later(
    tmp_path: Path,
) -> None:
    home = tmp_path / "storage" / "node"
    with library.Node(home) as node:
        node.client.produce("t", b"one")
    with library.Node(home) as node:
        assert [entry.value for entry in node.client.pull("t")] == [b"one"]

    (files,) = [
        row
        for row in duckrow(f"doctor --files -o jsonl --set node.data={home}").rows
        if row["check"] == "files" and "row" in row["said"]
    ]
    assert (files["state"], files["said"][:27]) == ("ok", "every byte of the row is wh")


def test_s2_17_a_client_that_stops_in_the_middle_of_its_request_holds_up_nobody() -> None:
    head = requests.request(2, Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
    frame = b"".join(frames.encode(head))

    with library.Node() as node, Wire(node.url.removeprefix("duck+unix://")) as half:
        for end in range(1, len(frame)):
            half.socket.sendall(frame[end - 1 : end])
            assert node.client.produce("t", b"v").number == end
