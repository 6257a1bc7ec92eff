"""What a client does with batches that were accepted, and are not known to be ordered."""

from __future__ import annotations

import pytest

from core.clientkit import Client, number, result, values_of
from core.nodetoy import Toy
from duckrow.node.commands import decode_head
from duckrow.node.errors import Disconnected, Full, NoQuorum, Refused, Timeout
from duckrow.node.limits import CLIENT_ACCEPTED_MAX, CLIENT_BYTES_MAX, LANE_RESULTS_MAX


@pytest.fixture
def far() -> Toy:
    """A machine that reaches no majority."""
    toy = Toy()
    toy.is_cut_off = True
    return toy


@pytest.fixture
def near() -> Toy:
    return Toy()


@pytest.fixture
def client(far: Toy) -> Client:
    client = Client(far)
    client.run()
    return client


def accept(client: Client, value: bytes) -> None:
    call = client.core.produce("t", value, accepted=True)
    client.run()
    assert number(call) is None


def heal(toy: Toy) -> None:
    """The machine reaches the others again: what is staged there is ordered."""
    toy.is_cut_off = False
    staged, toy.staged = toy.staged, []
    for command in staged:
        toy.apply(command)


def test_what_was_accepted_goes_with_its_client_before_what_came_later(
    client: Client, near: Toy
) -> None:
    accept(client, b"1")
    accept(client, b"2")
    later = client.core.produce("t", b"3")
    client.send()
    client.lose(to=near)
    client.run()

    assert number(later) == 3
    assert values_of(near) == [b"1", b"2", b"3"]


def test_the_copy_that_was_left_behind_is_the_second(client: Client, far: Toy, near: Toy) -> None:
    accept(client, b"1")
    client.lose(to=near)
    client.run()
    near.staged = far.staged
    heal(near)

    assert values_of(near) == [b"1"]


def test_a_machine_that_forgot_what_it_had_accepted_gets_it_again(client: Client, far: Toy) -> None:
    """Its power failed, at a level that does not wait for the disk."""
    accept(client, b"1")
    far.staged.clear()
    heal(far)
    client.lose()
    later = client.core.produce("t", b"2")
    client.run()

    assert number(later) == 2
    assert values_of(far) == [b"1", b"2"]


def test_what_the_row_misses_goes_again_over_the_same_connection(client: Client, far: Toy) -> None:
    accept(client, b"1")
    accept(client, b"2")
    far.staged.clear()
    heal(far)
    later = client.core.produce("t", b"3")
    client.run()

    assert number(later) == 3
    assert values_of(far) == [b"1", b"2", b"3"]


def test_a_client_is_at_rest_while_only_accepted_batches_are_on_their_way(client: Client) -> None:
    accept(client, b"1")
    assert client.core.idle
    client.core.lost()
    assert not client.core.idle  # another machine should have it


def test_what_was_ordered_is_kept_no_more(client: Client, far: Toy, near: Toy) -> None:
    accept(client, b"1")
    heal(far)
    client.run()
    client.lose(to=near)
    client.run()

    assert client.core.idle
    assert near.orders == []


def test_what_was_accepted_is_not_withdrawn_by_whoever_loses_patience(
    client: Client, near: Toy
) -> None:
    call = client.core.produce("t", b"1", accepted=True)
    client.send()
    client.toy.take(client.connection)  # it was accepted, and the answer is on its way
    client.core.give_up(call, Timeout("no answer came"))
    client.run()
    client.lose(to=near)
    client.run()

    assert result(call) is Timeout
    assert values_of(near) == [b"1"]


def test_a_full_disk_elsewhere_does_not_withdraw_what_was_accepted(
    client: Client, near: Toy
) -> None:
    accept(client, b"1")
    full: list[Full | None] = [Full("the disk is full"), Full("the disk is full")]
    near.refuse = lambda: full.pop(0) if full else None
    client.lose(to=near)
    behind = client.core.produce("t", b"2")
    client.run()

    assert result(behind) is Full  # at once, and not when its time is over
    assert values_of(near) == [b"1"]


def test_nothing_new_overtakes_what_was_accepted_while_nobody_takes_it(
    client: Client, near: Toy
) -> None:
    accept(client, b"1")
    busy: list[NoQuorum | None] = [NoQuorum("busy")]
    near.refuse = lambda: busy.pop(0) if busy else None
    client.lose(to=near)
    client.core.produce("t", b"2")
    client.run()

    assert values_of(near) == [b"1", b"2"]


def test_calls_that_do_not_fit_together_are_not_put_behind_what_was_accepted_after_them(
    near: Toy,
) -> None:
    near.row.create("t", max_bytes=400)
    client = Client(near)
    client.run()
    values = [b"%d" % i * 100 for i in range(6)]
    client.core.produce("t", values[0])
    client.send()
    together = [client.core.produce("t", value) for value in values[1:5]]
    after = client.core.produce("t", values[5], id_=b"5", accepted=True)
    client.take_and_send()
    batch, accepted = client.connection.inbox
    near.is_cut_off = True  # its machine has it on the disk before the row has what comes first
    client.connection.inbox = [accepted]
    near.take(client.connection)
    near.is_cut_off = False
    client.connection.inbox = [batch]
    client.take_and_send()
    heal(near)
    client.run()

    assert number(after) is None
    assert {result(call) for call in together} == {Refused}
    assert values_of(near) == [values[0], values[5]]


def test_of_very_many_accepted_batches_the_oldest_are_left_to_their_machine(
    client: Client, far: Toy, near: Toy
) -> None:
    for index in range(CLIENT_ACCEPTED_MAX + 10):
        accept(client, b"%d" % index)
    client.lose(to=near)
    later = client.core.produce("t", b"later")
    client.run()

    assert decode_head(near.orders[0].head).seq == 11
    assert number(later) == 1  # the lane could not move, and another one was begun
    heal(far)
    assert len(values_of(far)) == CLIENT_ACCEPTED_MAX + 10


def test_large_accepted_batches_are_kept_up_to_a_size(client: Client, near: Toy) -> None:
    for index in range(40):
        accept(client, bytes([index]) * 1_000_000)
    client.lose(to=near)
    client.run()

    first = decode_head(near.orders[0].head).seq
    assert 40 - first + 1 == CLIENT_BYTES_MAX // 1_000_064


def test_accepted_batches_may_run_ahead_of_the_order(client: Client, near: Toy) -> None:
    for index in range(3 * LANE_RESULTS_MAX):
        accept(client, b"%d" % index)
    client.lose(to=near)
    client.run()

    assert len(values_of(near)) == 3 * LANE_RESULTS_MAX


def test_a_client_that_is_closed_leaves_what_was_accepted_to_its_machine(
    client: Client, far: Toy
) -> None:
    accept(client, b"1")
    client.core.fail(Disconnected("this client was closed"))
    assert client.core.idle
    heal(far)

    assert values_of(far) == [b"1"]
