"""The core of a client that produces to very many topics, which come and go."""

from __future__ import annotations

import pytest

from core.clientkit import PID, Client, number, values_of
from core.nodetoy import Toy
from duckrow.node import outboxes
from duckrow.node.clientcalls import Receipt
from duckrow.node.commands import Produce, decode_head
from duckrow.node.errors import Timeout

MOST = 20


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def client(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(outboxes, "LANES_MAX", MOST)
    client = Client(toy)
    client.run()
    return client


def fill(client: Client, count: int = MOST) -> None:
    for i in range(count):
        client.core.produce(f"other{i}", b"x")
        client.run()


def lanes(client: Client) -> int:
    return len(client.core._boxes._boxes)


def test_lanes_of_which_nothing_is_under_way_are_bounded(client: Client) -> None:
    for _ in range(3):
        fill(client, 5 * MOST)

        assert lanes(client) <= MOST


def test_a_lane_that_was_forgotten_is_another_one_when_it_is_used_again(
    client: Client, toy: Toy
) -> None:
    first = client.core.produce("t", b"1")
    client.run()
    fill(client)
    second = client.core.produce("t", b"2")
    client.run()
    fill(client)
    third = client.core.produce("t", b"3")
    client.run()

    assert [number(call) for call in (first, second, third)] == [1, 2, 3]
    assert values_of(toy) == [b"1", b"2", b"3"]
    assert len({call.value.name.pid for call in (first, second, third)}) == 3


def test_a_lane_of_which_something_is_under_way_stays(client: Client, toy: Toy) -> None:
    toy.row.create("full", max_entries=1, when_full="block")
    calls = [client.core.produce("full", value) for value in (b"1", b"2")]
    client.run()
    toy.is_cut_off = True
    accepted = client.core.produce("t", b"3", accepted=True)
    client.run()
    toy.is_cut_off = False
    fill(client)
    client.lose()
    client.run()

    assert not calls[-1].done
    client.core.give_up(calls[-1], Timeout("late"))
    receipt = accepted.result()
    assert isinstance(receipt, Receipt)
    assert receipt.name.pid == PID
    assert values_of(toy) == [b"3"], "it went again over the next connection"
    client.run()
    assert client.core.idle


def test_a_topic_whose_partitions_were_forgotten_is_asked_for_them_again(
    client: Client, toy: Toy
) -> None:
    toy.row.create("t", partitions=3)
    calls = [client.core.produce("t", b"1", partition=2)]
    client.run()
    fill(client)
    calls.append(client.core.produce("t", b"2", partition=2))
    client.run()

    assert [number(call) for call in calls] == [1, 2]


def test_what_was_forgotten_while_a_call_is_put_into_its_lanes_is_not_what_it_needs(
    client: Client, toy: Toy
) -> None:
    toy.row.create("t", partitions=3)
    client.core.produce("t", b"1", partition=0)
    client.run()
    fill(client, MOST - lanes(client))
    client.core.produce_many("t", [b"2"] * 20, keys=[f"{i}" for i in range(20)])
    client.core.produce("t", b"3", key="1")
    client.send()
    heads = [decode_head(fields[0]) for _, _, fields, _ in client.connection.inbox]  # type: ignore[arg-type]

    assert {head.partition for head in heads} == {0, 1, 2}
    assert {Produce.of(head).partitions for head in heads} == {3}
    client.run()
    assert values_of(toy, partition=1)[-1] == b"3", "where its key belongs"
