"""What a client reads: pulls that wait, follows with credit, and what they cost."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio

from duckrow.node import cursors, frames, makers, output, requests
from duckrow.node.commands import Command
from duckrow.node.effects import Code
from duckrow.node.limits import CLIENT_REQUESTS_MAX, MIB
from duckrow.node.pulled import Pulled
from duckrow.node.reading import Pull, Reader
from duckrow.node.requests import Ask, Outcome, Verb
from duckrow.node.session import Session

from .nodekit import keep_no_places
from .wire import PID, There, Wire, serve


def test_answers_come_in_the_order_in_which_they_are_known() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        pull = await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        topics = await wire.send(Verb.TOPICS)
        assert (await wire.answer())[0] == topics
        order = await wire.order(wire.batch([b"v"]))

        assert {(await wire.answer())[0] for _ in range(2)} == {pull, order}

    serve(work)


def test_where_readers_make_topics_a_produce_finds_none_before_the_first_of_them() -> None:
    async def work(there: There) -> None:
        keeper = there.keeper
        turn = makers.Turn(keeper.fresh_pid(), 1)
        await keeper.order(makers.settings(turn, {"create": "on-subscribe"}))
        wire, reader = await there.connect(), await there.connect()
        assert (await wire.produce(b"early")).code == Code.NOT_FOUND
        pull = await reader.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        follow = await reader.send(Verb.FOLLOW, *Ask("u").fields(), MIB)
        wrong = await reader.send(Verb.PULL, *Ask("no topic").fields())
        assert (await reader.failure())[:2] == (wrong, "refused")
        assert (await wire.produce(b"one")).code == Code.ORDERED
        assert (await reader.answer())[0] == pull
        assert (await wire.produce(b"two", topic="u")).code == Code.ORDERED
        assert (await reader.answer())[0] == follow

    serve(work)


@pytest.mark.parametrize("verb", [Verb.PULL, Verb.KEPT, Verb.FOLLOW])
def test_at_a_witness_nobody_waits_for_entries(verb: Verb) -> None:
    async def work(there: There) -> None:
        vars(there.keeper.row)["is_witness"] = True
        wire = await there.connect()
        credit = [MIB] if verb == Verb.FOLLOW else []
        asked = await wire.send(verb, *Ask("t", wait_us=60_000_000).fields(), *credit)
        reference, code, text, *_ = await wire.failure()
        assert (reference, code) == (asked, "refused")
        assert "ask another machine" in text

    serve(work)


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        (Verb.TOPICS, []),
        (Verb.TOPIC, ["t"]),
        (Verb.RECEIPT, ["t", 0, bytes(16), 1, 1, False]),
        (Verb.RECEIPT, ["t", 0, bytes(16), 1, 1, True]),
    ],
)
def test_a_witness_does_not_say_that_there_is_nothing_since_it_has_no_row(
    verb: Verb, fields: list[Any]
) -> None:
    """There were no topics, and who asked what became of an entry waited as long as he would."""

    async def work(there: There) -> None:
        vars(there.keeper.row)["is_witness"] = True
        wire = await there.connect()
        asked = await wire.send(verb, *fields)
        with trio.fail_after(1):
            reference, code, text, *_ = await wire.failure()
        assert (reference, code) == (asked, "refused")
        assert "ask another machine" in text

    serve(work)


def test_a_pull_that_waits_ends_empty_when_its_time_is_over() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        began = trio.current_time()
        pulled = await wire.pull(Ask("t", wait_us=3_000_000))

        assert pulled.batches == []
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)

    serve(work)


def test_the_time_of_a_pull_goes_on_while_the_node_comes_as_far_as_its_reader_has_seen() -> None:
    """Both together were more than who had asked would wait, and he was told of a time-out."""

    async def work(there: There) -> None:
        reader, writer = await there.connect(), await there.connect()
        seen = there.keeper.state.position + 1
        began = trio.current_time()
        asked = await reader.send(Verb.PULL, *Ask("t", wait_us=3_000_000, seen=seen).fields())
        await trio.sleep(2)
        assert (await writer.produce(b"one", topic="another")).code == Code.ORDERED
        assert (await reader.answer())[0] == asked
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)

    serve(work)


def test_a_pull_that_waits_tells_what_was_pruned_meanwhile() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"1", b"2", b"3")
        turn = makers.Turn(b"o" * 16, 1)
        await other.order(makers.prune(turn, "t", 3))
        await other.answer()
        await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        await trio.sleep(1)
        await other.produce(b"4")
        pulled = requests.decode_pulled(*(await wire.answer())[2:])

        assert (pulled.missing, [batch.start for batch in pulled.batches]) == (3, [4])

    serve(work)


def test_a_pull_that_finds_nothing_but_gaps_again_and_again_tells_all_of_them_together() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"1", b"2", b"3")

        def prune(seq: int, upto: int) -> Command:
            return makers.prune(makers.Turn(b"o" * 16, seq), "t", upto)

        await there.keeper.order(prune(1, 3))
        await wire.send(Verb.PULL, *Ask("t", after=1, wait_us=60_000_000).fields())
        await trio.sleep(1)
        there.keeper.submit(prune(2, 4), other.batch([b"4"]))  # in one item: it is never seen
        await trio.sleep(1)
        await other.order(other.batch([b"5"]))
        _, _, fields, body = await wire.answer()
        pulled = requests.decode_pulled(fields, body)

        assert [batch.start for batch in pulled.batches] == [5]
        assert pulled.missing == 3  # 2, 3, and 4

    serve(work)


def test_a_pull_that_waited_behind_a_gap_tells_where_its_archive_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it brings has no gap before it any more."""
    monkeypatch.setattr(Reader, "_archive", lambda _reader, _topic_id: "far away")

    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"1", b"2", b"3")
        await there.keeper.order(makers.prune(makers.Turn(b"o" * 16, 1), "t", 3))
        await wire.send(Verb.PULL, *Ask("t", after=1, wait_us=60_000_000).fields())
        await trio.sleep(1)
        await other.order(other.batch([b"4"]))
        _, _, fields, body = await wire.answer()
        pulled = requests.decode_pulled(fields, body)

        assert (pulled.missing, pulled.archive) == (2, "far away")

    serve(work)


