"""Whatever breaks several machines and their clients: each entry is there once, and everybody is told what is so."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from core.machinekit import Client, Machine, Town
from duckrow.node import makers
from duckrow.node.capture import state_hash
from duckrow.node.clientcalls import Call, Receipt, Receipts
from duckrow.node.errors import Full, NoQuorum, Refused, Timeout

Does = Callable[[], object]
FEW = (
    *range(40),
    172,
    467,
    677,
    967,
)  # with what is refused at first, and is done then: these, and 0
MORE = range(1_000, 2_500)


class Wanted(NamedTuple):
    call: Call
    client: Client
    topic: str
    key: bytes | None
    values: list[bytes]


class Storm:
    """From one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.town = town = Town(rng)
        when_full = rng.choice(("block", "block", "reject", "slot"))
        town.row.create("parts", partitions=3)
        town.row.create("small", max_entries=6, when_full=when_full)
        town.row.create("grows")
        self.grows, self.deletes = rng.random() < 0.3, rng.random() < 0.4
        town.clients += [Client(town, 10 + i) for i in range(rng.randint(1, 3))]
        self.wanted: list[Wanted] = []
        self.count = 0
        self.faults = rng.sample(range(8), rng.randint(1, 5))
        self.faulty = rng.choice((0.02, 0.06, 0.15))
        for machine in town.machines:
            machine.tell_items(100)
            machine.turn()

    def play(self, steps: int) -> None:
        rng, town = self.rng, self.town
        for _ in range(steps):
            machine, client = rng.choice(town.machines), rng.choice(town.clients)
            if rng.random() < self.faulty:
                self.fault_of(machine, client)[rng.choice(self.faults)]()
            else:
                steps_of = self.steps_of(machine, client)
                rng.choices([does for _, does in steps_of], [often for often, _ in steps_of])[0]()

    def fault_of(self, machine: Machine, client: Client) -> list[Does]:
        return [
            machine.cut_off_or_back,
            machine.lose_link,
            machine.end_node,
            machine.end_bridge,
            machine.lose_power,
            machine.fill_or_empty,
            machine.refuse_next,
            client.lose,
        ]

    def steps_of(self, machine: Machine, client: Client) -> list[tuple[int, Does]]:
        """And how often each is done."""
        return [
            (15, lambda: self.produce(client)),
            (15, client.send),
            (15, client.ask),
            (13, lambda: client.take(self.rng.choice((None, 1, 2)))),
            (10, machine.bundle),
            (8, machine.sync),
            (8, machine.deliver),
            (10, machine.come_on),
            (1, machine.miss_the_others),
            (1, client.later),
            (1, self.give_up),
            (1, self.prune),
            (1, self.grow),
            (1, self.delete),
        ]

    def produce(self, client: Client) -> None:
        rng, core, topics = self.rng, client.core, ("t", "t", "parts", "small", "grows")
        topic, accepted = rng.choice(topics), rng.random() < 0.4
        key = rng.choice((None, b"a", b"b")) if topic in ("parts", "grows") else None
        if rng.random() < 0.6:
            values = [self.fresh()]
            id_ = values[0] if rng.random() < 0.3 else None  # such a batch goes out behind others
            call: Call = core.produce(topic, values[0], key=key, accepted=accepted, id_=id_)
        else:
            size = rng.choice((0, 0, 0, 600_000))
            values = [self.fresh() for _ in range(rng.randint(1, 5))]
            keys = None if key is None else [key] * len(values)
            bodies = [value + bytes(size) for value in values]
            call = core.produce_many(topic, bodies, keys=keys, accepted=accepted)
        self.wanted.append(Wanted(call, client, topic, key, values))

    def fresh(self) -> bytes:
        self.count += 1
        return b"%06d" % self.count

    def give_up(self) -> None:
        if self.wanted:
            wanted = self.rng.choice(self.wanted[-8:])
            wanted.client.core.give_up(wanted.call, Timeout("late"))

    def prune(self) -> None:
        last = self.town.row.at("small").last
        self.town.order(makers.prune(self.turn(), "small", last))

    def grow(self) -> None:
        count = self.town.row.topic("grows").policy.partitions
        if self.grows and count < 6:
            self.town.order(makers.configure(self.turn(), "grows", {"partitions": count + 1}))

    def delete(self) -> None:
        if self.deletes:
            self.town.order(makers.delete(self.turn(), "t"))

    def turn(self) -> makers.Turn:
        return makers.Turn(self.rng.randbytes(16), 1)

    def calm(self) -> None:
        """All is well again: everything has to come to an end."""
        for number in range(300):
            for machine in self.town.machines:
                machine.be_well()
            for machine in self.town.machines:
                machine.come_on(10_000)
            for client in self.town.clients:
                client.send()
                while client.connection.inbox:
                    client.ask()
                client.take()
                client.later()
            done = all(wanted.call.done for wanted in self.wanted)
            if number > 5 and done and all(client.core.idle for client in self.town.clients):
                return
            if number % 3 == 0:
                self.prune()
        raise AssertionError("some calls never end")

    def check(self) -> None:
        places: dict[bytes, list[tuple[int, int, int]]] = {}
        lanes: dict[tuple[str, object], list[bytes]] = {}
        of = {value: (each.client, each.key) for each in self.wanted for value in each.values}
        for (topic, topic_id, partition), entries in self.town.log.items():
            for number, body in entries:
                value = body[:6]
                places.setdefault(value, []).append((topic_id, partition, number))
                lanes.setdefault((topic, (topic_id, partition, of[value])), []).append(value)
        for value, found in places.items():
            topics = [topic_id for topic_id, _, _ in found]
            assert len(set(topics)) == len(topics), f"{value!r} is in a topic twice: {found}"
        for (topic, where), values in lanes.items():
            assert values == sorted(values) or self.is_deleted(topic), f"order in {topic} {where}"
        for wanted in self.wanted:
            self.check_call(wanted, [places.get(value, []) for value in wanted.values])
        states = [self.town.row.state, *(machine.state for machine in self.town.machines)]
        assert len(set(map(state_hash, states))) == 1

    def check_call(self, wanted: Wanted, found: list[list[tuple[int, int, int]]]) -> None:
        call, topic = wanted.call, wanted.topic
        if call.error is None:
            if isinstance(call.value, Receipt):
                told = {(call.value.partition, call.value.number or 0)}
            else:
                assert isinstance(call.value, Receipts)
                told = {(partition, number) for _, partition, number in call.value}
            there = {place[1:] for places in found for place in places}
            assert {place for place in told if place[1]} <= there, f"{told} of {wanted}: {there}"
            may_refuse = topic == "small" or (topic == "grows" and self.grows)
            only_accepted = (may_refuse or self.is_deleted(topic)) and not all(n for _, n in told)
            assert all(found) or only_accepted, f"{wanted} was told, and is not there"
            return
        error = call.error
        too_large = isinstance(error, Refused) and topic == "small" and "larger" in str(error)
        assert isinstance(error, Full | NoQuorum | Timeout) or too_large, f"{error!r} of {wanted}"
        in_doubt = isinstance(error, Timeout) or "were written" in str(error)
        in_doubt |= self.is_deleted(topic)
        assert in_doubt or not any(found), f"{error!r} of {wanted}, and yet it is there: {found}"

    def is_deleted(self, topic: str) -> bool:
        """With a topic goes what it knew of producers."""
        return self.deletes and topic == "t"


@pytest.mark.parametrize(
    "seed", [*FEW, *(pytest.param(each, marks=pytest.mark.long) for each in MORE)]
)
def test_whatever_breaks_machines_and_clients_each_entry_is_there_once_and_all_is_told_as_it_is(
    seed: int,
) -> None:
    storm = Storm(seed)
    storm.play(random.Random(seed).choice((150, 400, 1000)))
    storm.calm()
    storm.check()
