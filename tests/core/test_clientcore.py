"""The client's core against a real state: exactly once and in order, one break at a time."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pytest

from core.clientkit import Client, number, number_of_next, result, values_of
from core.nodetoy import Toy
from duckrow.node import asks, makers, requests
from duckrow.node.clientcalls import Call
from duckrow.node.errors import (
    Conflict,
    Full,
    LimitExceeded,
    NoQuorum,
    Refused,
    Timeout,
)
from duckrow.node.limits import ENTRY_BYTES_MAX, LANE_RESULTS_MAX
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


def test_calls_that_do_not_fit_together_are_not_put_behind_a_later_one_that_waits(
    client: Client, toy: Toy
) -> None:
    toy.row.create("t", max_entries=3, when_full="block")
    client.core.produce_many("t", [b"0", b"1", b"2"])
    client.send()
    together = [client.core.produce("t", b"%d" % i) for i in (3, 4, 5)]
    client.run()
    after = client.core.produce("t", b"6", id_=b"6")
    client.run()
    toy.apply(makers.prune(toy.row.turn(), "t", 2))
    toy.apply(makers.configure(toy.row.turn(), "t", {"max_entries": 2}))
    client.run()

    assert {result(call) for call in together} == {Refused}
    assert number(after) == 4
    assert values_of(toy) == [b"0", b"1", b"2", b"6"]


def test_the_window_of_the_node_is_never_exceeded(client: Client) -> None:
    for index in range(200):
        client.core.produce(f"t{index}", b"v")
        client.core.pull(Ask("t"))
    client.send()
    verbs = Counter(verb for _, verb, *_ in client.connection.inbox)

    assert verbs == {requests.Verb.ORDER: 63, requests.Verb.PULL: 63}


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


def test_an_entry_larger_than_a_frame_names_its_limit(client: Client) -> None:
    with pytest.raises(LimitExceeded, match="1,048,576"):
        client.core.produce("t", bytes(2 * ENTRY_BYTES_MAX))


def test_nobody_waits_for_a_topic_that_cannot_be() -> None:
    with pytest.raises(Refused, match="the topic name 'my rides' is not allowed"):
        asks.pull("my rides", 0, None, 1, 1, 0, 0, None)
    with pytest.raises(Refused, match="the topic name 'my rides' is not allowed"):
        asks.Following("my rides", 0, None).wish()


def test_what_keys_bring_to_one_partition_shares_a_batch_only_as_far_as_they_fit(
    client: Client, toy: Toy
) -> None:
    """Each piece that goes to a partition counts with its keys and headers, like any other."""
    client.core.order(lambda turn: makers.create(turn, "t", {"partitions": 2}))
    client.core.produce("t", b"learns that there are two", partition=1)
    client.run()
    key = bytes(300_000)
    calls = [client.core.produce("t", b"%d" % i, key=key) for i in range(20)]
    client.run()
    assert all(call.error is None for call in calls)
    assert sum(map(len, (values_of(toy, partition=p) for p in (0, 1)))) == 21