def test_one_read_too_many_at_once_is_refused_and_the_others_go_on() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        ask = Ask("t", wait_us=60_000_000)
        pulls = [await wire.send(Verb.PULL, *ask.fields()) for _ in range(CLIENT_REQUESTS_MAX + 1)]
        assert (await wire.failure())[:2] == (pulls[-1], "limit")
        await (await there.connect()).produce(b"v")

        assert sorted([(await wire.answer())[0] for _ in pulls[:-1]]) == pulls[:-1]

    serve(work)


def test_a_pull_that_is_cancelled_is_not_answered() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        pull = await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        await wire.send(Verb.CANCEL, pull)
        assert await wire.ask(Verb.TOPICS) == [[], False]
        await (await there.connect()).produce(b"v")
        await trio.sleep(0.1)

        assert (await wire.ask(Verb.TOPICS))[1] is False
        assert there.keeper.waiters.statistics().waiting == 0

    serve(work)


def test_a_client_that_leaves_while_it_pulls_and_follows_leaves_nothing() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), 1000)
        await trio.sleep(1)
        assert there.keeper.waiters.statistics().waiting == 2
        await wire.stream.aclose()
        await trio.sleep(1)

        assert there.keeper.waiters.statistics().waiting == 0
        assert there.server.sessions == {}

    serve(work)


def test_a_session_that_ended_does_not_wait_for_the_garbage_collector() -> None:
    """The daemon looks for rings among old objects next to never."""

    async def work(there: There) -> None:
        wire, broken = await there.connect(), await there.connect()
        await wire.order(wire.batch([b"one"]))
        await wire.send(Verb.PULL, *Ask("none", wait_us=60_000_000).fields())
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), 1000)
        await trio.sleep(6)
        await broken.stream.send_all(b"\xff" * 8)
        await wire.stream.aclose()
        await trio.sleep(6)

        assert [each for each in gc.get_objects() if isinstance(each, Session)] == []

    gc.collect()
    gc.disable()
    try:
        serve(work)
    finally:
        gc.enable()


