"""The core of a client against a real state: connections that break, nodes that refuse, rows that change."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from core.clientkit import PID, Client, number, number_of_next, refuse_once, result, values_of
from core.nodetoy import Connection, Toy
from duckrow.node import makers, requests
from duckrow.node.clientcalls import Call, ReceiptName
from duckrow.node.clientcore import ClientCore
from duckrow.node.commands import Kind, decode_head
from duckrow.node.effects import Code, Result
from duckrow.node.errors import (
    Conflict,
    Disconnected,
    DuckrowError,
    Exists,
    Full,
    NoQuorum,
    NotFound,
    Refused,
    Timeout,
)
from duckrow.node.limits import CLIENT_REQUESTS_MAX
from duckrow.node.requests import Ask


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def client(toy: Toy) -> Client:
    client = Client(toy)
    client.run()
    return client


def test_an_answer_that_was_lost_is_asked_for_again(client: Client, toy: Toy) -> None:
    call = client.core.produce("t", b"v")
    client.send()
    toy.take(client.connection)
    client.lose()
    client.run()

    assert number(call) == 1
    assert values_of(toy) == [b"v"]


def test_batches_go_again_in_their_order(client: Client, toy: Toy) -> None:
    call = client.core.produce_many("t", [b"%06d" % i + bytes(994) for i in range(5_000)])
    client.send()
    for _ in range(2):
        toy.take(client.connection)
    client.lose()
    client.run()

    assert call.result().last == 5_000
    assert [int(value[:6]) for value in values_of(toy)] == [*range(5_000)]


def test_a_lane_that_nobody_has_begun_is_not_one_that_is_gone(client: Client, toy: Toy) -> None:
    """The first batch is still to come, so nothing of the second can have been applied."""
    calls = [client.core.produce("t", bytes([i]) * 700_000) for i in range(2)]
    client.send()
    assert len(client.connection.inbox) == 2
    client.lose()
    refuse_once(toy, NoQuorum("busy"))
    client.run()

    assert [number(call) for call in calls] == [1, 2]


def test_a_doubt_about_a_part_is_a_doubt_about_the_call(client: Client, toy: Toy) -> None:
    refuse_once(toy, Full("no room"))
    call = client.core.produce_many("t", [bytes(700_000)] * 2)
    client.send()
    toy.take(client.connection)
    client.take()
    client.lose()
    toy.lineage += 1
    client.run()

    assert result(call) is Timeout


def test_what_an_old_connection_still_holds_changes_nothing(client: Client, toy: Toy) -> None:
    """The topic was deleted in between, so nobody remembers the lane."""
    first = client.core.produce("t", b"old")
    client.send()
    old = client.lose()
    client.run()
    toy.apply(makers.delete(toy.row.turn(), "t"))
    second = client.core.produce("t", b"new")  # seq 2 of a lane that is gone
    client.send()
    toy.take(client.connection)  # hello was said; the batch: the lane is unknown
    toy.take(old)  # makes the topic again, with seq 1
    client.run()

    assert (number(first), number(second)) == (1, 2)
    assert values_of(toy) == [b"old", b"new"]


def test_a_pull_is_asked_again_and_one_that_was_given_up_is_not(client: Client) -> None:
    kept, left = client.core.pull(Ask("t")), client.core.pull(Ask("u"))
    client.send()
    client.core.give_up(left, Timeout("late"))
    client.lose()
    client.send()
    client.toy.take(client.connection)
    client.take()
    client.send()

    assert [fields[0] for _, _, fields, _ in client.connection.inbox] == ["t"]
    assert result(left) is Timeout
    assert not kept.done


WITNESS = Refused("it keeps no row", witness="w")
NAME = ReceiptName("t", 0, PID, 1, 1, 0)


@pytest.mark.parametrize(
    ("begin", "error"),
    [
        (lambda core: core.pull(Ask("t")), NoQuorum("it is behind")),
        (lambda core: core.pull(Ask("t")), WITNESS),
        (lambda core: core.receipt(NAME, wait=False), WITNESS),
    ],
)
def test_a_read_that_a_node_cannot_serve_goes_to_another_one_if_there_is_one(
    begin: Callable[[ClientCore], Call], error: DuckrowError
) -> None:
    def ask(*, others: bool) -> tuple[ClientCore, Call]:
        core = ClientCore(PID, wall_us=lambda: 0, others=others)
        core.connected()
        connection = Connection()
        connection.send(core.data_to_send())
        Toy().take(connection)
        core.receive_data(connection.answers.pop())
        call = begin(core)
        connection.send(core.data_to_send())
        connection.answer(requests.failure(connection.inbox.pop()[0], error))
        core.receive_data(connection.answers.pop())
        return core, call

    core, call = ask(others=False)
    core.check_turned_away()
    assert result(call) is type(error)

    core, call = ask(others=True)
    with pytest.raises(Disconnected, match=str(error)):
        core.check_turned_away()
    assert not call.done and not core.idle


def test_pulls_that_are_given_up_leave_room_for_others(client: Client) -> None:
    for _ in range(3 * CLIENT_REQUESTS_MAX):
        call = client.core.pull(Ask("t"))
        client.send()
        client.core.give_up(call, Timeout("late"))
    client.send()
    asked = Counter(verb for _, verb, *_ in client.connection.inbox)

    assert asked[requests.Verb.PULL] == asked[requests.Verb.CANCEL] == 3 * CLIENT_REQUESTS_MAX
    assert client.core.idle


def test_a_full_disk_fails_one_call_and_the_lane_goes_on(client: Client, toy: Toy) -> None:
    refuse_once(toy, Full("the disk is full"))
    first = client.core.produce("t", b"1")
    client.send()
    second = client.core.produce("t", b"2")
    client.run()

    assert result(first) is Full
    assert number(second) == 1
    assert [decode_head(each.head).kind for each in toy.orders] == [Kind.PRODUCE]


def test_what_a_full_disk_has_refused_leaves_nothing_in_the_row(client: Client, toy: Toy) -> None:
    """A skip for each would fill the disk further, down to the last of the reserve."""
    full: list[DuckrowError | None] = [Full("no room") for _ in range(6)]
    toy.refuse = lambda: full.pop(0) if full else None
    pipeline = [client.core.produce_many("t", [bytes(600_000)]) for _ in range(5)]
    alone = client.core.produce("u", b"v", id_="1")
    client.run()
    after = client.core.produce("t", b"after")
    client.run()

    assert {result(call) for call in [*pipeline, alone]} == {Full}
    (command,) = toy.orders
    assert (decode_head(command.head).seq, number(after)) == (1, 1)


def test_a_refusal_in_the_middle_of_a_pipeline_costs_its_own_part(client: Client, toy: Toy) -> None:
    lanes = [client.core.produce_many("t", [bytes([i]) * 600_000]) for i in range(6)]
    answers: list[DuckrowError | None] = [None, None, Full("no room"), None, None, None]
    toy.refuse = lambda: answers.pop(0) if answers else None
    client.run()

    assert [result(call) is Full for call in lanes] == [False, False, True, False, False, False]
    assert [value[0] for value in values_of(toy)] == [0, 1, 3, 4, 5]


def test_the_rest_of_a_call_that_failed_is_not_sent(client: Client, toy: Toy) -> None:
    refuse_once(toy, Full("no room"))
    call = client.core.produce_many("t", [bytes(1000)] * 20_000)
    after = client.core.produce("t", b"after")
    client.run()
    assert call.error is not None
    written = values_of(toy)

    assert f"({len(written) - 1:,} entries of the call were written)" in str(call.error)
    assert len(written) < 10_000  # of the eight batches that were out
    assert number(after) == len(written)


def test_a_busy_node_is_asked_again(client: Client, toy: Toy) -> None:
    refuse_once(toy, NoQuorum("busy"), NoQuorum("busy"))
    call = client.core.produce("t", b"v")
    client.send()
    toy.take(client.connection)
    client.take()

    assert client.core.pause_seconds() == 1.0
    assert client.core.data_to_send() == []
    client.run()
    assert number(call) == 1


def test_what_waits_is_known_without_a_look_at_every_lane(client: Client) -> None:
    """Whoever produces and does not wait asks for it each time, with however many topics."""
    for n in range(500):
        client.core.produce(f"t{n}", b"12")
    waiting, steps = client.core.unsent_bytes, 0

    def count(_frame: FrameType, _event: str, _arg: object) -> Callable[..., Any]:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    assert client.core.unsent_bytes == waiting
    sys.settrace(before)

    assert waiting == 500 * 10
    assert steps < 50
    client.run()
    assert client.core.unsent_bytes == 0


@pytest.mark.parametrize("how", ["given up", "lost", "another row", "the end"])
def test_nothing_waits_any_more_however_it_went(client: Client, toy: Toy, how: str) -> None:
    client.core.produce("t", b"0")
    client.run()
    calls = [client.core.produce(topic, b"12") for topic in ("t", "u")]
    client.send()
    calls += [client.core.produce(topic, b"12") for topic in ("t", "u") for _ in range(2)]
    assert client.core.unsent_bytes == 4 * 10  # of each topic the first is on its way
    if how == "given up":
        for call in calls:
            client.core.give_up(call, Timeout("it was given up"))
    elif how != "the end":
        client.lose()
        toy.lineage += how == "another row"
    if how == "the end":
        client.core.fail(Timeout("it was closed"))
    else:
        client.run()

    assert client.core.unsent_bytes == 0


def test_a_clock_that_is_set_back_during_a_pause_ends_it(client: Client, toy: Toy) -> None:
    refuse_once(toy, NoQuorum("busy"))
    call = client.core.produce("t", b"1")
    client.take_and_send()
    client.take_and_send()
    assert client.core.pause_seconds()
    client.now -= 3_600_000_000

    assert client.core.pause_seconds() is None
    client.take_and_send()
    client.take_and_send()
    assert number(call) == 1


def test_a_skip_that_is_refused_goes_again_after_a_pause(client: Client, toy: Toy) -> None:
    call = client.core.produce("t", b"v")
    client.send()
    client.lose()
    client.core.give_up(call, Timeout("late"))
    refuse_once(toy, Full("hard"), Full("hard"))
    behind = client.core.produce("t", b"behind")
    for _ in range(2):  # the hello, and the skip
        client.send()
        toy.take(client.connection)
        client.take()

    assert result(call) is Timeout
    assert result(behind) is Full  # at once, and not when its time is over
    assert client.core.data_to_send() == []
    client.run()
    assert number_of_next(client) == 1
    assert [decode_head(each.head).kind for each in toy.orders] == [Kind.SKIP, Kind.PRODUCE]


def test_a_refusal_of_a_second_copy_waits_for_what_the_row_knows(client: Client, toy: Toy) -> None:
    call = client.core.produce("t", b"v")
    client.send()
    toy.take(client.connection)
    client.lose()
    refuse_once(toy, Full("no room"))
    client.run()

    assert number(call) == 1


def test_a_refusal_of_a_second_copy_is_told_when_the_first_never_came(
    client: Client, toy: Toy
) -> None:
    call = client.core.produce("t", b"v")
    client.send()
    client.lose()
    refuse_once(toy, Full("no room"))
    client.run()

    assert result(call) is Full
    assert toy.log == {}


def test_an_answer_lost_by_a_stopping_node_is_asked_for_again(client: Client, toy: Toy) -> None:
    refuse_once(toy, Timeout("this node is stopping"))
    call = client.core.produce("t", b"v")
    client.run()

    assert number(call) == 1


def test_a_key_keeps_its_order_when_the_topic_grows(client: Client, toy: Toy) -> None:
    calls = [
        client.core.produce_many("t", [b"%d" % i + bytes(600_000)], keys=["k"]) for i in (0, 1)
    ]
    client.run()
    toy.row.configure("t", partitions=8)
    calls += [
        client.core.produce_many("t", [b"%d" % i + bytes(600_000)], keys=["k"]) for i in range(2, 6)
    ]
    client.send()
    toy.take(client.connection)
    client.take_and_send()
    calls += [client.core.produce_many("t", [b"%d" % i], keys=["k"]) for i in range(6, 9)]
    client.run()
    found = [call.result().runs[0] for call in calls]
    moved = {run.partition for run in found[2:]}

    assert [run.partition for run in found[:2]] == [0, 0]
    assert len(moved) == 1
    assert [v[0] - 48 for v in values_of(toy, partition=moved.pop())][-7:] == [*range(2, 9)]


def test_a_partition_may_be_named_that_the_client_has_not_heard_of(
    client: Client, toy: Toy
) -> None:
    toy.row.create("t", partitions=4)
    there = client.core.produce("t", b"v", partition=3)
    beyond = client.core.produce("t", b"v", partition=4)
    nowhere = client.core.produce("u", b"v", partition=1)
    client.run()

    assert there.result().partition == 3
    assert result(beyond) is NotFound
    assert result(nowhere) is NotFound
    assert toy.row.state.topic("u") is None


def test_a_topic_that_was_deleted_is_begun_anew(client: Client, toy: Toy) -> None:
    client.core.produce_many("t", [b"0"] * 3)
    client.core.produce("t", b"1", id_=b"1")
    client.run()
    toy.row.delete("t")
    calls = [client.core.produce("t", b"%d" % i, id_=b"%d" % i) for i in range(5)]
    client.run()

    assert [number(call) for call in calls] == [1, 2, 3, 4, 5]


def test_an_admin_lane_that_was_forgotten_is_begun_anew(client: Client, toy: Toy) -> None:
    first = client.core.order(lambda turn: makers.create(turn, "a"))
    client.run()
    toy.row.set(lanes_max=1)
    toy.row.produce("x")
    again = client.core.order(lambda turn: makers.create(turn, "a"))
    client.run()

    assert first.error is None
    assert result(again) is Exists


def test_on_another_row_nothing_is_taken_for_what_the_old_one_did(client: Client, toy: Toy) -> None:
    """A row that lost its end has the lane, with fewer seqs: they must not be answered by it."""
    for index in range(3):
        client.core.produce("t", b"%d" % index)
        client.run()
    doubtful, unsent = client.core.produce("t", b"d"), None
    client.send()
    unsent = client.core.produce("t", b"u")
    pull = client.core.pull(Ask("t", 3))
    client.lose()
    toy.lineage += 1
    client.run()

    assert result(doubtful) is Timeout
    assert number(unsent) == 4
    assert result(pull) is Conflict
    assert values_of(toy) == [b"0", b"1", b"2", b"u"]


def test_on_another_row_nobody_is_waited_for_until_it_comes_as_far_as_the_old_one(
    client: Client, toy: Toy
) -> None:
    """Its positions mean nothing there: a node of the new row would be behind them for ever."""
    client.core.produce("t", b"0")
    client.run()
    assert client.core._seen > 0
    client.lose()
    toy.lineage += 1
    client.run()

    assert client.core._seen == 0


def test_a_node_that_has_no_row_yet_is_no_other_row(client: Client, toy: Toy) -> None:
    """Its disk was lost, say: what is on its way there, and at the next node, goes on in its order."""
    client.core.produce("t", b"0")
    client.run()
    sent = client.core.produce("t", b"1")
    client.send()
    client.lose()
    toy.is_new = True
    client.run()
    client.lose()
    toy.is_new = False
    later = client.core.produce("t", b"2")
    client.run()

    assert (number(sent), number(later)) == (2, 3)
    assert values_of(toy) == [b"0", b"1", b"2"]
    assert len({decode_head(order.head).pid for order in toy.orders}) == 1


def test_another_row_is_seen_behind_a_node_that_had_none(client: Client, toy: Toy) -> None:
    client.core.produce("t", b"0")
    client.run()
    client.lose()
    toy.is_new = True
    client.run()
    doubtful = client.core.produce("t", b"1")
    client.send()
    client.lose()
    toy.is_new = False
    toy.lineage += 1
    client.run()

    assert result(doubtful) is Timeout


def test_who_was_told_a_number_by_a_receipt_is_shown_it_at_each_node() -> None:
    """Read your writes: a pull asks for what is known at the position of the last answer (PROTOCOL §8.3)."""
    core = ClientCore(PID, wall_us=lambda: 0)
    core.connected()
    connection = Connection()
    connection.send(core.data_to_send())
    Toy().take(connection)
    core.receive_data(connection.answers.pop())
    core.receipt(NAME, wait=False)
    connection.send(core.data_to_send())
    told = Result(Code.ORDERED, first=20, count=1, position=173)
    connection.answer(requests.answer(connection.inbox.pop()[0], *told))
    core.receive_data(connection.answers.pop())
    core.pull(Ask("t"))
    connection.send(core.data_to_send())

    ask = Ask.of(list(connection.inbox.pop()[2]))
    assert ask.seen == 173


def test_who_loses_patience_with_what_waits_in_a_lane_that_is_gone_does_not_hold_up_its_topic(
    client: Client, toy: Toy
) -> None:
    """A skip for it goes nowhere, and all lanes of the topic waited until it was settled."""
    toy.row.create("t", partitions=2, max_entries=1, when_full="block")
    for partition in (0, 1):
        client.core.produce("t", b"v", partition=partition)
        client.run()
    parked = client.core.produce("t", b"parked", partition=0)
    client.run()
    client.core.produce("t", b"behind", partition=0)
    client.core.produce("t", b"beside", partition=1)
    client.send()
    toy.row.set(lanes_max=1)
    behind, beside = client.connection.inbox
    client.connection.inbox = [behind]
    client.take_and_send()
    client.core.give_up(parked, Timeout("no answer came"))
    client.connection.inbox.append(beside)
    client.run()

    waiting = toy.row.state.waiting.rows.values()
    assert result(parked) is Timeout
    assert [each.partition for each in waiting] == [0, 0, 1], "what came behind it waits there, too"
