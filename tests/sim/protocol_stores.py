"""Faults beside simulated bridges: pruned rows, lost states, full disks, damage; and links that come and go.

Nobody can bring back what no machine has any more: so one always keeps a state, and a row that goes on
from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrow.node.reserve import HARD, OK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .protocol_world import Machine, World


class StoreFaults:
    def __init__(self, world: World, may_wipe: Callable[[list[int]], bool]) -> None:
        self.world, self.chance = world, world.chance
        self._may_wipe = may_wipe

    def someone_keeps_all(self, without: Collection[int] = ()) -> bool:
        """Among the others one has its state, and can follow whoever has lost it."""
        machines = self.world.machines
        gone = {*without, *self.world.dead}
        lost = [m for m in machines.values() if m.node.is_lost or m.id in gone]
        highest = max((machine.floor for machine in lost), default=1)
        view = self.world.ledger.view
        return any(
            data
            and id_ not in gone
            and not machines[id_].node.is_lost
            and machines[id_].disk.uuid == uuid
            and machines[id_].disk.kept() + 1 >= highest
            for id_, _, uuid, data in view.voters
        )

    def is_free_to_leave(self, id_: int) -> bool:
        """The others can do without it (N8): who has to stay takes no image, and never will."""
        view = self.world.ledger.view
        others = [voter for voter in view.voters if voter[0] != id_]
        weight = sum(voter[1] for voter in view.voters)
        copies = sum(voter[3] for voter in others)
        return 2 * sum(voter[1] for voter in others) > weight and copies >= view.min_copies

    def _someone(self) -> Machine | None:
        up = [m for m in self.world.machines.values() if self._keeps_row(m)]
        return self.chance.choice(up) if up else None

    def _keeps_row(self, machine: Machine) -> bool:
        return machine.runs and len(machine.row) > 0 and machine.up.standing.keeps_row

    def prune(self) -> None:
        """Retention, at one or all: each at its own pace."""
        chosen = self._someone()
        for machine in self.world.machines.values():
            if (machine is chosen or self.chance.random() < 0.3) and machine.images is not None:
                self._prune(machine)

    def _prune(self, machine: Machine) -> None:
        """Below its last snapshot, which is of what is durable (N4)."""
        if not machine.node.is_lost and machine.images is not None:
            end = min(machine.disk.kept() + 1, machine.images.floor_max)
            last = self.chance.choice([end, self.chance.randint(1, max(end, 1))])
            machine.floor = max(machine.floor, last)

    def lose_state(self) -> None:
        """Nodes find no snapshot that they can read, and the row does not begin at its beginning."""
        machines = [m for m in self.world.machines.values() if self._keeps_row(m)]
        if machines:
            for machine in self.chance.sample(machines, self.chance.randint(1, len(machines))):
                self._lose_state(machine)

    def _lose_state(self, machine: Machine) -> None:
        if machine.node.is_lost or not self.is_free_to_leave(machine.id):
            return
        self._prune(machine)
        if machine.floor == 1 or not self.someone_keeps_all({machine.id}):
            return
        self.world.marks["state lost"] += 1
        self.world.tell(f"{machine.id} has lost its state")
        machine.node.lose()
        self.world.feed(machine.id, lambda member: member.need_image(self.world.now))

    def fill(self) -> None:
        machine = self._someone()
        if machine is not None and not machine.is_full:
            self.world.marks["full"] += 1
            self.world.tell(f"the disk of {machine.id} is full")
            machine.is_full = True
            self.world.feed(machine.id, lambda member: member.hear_disk(HARD, self.world.now))
            self.world.after(self.chance.uniform(0.1, 3), self.empty, machine)

    def empty(self, machine: Machine) -> None:
        if machine.is_full:
            self.world.tell(f"the disk of {machine.id} has room")
            machine.is_full = False
            self.world.feed(machine.id, lambda member: member.hear_disk(OK, self.world.now))

    def damage(self) -> None:
        machine = self._someone()
        if machine is not None:
            self.world.marks["damaged"] += 1
            length = len(machine.row)
            machine.hurt = self.chance.choice([length, self.chance.randint(1, length)])
            self.world.tell(f"of {machine.id} the row is damaged up to {machine.hurt}")
            self._tell_damage(machine)
            self.world.after(self.chance.uniform(0.1, 3), self.mend, machine)

    def tear(self) -> None:
        """A start finds damage: it may have hit a promise, and it hides what the row has of the view."""
        machine = self._someone()
        if machine is None or not self._may_wipe([machine.id]):
            return
        self.world.marks["uncounted"] += 1
        self.world.kill(machine.id, "power")
        machine.disk.uuid = self.world.fresh_uuid()
        machine.is_uncounted, machine.hurt = True, len(machine.disk.row())
        self.world.after(self.chance.uniform(0.01, 1), self.world.start, machine.id)
        self.world.after(self.chance.uniform(0.1, 3), self.mend, machine)

    def mend(self, machine: Machine) -> None:
        if machine.hurt:
            machine.hurt = 0
            self._tell_damage(machine)
        if machine.is_uncounted:
            machine.is_uncounted = False
            self.world.feed(machine.id, lambda _: self._count(machine))

    def _count(self, machine: Machine) -> None:
        self.world.round(machine.id)  # between two rounds
        machine.up.counted(*machine.counted(), self.world.now)

    def _tell_damage(self, machine: Machine) -> None:
        self.world.feed(machine.id, lambda member: member.hear_damage(machine.hurt, self.world.now))
        self.world.serve_on(machine)

    def flap(self) -> None:
        """A link that comes and goes, faster than anything is said over it."""
        edge = self.chance.choice(self.world.plan.edges)
        at = 0.0
        for _ in range(self.chance.randint(2, 12)):
            self.world.after(at, self.world.net.cut_and_dial, edge)
            at += self.chance.choice([0.001, 0.02, 0.15])

    def lose_words(self) -> None:
        """For a while every third control message is lost alone: whoever floods it tries again."""
        self.world.net.lossy_until = self.world.now + self.chance.uniform(0.3, 2.5)

    def heal(self) -> None:
        self.world.net.lossy_until = 0.0
        for machine in self.world.machines.values():
            self.empty(machine)
            self.mend(machine)
