"""Who uses a simulated cluster: producers that retry elsewhere, single entries, topics, barriers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from duckrow.node import makers
from duckrow.node.commands import Command
from duckrow.node.effects import Code, Result
from duckrow.node.makers import Turn

from .protocol_node import Call

if TYPE_CHECKING:
    from .protocol_world import Machine, World

AGAIN = (Code.GAP, Code.UNKNOWN_PRODUCER)


class Load:
    def __init__(self, world: World) -> None:
        self.world = world
        self.stopped = False
        self._pids = 0
        chance = world.chance
        self.producers = [
            Producer(self, number, window) for number, window in enumerate(world.plan.producers)
        ]
        world.after(chance.uniform(0.005, 0.06), self._single)
        world.after(chance.uniform(0.05, 0.3), self._barrier)
        world.after(chance.uniform(0.1, 0.9), self._administer)

    def stop(self) -> None:
        self.stopped = True

    def usable(self) -> list[int]:
        """Nodes that run and keep the row as voters."""
        voters = {voter[0] for voter in self.world.ledger.view.voters if voter[3]}
        return [
            id_
            for id_, m in self.world.machines.items()
            if m.member and id_ in voters and not m.node.is_lost
        ]

    def some_machine(self) -> Machine | None:
        usable = self.usable()
        if not usable:
            return None
        machine = self.world.machines[self.world.chance.choice(usable)]
        return machine if machine.runs else None

    def submit(self, machine: Machine, command: Command, call: Call) -> None:
        if machine.node.waits(command, call):
            self.world.feed(machine.id, lambda member: member.submit([command]))

    def fresh(self) -> Turn:
        """A producer that sends one thing."""
        self._pids += 1
        return Turn(b"once" + self._pids.to_bytes(12, "big"), 1)

    def _single(self) -> None:
        if self.stopped:
            return
        machine = self.some_machine()
        if machine is not None:
            turn = self.fresh()
            body = b"single %d" % self._pids
            topic = self.world.chance.choice(["t0", "t1", "t2"])
            there = machine.node.state.topic("t2")
            meant = there.id if topic == "t2" and there is not None else 0
            topic = topic if topic != "t2" or meant else "t0"
            command = makers.produce(turn, topic, body, 1, topic_id=meant)
            if not meant and self.world.chance.random() < 0.5:  # another topic may be there by then
                where = machine.id, machine.disk.uuid
                accepted = self.world.ledger.accepted
                machine.node.when_accepted(command, partial(accepted.__setitem__, body, where))
            self.submit(machine, command, partial(self.answered, body, topic))
        self.world.after(self.world.chance.uniform(0.01, 0.12), self._single)

    def answered(self, body: bytes, topic: str, result: Result) -> None:
        if result.code == Code.ORDERED:
            self.world.ledger.acknowledges(body, topic, result.first)

    def _administer(self) -> None:
        if self.stopped:
            return
        machine = self.some_machine()
        if machine is not None:
            if self.world.chance.random() < 0.7:
                command = makers.create(self.fresh(), "t2")
            else:
                command = makers.delete(self.fresh(), "t2")
            self.submit(machine, command, lambda result: None)
        self.world.after(self.world.chance.uniform(0.2, 1.5), self._administer)

    def _barrier(self) -> None:
        if self.stopped:
            return
        machine = self.some_machine()
        if machine is not None:
            least = len(self.world.ledger.row)
            call = partial(self._passed, machine, machine.life, least)
            self.submit(machine, makers.barrier(self.fresh()), call)
        self.world.after(self.world.chance.uniform(0.05, 0.4), self._barrier)

    def _passed(self, machine: Machine, life: int, least: int, result: Result) -> None:
        if machine.life == life:
            self.world.ledger.passes(machine.id, len(machine.row), least)


class Producer:
    """Exactly once, whichever node it talks to: sends all that is unanswered again, in order."""

    def __init__(self, load: Load, number: int, window: int) -> None:
        self._load, self._world = load, load.world
        self._name = b"p%d" % number
        self._topic = load.world.chance.choice(["t0", "t1"])
        self._window = window
        self._seq = 0
        self.unanswered: dict[int, float] = {}  # seq: when it was sent last
        self._node: int | None = None
        self._world.after(self._world.chance.uniform(0, 0.05), self._step)

    def _step(self) -> None:
        chance, stopped = self._world.chance, self._load.stopped
        if not stopped and len(self.unanswered) < self._window and chance.random() < 0.6:
            self._seq += 1
            self.unanswered[self._seq] = self._world.now
            self._send(self._seq)
        if self.unanswered:
            first = next(iter(self.unanswered))
            patience = chance.choice([0.3, 0.8, 2.0])
            if self._world.now - self.unanswered[first] > patience:
                self._again()
        if self.unanswered or not stopped:
            self._world.after(chance.uniform(0.02, 0.1), self._step)

    def _send(self, seq: int) -> None:
        usable = self._load.usable()
        if self._node not in usable:
            self._node = self._world.chance.choice(usable) if usable else None
        if self._node is None or not self._world.machines[self._node].runs:
            return
        body = b"%s-%d" % (self._name, seq)
        turn = Turn(self._name.ljust(16, b"."), seq)
        command = makers.produce(turn, self._topic, body, 1)
        call = partial(self._answered, seq, body)
        self._load.submit(self._world.machines[self._node], command, call)

    def _answered(self, seq: int, body: bytes, result: Result) -> None:
        if seq not in self.unanswered:
            return
        if result.code == Code.ORDERED:
            del self.unanswered[seq]
            self._load.answered(body, self._topic, result)
        elif result.code in AGAIN:
            self._world.after(0.02, self._again)

    def _again(self) -> None:
        usable = self._load.usable()
        if not usable or not self.unanswered:
            return
        if self._world.chance.random() < 0.7:
            self._node = self._world.chance.choice(usable)
        for seq in list(self.unanswered):
            self.unanswered[seq] = self._world.now
            self._send(seq)