async def followed(wire: Wire, count: int) -> list[int]:
    """The first numbers of so many answers."""
    found = []
    for _ in range(count):
        _, outcome, fields, body = await wire.answer()
        assert outcome == Outcome.MORE
        found += [batch.start for batch in requests.decode_pulled(fields, body).batches]
    return found


def test_a_follow_sends_what_comes_until_its_credit_is_used_up() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        ask = Ask("t", limit=1)
        follow = await wire.send(Verb.FOLLOW, *ask.fields(), 2)
        await other.produce(b"1")
        await other.produce(b"2")
        assert await followed(wire, 1) == [1]
        await nothing_comes(wire)
        await wire.send(Verb.CREDIT, follow, MIB)
        assert await followed(wire, 1) == [2]
        await other.produce(b"3")
        assert await followed(wire, 1) == [3]
        await wire.send(Verb.CANCEL, follow)
        await wire.ask(Verb.TOPICS)
        assert there.keeper.waiters.statistics().waiting == 0

    serve(work)


def test_a_credit_of_so_many_bytes_is_of_so_many_and_not_of_one_more() -> None:
    """Each answer here has the same size; the one that uses the credit up is the last."""

    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        for value in (b"1", b"2", b"3", b"4", b"5", b"6"):
            await other.produce(value)
        await wire.send(Verb.PULL, *Ask("t", limit=1).fields())
        size = len((await wire.answer())[3])
        follow = await wire.send(Verb.FOLLOW, *Ask("t", limit=1).fields(), 2 * size)
        assert await followed(wire, 2) == [1, 2]
        await nothing_comes(wire)
        await wire.send(Verb.CREDIT, follow, size)
        assert await followed(wire, 1) == [3]
        await nothing_comes(wire)
        await wire.send(Verb.CREDIT, follow, 2 * size)
        assert await followed(wire, 2) == [4, 5]
        await nothing_comes(wire)

    serve(work)


def test_who_follows_a_topic_is_told_at_once_that_it_was_deleted() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"1")
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), MIB)
        assert await followed(wire, 1) == [1]
        await other.order(makers.delete(makers.Turn(PID, 1, 1), "t"))
        with trio.fail_after(1):
            _, code, text = await wire.failure()

        assert code == "conflict"
        assert "was deleted, and there is none now" in text

    serve(work)


def test_a_follow_without_credit_holds_up_no_node_that_stops() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"1")
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), 1)
        assert await followed(wire, 1) == [1]
        await other.produce(b"2")
        await trio.sleep(1)
        there.server.stop()
        with trio.fail_after(1):
            assert (await wire.failure())[1] == "no-quorum"
            await there.server.drain()

    serve(work, survives=False)


async def nothing_comes(wire: Wire) -> None:
    with trio.move_on_after(10) as scope:
        await wire.answer()
    assert scope.cancelled_caught, "more than the credit was sent"


def test_what_many_followers_at_one_place_are_shown_is_found_once() -> None:
    async def work(there: There) -> None:
        other = await there.connect()
        wires = [await there.connect() for _ in range(20)]
        for wire in wires:
            await wire.send(Verb.FOLLOW, *Ask("t").fields(), MIB)
        await trio.sleep(1)
        found, pull = 0, there.keeper.reader.pull

        async def counted(ask: Pull) -> Pulled:
            nonlocal found
            pulled = await pull(ask)
            found += bool(pulled.batches)
            return pulled

        there.keeper.reader.pull = counted  # type: ignore[method-assign]
        await other.produce(b"one")

        assert [await followed(wire, 1) for wire in wires] == [[1]] * 20
        assert found == 1

    serve(work)


