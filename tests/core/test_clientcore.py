"""The client's core against a real state: exactly once and in order, one break at a time."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from core.clientkit import Client, number, refuse_once, result, values_of
from core.nodetoy import Toy
from duckrow.node import asks, makers, requests
from duckrow.node.clientcalls import Call
from duckrow.node.commands import Kind, decode_head
from duckrow.node.errors import (
    Conflict,
    DuckrowError,
    Exists,
    Full,
    LimitExceeded,
    NoQuorum,
    NotFound,
    Refused,
    Timeout,
)
from duckrow.node.limits import CLIENT_REQUESTS_MAX, ENTRY_BYTES_MAX, LANE_RESULTS_MAX
from duckrow.node.requests import Ask
from duckrow.node.slots import Slot


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def client(toy: Toy) -> Client:
    client = Client(toy)
    client.run()
    return client


# -- gathering ------------------------------------------------------------------------------------


def test_what_comes_while_a_batch_is_out_shares_the_next(client: Client, toy: Toy) -> None:
    calls = [client.core.produce("t", b"0")]
    client.send()
    calls += [client.core.produce("t", b"%d" % i) for i in range(1, 10)]
    client.run()

    assert [number(call) for call in calls] == [*range(1, 11)]
    assert len(toy.orders) == 2


def test_full_batches_do_not_wait_for_each_other(client: Client) -> None:
    call = client.core.produce_many("t", [bytes(1000)] * 10_000)
    client.send()

    assert len(client.connection.inbox) == 8  # as many as may be on their way
    client.run()
    assert call.result().runs == [("t", 0, 1, 10_000, *call.result().runs[0][4:])]


def test_a_batch_that_was_answered_does_not_wait_for_the_garbage_collector(client: Client) -> None:
    gc.collect()
    gc.disable()
    try:
        client.core.produce_many("t", [bytes(1000)] * 10_000)
        client.run()
        left = [each for each in gc.get_objects() if isinstance(each, Slot)]
    finally:
        gc.enable()

    assert left == []


def test_entries_with_ids_or_an_expected_number_are_judged_alone(client: Client, toy: Toy) -> None:
    client.core.produce("t", b"0")
    client.send()
    calls = [client.core.produce("t", b"%d" % i, id_=b"same") for i in range(3)]
    expected = client.core.produce("t", b"x", expect_last=7)
    last = client.core.produce("t", b"y")
    client.run()

    assert [number(call) for call in calls] == [2, 2, 2]
    assert result(expected) is Conflict
    assert number(last) == 3
    assert values_of(toy) == [b"0", b"0", b"y"]


def test_calls_that_do_not_fit_together_are_tried_one_by_one(client: Client, toy: Toy) -> None:
    toy.row.create("t", max_entries=3, when_full="reject")
    client.core.produce("t", b"0")
    client.send()
    calls = [client.core.produce("t", b"%d" % i) for i in range(1, 6)]
    client.run()

    assert [result(call) is Full for call in calls] == [False, False, True, True, True]
    assert values_of(toy) == [b"0", b"1", b"2"]


def test_the_window_of_the_node_is_never_exceeded(client: Client) -> None:
    for index in range(200):
        client.core.produce(f"t{index}", b"v")
        client.core.pull(Ask("t"))
    client.send()
    verbs = Counter(verb for _, verb, *_ in client.connection.inbox)

    assert verbs == {requests.Verb.ORDER: 63, requests.Verb.PULL: 63}


# -- arguments ------------------------------------------------------------------------------------


def test_bytes_come_in_many_kinds(client: Client, toy: Toy) -> None:
    client.core.produce_many("t", ["é", b"b", bytearray(b"c"), memoryview(b"d")])
    client.core.produce_many("t", (b"e", b"f"), keys=["k", None])
    client.run()

    assert values_of(toy) == ["é".encode(), b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("value", [1, None, ["a"], 1.5])
def test_what_is_no_value_is_refused_at_once(client: Client, value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        client.core.produce("t", value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        client.core.produce_many("t", [b"a", value])  # type: ignore[list-item]
    assert client.core.idle


@pytest.mark.parametrize("values", [b"abc", "abc"])
def test_one_value_is_not_many(client: Client, values: bytes) -> None:
    with pytest.raises(TypeError, match="in a list"):
        client.core.produce_many("t", values)  # type: ignore[arg-type]


def test_wrong_arguments_never_reach_a_batch(client: Client) -> None:
    core = client.core
    makes: list[Callable[[], Call]] = [
        lambda: core.produce("no/name", b""),
        lambda: core.produce("t", b"", partition=1_024),
        lambda: core.produce("t", b"", partition=-1),
        lambda: core.produce("t", b"", id_=b""),
        lambda: core.produce("t", b"", id_=b"i" * 65),
        lambda: core.produce("t", b"", expect_last=-1),
        lambda: core.produce("t", b"", headers={"h": 1}),  # type: ignore[dict-item]
        lambda: core.produce("t", bytes(ENTRY_BYTES_MAX + 1)),
        lambda: core.produce("t", bytes(ENTRY_BYTES_MAX), key=b"k"),
        lambda: core.produce_many("t", [b"a"], keys=[b"a", b"b"]),
        lambda: core.produce_many("t", [b"a"], headers=[]),
        lambda: core.produce_many("t", [b"a", bytes(ENTRY_BYTES_MAX + 1)]),
    ]
    for make in makes:
        with pytest.raises(Refused):
            make()

    assert core.idle


def test_the_largest_entry_and_many_empty_ones_fit(client: Client, toy: Toy) -> None:
    sizes = [ENTRY_BYTES_MAX, 0, ENTRY_BYTES_MAX - 1, 0]
    client.core.produce_many("t", [bytes(size) for size in sizes] + [b""] * 100_000)
    client.run()

    assert [len(value) for value in values_of(toy)] == sizes + [0] * 100_000


# -- lost connections -----------------------------------------------------------------------------


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


def test_pulls_that_are_given_up_leave_room_for_others(client: Client) -> None:
    for _ in range(3 * CLIENT_REQUESTS_MAX):
        call = client.core.pull(Ask("t"))
        client.send()
        client.core.give_up(call, Timeout("late"))
    client.send()
    asked = Counter(verb for _, verb, *_ in client.connection.inbox)

    assert asked[requests.Verb.PULL] == asked[requests.Verb.CANCEL] == 3 * CLIENT_REQUESTS_MAX
    assert client.core.idle


# -- a node that does not take it --------------------------------------------------------------------


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


# -- giving up ------------------------------------------------------------------------------------------


def number_of_next(client: Client) -> int | None:
    call = client.core.produce("t", b"next")
    client.run()
    return number(call)


def test_what_was_not_sent_was_certainly_not_written(client: Client, toy: Toy) -> None:
    first = client.core.produce("t", b"1")
    client.send()
    second = client.core.produce("t", b"2")
    client.core.give_up(second, Timeout("no answer came"))
    client.run()

    assert number(first) == 1
    assert result(second) is NoQuorum
    assert "nothing was written" in str(second.error)
    assert values_of(toy) == [b"1"]


def test_what_was_sent_is_withdrawn_if_it_has_not_come(client: Client, toy: Toy) -> None:
    call = client.core.produce("t", b"v")
    client.send()
    client.connection.inbox.clear()  # on its way when the connection broke
    client.core.give_up(call, Timeout("no answer came"))
    client.lose()
    client.run()

    assert result(call) is Timeout
    assert toy.log == {}
    assert number_of_next(client) == 1


def test_a_batch_that_is_shared_is_not_withdrawn_for_one(client: Client, toy: Toy) -> None:
    client.core.produce("t", b"0")
    client.send()
    one, two = client.core.produce("t", b"1"), client.core.produce("t", b"2")
    client.take_and_send()
    client.core.give_up(one, Timeout("no answer came"))
    client.run()

    assert result(one) is Timeout
    assert number(two) == 3
    assert values_of(toy) == [b"0", b"1", b"2"]


def test_a_batch_that_waits_for_room_is_withdrawn(client: Client, toy: Toy) -> None:
    toy.row.create("t", max_entries=1, when_full="block")
    kept, left, later = [client.core.produce("t", b"%d" % i, id_=b"%d" % i) for i in range(3)]
    client.run()
    client.core.give_up(left, Timeout("no answer came"))
    client.run()
    toy.apply(makers.prune(toy.row.turn(), "t", 1))
    client.run()

    assert (number(kept), result(left), number(later)) == (1, Timeout, 2)
    assert values_of(toy) == [b"0", b"2"]


# -- waiting in the row -----------------------------------------------------------------------------------


def test_waiting_batches_hold_up_nothing_else(client: Client, toy: Toy) -> None:
    toy.row.create("t", max_entries=1, when_full="block")
    waiting = [client.core.produce("t", b"%d" % i) for i in range(2)]
    client.run()
    waiting += [client.core.produce("t", b"%d" % i) for i in range(2, 5)]
    other = client.core.produce("u", b"x")
    client.run()

    assert number(other) == 1
    assert [call.done for call in waiting] == [True, False, False, False, False]
    for upto in range(1, 5):
        toy.apply(makers.prune(toy.row.turn(), "t", upto))
        client.run()
    assert [number(call) for call in waiting] == [1, 2, 3, 4, 5]


def test_a_batch_that_waits_is_found_again_after_a_reconnect(client: Client, toy: Toy) -> None:
    toy.row.create("t", max_entries=1, when_full="block")
    calls = [client.core.produce("t", b"%d" % i, id_=b"%d" % i) for i in range(2)]
    client.run()
    client.lose()
    client.run()
    toy.apply(makers.prune(toy.row.turn(), "t", 1))
    client.run()

    assert [number(call) for call in calls] == [1, 2]
    assert values_of(toy) == [b"0", b"1"]


def test_more_than_the_row_lets_wait_waits_here(client: Client, toy: Toy) -> None:
    toy.row.create("t", max_entries=1, when_full="block")
    calls = [client.core.produce("t", b"%d" % i, id_=b"%d" % i) for i in range(100)]
    client.run()
    for upto in range(1, 100):
        toy.apply(makers.prune(toy.row.turn(), "t", upto))
        client.run()

    assert [number(call) for call in calls] == [*range(1, 101)]


def test_nothing_runs_so_far_ahead_of_a_batch_that_waits_that_its_answer_is_forgotten(
    client: Client, toy: Toy
) -> None:
    """While it waits others are refused, and each takes a seq; the row keeps the last answers."""
    toy.row.create("t", max_entries=1, when_full="slot")
    kept, waits = [client.core.produce("t", b"%d" % i, id_=b"%d" % i) for i in range(2)]
    client.run()
    others = [client.core.produce("t", b"x", id_=b"x%d" % i) for i in range(100)]
    client.run()

    ahead = LANE_RESULTS_MAX - 1
    assert [call.done for call in others] == [True] * ahead + [False] * (100 - ahead)
    client.lose()  # and meanwhile there is room
    toy.apply(makers.prune(toy.row.turn(), "t", 1))
    client.run()

    assert (number(kept), number(waits)) == (1, 2)
    assert not others.pop(ahead).done  # the next one took the slot
    assert {result(call) for call in others} == {Full}


def test_an_accepted_entry_that_waits_has_its_receipt_at_once(client: Client, toy: Toy) -> None:
    toy.row.create("t", max_entries=1, when_full="block")
    client.core.produce("t", b"0")
    client.run()
    call = client.core.produce("t", b"1", accepted=True)
    client.run()

    assert number(call) is None
    assert client.core.idle
    toy.apply(makers.prune(toy.row.turn(), "t", 1))
    client.run()
    assert values_of(toy) == [b"0", b"1"]


# -- topics that change ---------------------------------------------------------------------------------


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


# -- another row ------------------------------------------------------------------------------------------


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


def test_an_entry_larger_than_a_frame_names_its_limit(client: Client) -> None:
    with pytest.raises(LimitExceeded, match="1,048,576"):
        client.core.produce("t", bytes(2 * ENTRY_BYTES_MAX))


def test_nobody_waits_for_a_topic_that_cannot_be() -> None:
    with pytest.raises(Refused, match="the topic name 'my rides' is not allowed"):
        asks.pull("my rides", 0, None, 1, 1, 0, 0, None)
    with pytest.raises(Refused, match="the topic name 'my rides' is not allowed"):
        asks.Following("my rides", 0, None).wish()
