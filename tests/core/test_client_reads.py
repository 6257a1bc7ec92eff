"""The core of a client with more reads that wait at the node than may be under way."""

from __future__ import annotations

from collections import Counter

import pytest

from core.clientkit import Client
from core.nodetoy import Toy
from duckrow.node import frames, requests
from duckrow.node.asking import LONG_MAX, STANDING_MAX, TURN_US
from duckrow.node.clientcalls import Call, ReceiptName
from duckrow.node.cursors import FIRST, LAST, After
from duckrow.node.errors import Timeout
from duckrow.node.limits import CLIENT_REQUESTS_MAX
from duckrow.node.pulled import Pulled
from duckrow.node.requests import Ask, Outcome, Verb

SECONDS = 30
MANY = 3 * CLIENT_REQUESTS_MAX


@pytest.fixture
def client() -> Client:
    client = Client(Toy())
    client.run()
    return client


def pulls(client: Client, count: int = MANY, after: After = FIRST) -> list[Call]:
    asks = [Ask(f"t{i}", after, wait_us=SECONDS * 1_000_000) for i in range(count)]
    calls = [client.core.pull(ask) for ask in asks]
    client.send()
    return calls


def waits(client: Client) -> list[int]:
    """Of the pulls that the node has, in microseconds."""
    fields = [fields for _, verb, fields, _ in client.connection.inbox if verb == Verb.PULL]
    return [ask.wait_us for ask in map(Ask.of, fields)]


def answer(client: Client, index: int, *, missing: int = 0) -> str:
    """That pull has found nothing; its topic."""
    reference, _, fields, _ = client.connection.inbox.pop(index)
    found, body = requests.encode_found(Pulled(0, [], missing, FIRST, {}))
    head = requests.found(reference, Outcome.DONE, found)
    client.connection.tell(frames.encode(head, *body))
    client.take()
    client.send()
    assert isinstance(fields[0], str)
    return fields[0]


def test_who_asks_for_what_is_there_need_not_wait_for_who_waits(client: Client) -> None:
    pulls(client)
    client.core.receipt(ReceiptName("t", 0, bytes(16), 0, 1, 0), wait=True)
    client.core.ask(Verb.TOPIC, "t")
    client.send()
    asked = Counter(verb for _, verb, *_ in client.connection.inbox)

    assert asked == {Verb.PULL: STANDING_MAX, Verb.TOPIC: 1}


def test_few_pulls_wait_at_the_node_for_as_long_as_they_may(client: Client) -> None:
    pulls(client, LONG_MAX)

    assert waits(client) == [SECONDS * 1_000_000] * LONG_MAX


@pytest.mark.parametrize("after", [FIRST, LAST])
def test_of_many_pulls_each_is_asked_now_and_then(client: Client, after: After) -> None:
    calls = pulls(client, after=after)
    asked = Counter[str]()
    for _ in range(3 * MANY):
        short = [i for i, wait in enumerate(waits(client)) if wait <= TURN_US]
        client.now += TURN_US // (STANDING_MAX - LONG_MAX)
        asked[answer(client, short[0])] += 1

    assert not any(call.done for call in calls)
    turns = [asked[f"t{i}"] for i in range(LONG_MAX, MANY)]
    assert min(turns) >= 3
    assert max(turns) <= min(turns) + 2


def test_a_pull_that_takes_turns_ends_in_its_time(client: Client) -> None:
    *_, last = pulls(client, LONG_MAX + 1)
    for _ in range(SECONDS * 1_000_000 // TURN_US):
        assert not last.done
        client.now += TURN_US
        answer(client, LONG_MAX)

    assert last.done
    assert not last.result()


def test_where_nobody_is_let_wait_a_pull_that_takes_turns_is_asked_a_bounded_number_of_times(
    client: Client,
) -> None:
    *_, last = pulls(client, LONG_MAX + 1)
    for _ in range(SECONDS * 1_000_000 // TURN_US):
        assert not last.done
        answer(client, LONG_MAX)  # at once, as by a node that stops

    assert last.done


def test_a_pull_that_takes_turns_tells_what_it_missed(client: Client) -> None:
    *_, last = pulls(client, LONG_MAX + 1)
    answer(client, LONG_MAX, missing=7)

    assert last.result().missing == 7


def test_pulls_that_could_not_be_asked_yet_are_asked_over_the_next_connection(
    client: Client,
) -> None:
    calls = pulls(client)
    client.lose()
    client.send()
    client.toy.take(client.connection)
    client.take()
    client.send()
    for call in calls[1:]:
        client.core.give_up(call, Timeout("late"))
    client.send()
    left = Counter(verb for _, verb, *_ in client.connection.inbox)

    assert left[Verb.PULL] - left[Verb.CANCEL] == 1
    client.core.give_up(calls[0], Timeout("late"))
    client.send()
    assert client.core.idle