def test_what_one_was_shown_is_not_shown_to_who_asks_for_something_else_or_later() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.produce(b"1", b"2", b"3")
        ask = Ask("t")

        async def numbers(ask: Ask) -> list[tuple[int, int]]:
            return [(batch.start, batch.stop) for batch in (await wire.pull(ask)).batches]

        assert await numbers(ask) == await numbers(ask) == [(1, 4)]
        assert await numbers(ask._replace(limit=2)) == [(1, 3)]
        assert await numbers(ask._replace(after=1)) == [(2, 4)]
        assert await numbers(ask._replace(topic="other")) == []
        await wire.order(makers.prune(makers.Turn(b"o" * 16, 1), "t", 2))
        await wire.answer()
        assert await numbers(ask) == [(3, 4)]
        await wire.order(makers.delete(makers.Turn(b"o" * 16, 2, 0, 1), "t"))
        await wire.answer()
        assert await numbers(ask) == []

    serve(work)


def test_who_was_told_a_number_elsewhere_is_shown_it_while_older_bodies_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The item that makes room is in the state for a second before the index knows what it numbered."""
    keep_no_places(monkeypatch)

    async def work(there: There) -> None:
        producer, reader, owner = [await there.connect() for _ in range(3)]
        store = there.keeper.row.store
        looking, place_of = trio.Event(), store.place_of

        async def slow(position: int) -> int:
            looking.set()
            await trio.sleep(1.0)
            return await place_of(position)

        async def shown(seen: int) -> list[int]:
            pulled = await reader.pull(Ask("t", after=1, seen=seen))
            return [batch.first for batch in pulled.batches]

        turns = makers.Turn(b"o" * 16, 1), makers.Turn(b"o" * 16, 2)
        await owner.order(makers.create(turns[0], "t", {"max_entries": 2, "when_full": "block"}))
        await owner.answer()
        for value in (b"one", b"two"):
            await producer.produce(value)
        await producer.order(producer.batch([b"three"]))
        _, outcome, *_ = await producer.answer()
        assert outcome == Outcome.MORE  # it waits for room
        store.place_of = slow  # type: ignore[method-assign]
        await owner.order(makers.prune(turns[1], "t", 1))
        await looking.wait()

        elsewhere = there.keeper.state.position  # where the third has its number already
        assert await shown(0) == [2]
        assert await shown(elsewhere) == [2, 3]

    serve(work)


def test_a_follow_from_the_end_begins_with_what_is_new() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"old")
        await wire.send(Verb.FOLLOW, *Ask("t", cursors.LAST).fields(), MIB)
        await trio.sleep(1)
        await other.produce(b"new")

        assert await followed(wire, 1) == [2]

    serve(work)


def test_a_follower_that_never_reads_costs_no_more_than_its_share() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), 1 << 40)
        for _ in range(12):
            await other.produce(b"x" * MIB)
        await trio.sleep(10)
        queued = [session.told()["queued"] for session in there.server.sessions.values()]

        assert MIB < max(queued) <= 3 * MIB
        assert len(await followed(wire, 12)) == 12, "and it goes on where it was"

    serve(work)


def test_a_client_that_asks_and_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "OUTPUT_BYTES_MAX", MIB)

    async def work(there: There) -> None:
        wire = await there.connect()
        request = b"".join(frames.encode(requests.request(1, Verb.PULL))) * 1000
        with pytest.raises(trio.BrokenResourceError):
            while True:
                for session in there.server.sessions.values():
                    assert session.told()["queued"] <= MIB
                await wire.stream.send_all(request)
        assert there.event("client_too_slow")

    serve(work)


def test_topics_and_clients_are_told_page_by_page() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        for n in range(1000):
            await wire.produce(b"v", topic=f"{'long.name.' * 12}{n:04d}")
        names: list[str] = []
        more = True
        while more:
            page, more = await wire.ask(Verb.TOPICS, *names[-1:])
            names += [name for name, *_ in page]
        others = [await there.connect(hello=False) for _ in range(250)]
        for n, other in enumerate(others):
            await other.hello(name=f"{'ü' * 400}{n}")  # as long as a hello takes
        ids: list[int] = []
        more = True
        while more:
            page, more = await wire.ask(Verb.CLIENTS, *ids[-1:])
            ids += [each["id"] for each in page]

        assert names == [f"{'long.name.' * 12}{n:04d}" for n in range(1000)]
        assert len(ids) == len(set(ids)) == 251

    serve(work)
