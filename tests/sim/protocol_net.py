"""Links of a simulated cluster: in order while they last, and lost as a whole.

As TCP: after a loss nothing more of that connection arrives, so a black hole in one direction makes
the other end hang up for silence.  Acks may have a lane of their own, on which they overtake.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from duckrow.bridge.messages import Acks, Control, Message

from .protocol_plan import Edge

if TYPE_CHECKING:
    from .protocol_world import World

REDIAL = 0.12
Way = tuple[int, int]  # from, to


@attrs.define
class Net:
    world: World
    connection: dict[Way, int] = attrs.field(factory=dict)  # as the first end believes
    blocked: set[Way] = attrs.field(factory=set)
    sent: Counter[str] = attrs.field(factory=Counter)  # messages, by kind
    delays: dict[Edge, tuple[float, float]] = attrs.field(factory=dict)
    lossy_until: float = 0.0  # control messages get lost alone
    _last: dict[tuple[int, int, int, bool], float] = attrs.field(factory=dict)  # arrival, by lane
    _broken: set[tuple[int, int, int]] = attrs.field(factory=set)  # connection, from, to
    _connections: int = 0

    def start(self) -> None:
        self.delays = dict(self.world.plan.delays)
        for edge in self.world.plan.edges:
            self.world.after(self.world.chance.uniform(0, 0.05), self.dial, edge)

    def dial(self, edge: Edge) -> None:
        self.world.after(REDIAL, self.dial, edge)
        a, b = edge
        machines = self.world.machines
        if not (machines[a].runs and machines[b].runs):
            return
        if (a, b) in self.blocked or (b, a) in self.blocked:
            return
        here, there = self.connection.get((a, b)), self.connection.get((b, a))
        if here is not None and here == there:
            return
        self._connect(edge)

    def _connect(self, edge: Edge) -> None:
        a, b = edge
        for x, y in ((a, b), (b, a)):
            self.drop(x, y)
        self._connections += 1
        self.connection[a, b] = self.connection[b, a] = self._connections
        for x, y in ((a, b), (b, a)):
            self._up(x, y)

    def _up(self, x: int, y: int) -> None:
        self.world.feed(x, lambda member: member.link_up(y, self.world.now))

    def drop(self, x: int, y: int) -> None:
        """One end notices."""
        if self.connection.pop((x, y), None) is not None and self.world.machines[x].member:
            self.world.machines[x].lost(y)
            self.world.feed(x, lambda member: member.link_down(y, self.world.now))

    def hang_up(self, x: int, y: int) -> None:
        """One end closes; the other hears of it, if anything can be heard."""
        connection = self.connection.get((x, y))
        if connection is not None:
            self.drop(x, y)
            if (x, y) not in self.blocked:
                self.world.after(
                    self.world.chance.uniform(0.001, 0.01), self._end, y, x, connection
                )

    def _end(self, x: int, y: int, connection: int) -> None:
        machine = self.world.machines[x]
        if self.connection.get((x, y)) == connection and machine.member is not None:
            if machine.paused is not None:
                machine.paused.append((self._end, (x, y, connection)))
            else:
                self.drop(x, y)

    def dead(self, x: int, *, told: bool) -> None:
        """The process at this end is gone.  Its kernel tells the others, if it runs on."""
        for y in self.neighbours(x):
            self.connection.pop((x, y), None)
            connection = self.connection.get((y, x))
            if connection is not None:
                if told:
                    self.world.after(
                        self.world.chance.uniform(0.001, 0.01), self._end, y, x, connection
                    )
                if self.world.chance.random() < 0.3:
                    self._broken.add((connection, x, y))  # what was on its way is lost, too

    def lose_all_of(self, x: int) -> None:
        for y in self.neighbours(x):
            connection = self.connection.get((y, x))
            if connection is not None:
                self._broken.add((connection, x, y))

    def neighbours(self, x: int) -> list[int]:
        return sorted({a + b - x for a, b in self.world.plan.edges if x in (a, b)})

    def cut(self, edge: Edge, *, silent: bool) -> None:
        a, b = edge
        self.blocked |= {(a, b), (b, a)}
        if not silent:
            self.drop(a, b)
            self.drop(b, a)

    def cut_and_dial(self, edge: Edge) -> None:
        """What was on its way is lost; the next connection is there at once."""
        a, b = edge
        self.drop(a, b)
        self.drop(b, a)
        machines = self.world.machines
        if machines[a].runs and machines[b].runs and not self.blocked & {edge, edge[::-1]}:
            self._connect(edge)

    def mend(self, edge: Edge) -> None:
        self.blocked -= {edge, edge[::-1]}

    def send(self, a: int, b: int, message: Message) -> None:
        connection = self.connection.get((a, b))
        if connection is None:
            return
        self.sent[type(message).__name__] += 1
        if isinstance(message, Control) and self._is_lost():
            return
        low, high = self.delays[min(a, b), max(a, b)]
        lane = a, b, connection, self.world.plan.acks_overtake and isinstance(message, Acks)
        at = max(self.world.now + self.world.chance.uniform(low, high), self._last.get(lane, 0.0))
        self._last[lane] = at
        self.world.after(at - self.world.now, self._arrive, a, b, connection, message)

    def _is_lost(self) -> bool:
        return self.world.now < self.lossy_until and self.world.chance.random() < 0.3

    def _arrive(self, a: int, b: int, connection: int, message: Message) -> None:
        machine = self.world.machines[b]
        if self.connection.get((b, a)) != connection or machine.member is None:
            return
        if (a, b) in self.blocked:
            self._broken.add((connection, a, b))
        elif machine.paused is not None:
            machine.paused.append((self._arrive, (a, b, connection, message)))
        elif (connection, a, b) not in self._broken:
            self.world.receive(b, a, message)
