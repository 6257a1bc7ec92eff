"""Whatever breaks a client's core, in any order: each entry is there once, in the order of its calls."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.clientkit import Client
from core.nodetoy import Connection, Toy
from duckrow.node import makers
from duckrow.node.clientcalls import Call, Receipt, Receipts
from duckrow.node.errors import (
    DuckrowError,
    Full,
    NoQuorum,
    NotFound,
    Refused,
    Timeout,
)

TOPICS = ("t", "u")


class Storm:
    """Random calls, losses, refusals, delays and changes, from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.toy = Toy()
        self.toy.refuse = self.refusal
        self.client = Client(self.toy)
        if not seed % 3:
            self.client.core._boxes._most = 2  # then lanes that are over are forgotten
        self.old: list[Connection] = []
        self.calls: list[tuple[Call, list[bytes], bytes | None]] = []
        self.refusals = self.rng.choice((0.0, 0.0, 0.1, 0.3))
        self.blocks = self.rng.random() < 0.3
        self.count = 0
        self.deleted = False  # with a topic goes what it knew of producers

    def refusal(self) -> DuckrowError | None:
        if self.rng.random() >= self.refusals:
            return None
        return self.rng.choice((Full("full"), NoQuorum("busy", retry_after=0.01)))

    def fresh(self) -> bytes:
        self.count += 1
        return b"%06d" % self.count

    def produce(self) -> None:
        rng, core = self.rng, self.client.core
        topic = rng.choice(TOPICS)
        key = rng.choice((None, None, b"a", b"b"))
        accepted = rng.random() < 0.1
        if rng.random() < 0.5:
            values = [self.fresh()]
            call = core.produce(topic, values[0], key=key, accepted=accepted)
        else:
            size = rng.choice((0, 0, 300_000))
            values = [self.fresh() + bytes(size) for _ in range(rng.randint(1, 5))]
            keys = None if key is None else [key] * len(values)
            call = core.produce_many(topic, values, keys=keys, accepted=accepted)
        self.calls.append((call, values, key))

    def change(self) -> None:
        rng, topic = self.rng, self.rng.choice(TOPICS)
        kind = rng.random()
        if kind > 0.7 or (kind > 0.5 and not self.blocks):
            self.prune(topic)
            return
        turn = self.toy.row.turn()
        if kind < 0.3:
            now = self.toy.row.state.topic(topic)
            more = rng.randint(0, 2) + (now.policy.partitions if now else 1)
            self.toy.apply(makers.configure(turn, topic, {"partitions": more}))
        elif kind < 0.5:
            self.toy.apply(makers.delete(turn, topic))
            self.deleted = True
        else:
            policy = {"max_entries": rng.randint(6, 12), "when_full": "block"}
            self.toy.apply(makers.configure(turn, topic, policy))

    def prune(self, topic: str) -> None:
        now = self.toy.row.state.topic(topic)
        for partition in range(now.policy.partitions if now else 0):
            last = self.toy.row.at(topic, partition).last
            self.toy.apply(makers.prune(self.toy.row.turn(), topic, last, partition=partition))

    def step(self) -> None:
        rng, client = self.rng, self.client
        kind = rng.random()
        if kind < 0.3:
            self.produce()
        elif kind < 0.5:
            client.send()
        elif kind < 0.75:
            connection = rng.choice([client.connection, client.connection, *self.old])
            if connection.inbox:
                self.toy.take(connection)
        elif kind < 0.87:
            client.take()
        elif kind < 0.90:
            self.old.append(client.lose())
        elif kind < 0.93:
            self.change()
        elif kind < 0.96:
            call = rng.choice(self.calls)[0] if self.calls else Call()
            client.core.give_up(call, Timeout("no answer came"))
        else:
            client.now += 300_000

    def calm(self) -> None:
        """All is well again: everything has to come to an end."""
        self.refusals = 0.0
        for _ in range(100):
            self.client.run()
            if all(call.done for call, _, _ in self.calls) and self.client.core.idle:
                return
            for topic in TOPICS:
                self.prune(topic)
        raise AssertionError("some calls never end")

    def check(self) -> None:
        places: dict[bytes, list[tuple[int, int, int]]] = {}
        keys = {value: key for _, values, key in self.calls for value in values}
        for (topic, partition), entries in self.toy.log.items():
            # A copy that was slow begins its lane once more, in a topic that was made anew.
            new = [v for _, v in entries if all(t == topic for t, _, _ in places.get(v, ()))]
            for key in (None, b"a", b"b"):  # keys move between partitions, each in its order
                orders = [int(value[:6]) for value in new if keys[value] == key]
                assert orders == sorted(orders), f"{key!r} out of order in {topic}/{partition}"
            for place, value in entries:
                places.setdefault(value, []).append((topic, partition, place))
        for value, found in places.items():
            topics = [topic for topic, _, _ in found]
            assert len(set(topics)) == len(topics), f"{value[:6]!r} is in a topic twice"
        for call, values, _ in self.calls:
            self.check_call(call, [places.get(value, []) for value in values])

    def check_call(self, call: Call, found: Sequence[list[tuple[int, int, int]]]) -> None:
        error = call.error
        if error is None:
            if isinstance(call.value, Receipt):
                told = {(call.value.partition, call.value.number or 0)}
            else:
                assert isinstance(call.value, Receipts)
                told = {(partition, number) for _, partition, number in call.value}
            there = {place[1:] for places in found for place in places}
            assert {place for place in told if place[1]} <= there
            if all(number for _, number in told):
                assert all(found), "it was acknowledged, and is not there"
            return
        assert isinstance(error, Full | NoQuorum | Timeout | NotFound | Refused), error
        certain = not isinstance(error, Timeout) and "were written" not in str(error)
        if certain and not self.deleted:
            assert not any(found), f"{error!r}, and yet it is there"


@settings(max_examples=150, deadline=None)
@example(1030)
@given(st.integers(0, 1 << 32))
def test_whatever_breaks_each_entry_is_there_once_and_in_order(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(250):
        storm.step()
    storm.calm()
    storm.check()
