"""Faults of a simulated cluster: drawn ones, and *snipers*, aimed at moments a few milliseconds wide.

What may be broken is bounded by what the protocol promises to survive; within that, anything goes.
A sniper's victim may lose the messages that it sends at that very moment, and may stay dead for
good: a cluster in which everything heals in the end hides that somebody cannot go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrow.bridge.effects import Learned, Registered
from duckrow.bridge.electorate import incarnation_of
from duckrow.bridge.member import Member
from duckrow.bridge.messages import Change
from duckrow.node.storeoptions import FSYNC, MEMORY, WRITE

from .protocol_plan import Edge
from .protocol_stores import StoreFaults

if TYPE_CHECKING:
    from .protocol_world import World


class Faults:
    def __init__(self, world: World) -> None:
        self.world, self.chance, self.plan = world, world.chance, world.plan
        self.healing = False
        self.stores = StoreFaults(world, self._may_wipe)
        self.ends_early: float | None = None  # somebody died for good
        world.on_moment = self._moment

    def begin(self) -> None:
        self.world.after(self.chance.uniform(0.1, 0.6), self._draw)

    # What may be lost.

    def _all_well(self, but: int | None = None) -> bool:
        """Every voter runs in the newest view, and nothing is under way (seen by a god)."""
        view = self.world.ledger.view
        for id_, _, uuid, data in view.voters:
            machine = self.world.machines[id_]
            if machine.member is None or machine.paused is not None or machine.disk.uuid != uuid:
                return False
            standing = machine.member.standing
            if standing.newest.id != view.id or standing.acceptor.promised is not None:
                return False
            named = incarnation_of(view, id_) == standing.incarnation and standing.active
            if but is None and data and not named:
                return False
        return True

    def _may_wipe(self, ids: list[int]) -> bool:
        view = self.world.ledger.view
        left = [voter for voter in view.voters if voter[0] not in ids]
        weight = sum(voter[1] for voter in left)
        total = sum(voter[1] for voter in view.voters)
        if not self.stores.someone_keeps_all(without=ids):
            return False
        return self._all_well() and any(voter[3] for voter in left) and 2 * weight > total

    def _may_forget(self, id_: int) -> bool:
        """Weak levels: an exact member stays up, and everybody knows the newest view."""
        if not self._all_well(but=id_):
            return False
        members = [member.id for member in self.world.ledger.view.members]
        return any(m != id_ and self.world.machines[m].up.standing.active for m in members)

    def _may_kill(self, id_: int, how: str) -> bool:
        level = self.plan.level
        if level == FSYNC or (how == "kill" and level == WRITE):
            return True
        return self._may_forget(id_)

    def minority(self, only: int | None = None) -> set[int]:
        """Voters that may stay dead: the rest is a connected majority, whatever is under way."""
        world, view = self.world, self.world.ledger.view
        weights = {voter[0]: voter[1] for voter in view.voters}
        disks = {id_: machine.disk for id_, machine in world.machines.items()}
        if any(disks[voter[0]].uuid != voter[2] for voter in view.voters):
            return set()
        for disk in disks.values():  # an undecided change of the voters is left alone
            for record in disk.records:
                value = record.accepted if isinstance(record, Registered) else None
                if value and value.id == view.id + 1 and value.voters != view.voters:
                    return set()
        most = (len(weights) - 1) // 2 if len(weights) > 2 else 1
        dead = {only} if only is not None else set()
        if only is None:
            dead = set(self.chance.sample(sorted(weights), self.chance.randint(0, most)))
        live = [id_ for id_ in world.machines if id_ not in dead]
        if 2 * sum(w for id_, w in weights.items() if id_ not in dead) <= sum(weights.values()):
            return set()
        if sum(voter[3] and voter[0] not in dead for voter in view.voters) < view.min_copies:
            return set()
        # A wiped disk counts as lost until a survivor knows the view that has it again.
        known = max(r.view.id for id_ in live for r in disks[id_].records if isinstance(r, Learned))
        voters = world.ledger.views[known].voters
        left = sum(v[1] for v in voters if v[0] not in dead and disks[v[0]].uuid == v[2])
        if 2 * left <= sum(voter[1] for voter in voters):
            return set()
        seen, todo = {live[0]}, [live[0]]
        while todo:
            for peer in world.net.neighbours(todo.pop()):
                if peer not in dead and peer not in seen:
                    seen.add(peer)
                    todo.append(peer)
        return dead if len(seen) == len(live) else set()

    # Drawn faults.

    def _draw(self) -> None:
        if self.healing:
            return
        name = self.chance.choice(self.plan.faults).replace(" ", "_")
        (getattr(self, "_" + name, None) or getattr(self.stores, name))()
        self.world.after(self.chance.uniform(*self.plan.pace), self._draw)

    def _up(self) -> list[int]:
        return [id_ for id_, machine in self.world.machines.items() if machine.member]

    def _someone(self) -> int | None:
        up = self._up()
        return self.chance.choice(up) if up else None

    def _kill_and_start(self, id_: int, how: str, seconds: float) -> None:
        self.world.kill(id_, how)
        self.world.after(seconds, self.world.start, id_)

    def _kill(self, how: str = "kill") -> None:
        id_ = self._someone()
        if id_ is not None and self._may_kill(id_, how):
            seconds = self.chance.choice([0.001, 0.03, 0.3, self.chance.uniform(0.1, 3)])
            self._kill_and_start(id_, how, seconds)

    def _power(self) -> None:
        self._kill("power")

    def _kill_all(self) -> None:
        if self.plan.level != MEMORY:
            for id_ in self._up():
                self._kill_and_start(id_, "kill", self.chance.uniform(0, 0.8))

    def _power_all(self) -> None:
        if self.plan.level == FSYNC:
            for id_ in self._up():
                self._kill_and_start(id_, "power", self.chance.uniform(0, 0.8))

    def _wipe(self) -> None:
        voters = [voter[0] for voter in self.world.ledger.view.voters]
        count = 2 if len(self.plan.voters) == 5 and self.chance.random() < 0.3 else 1
        ids = self.chance.sample(voters, count) if len(voters) >= count else []
        if ids and self._may_wipe(ids):
            for id_ in ids:
                seconds = self.chance.choice([0.005, self.chance.uniform(0.05, 2)])
                self._kill_and_start(id_, "wipe", seconds)

    def _duel(self) -> None:
        """Two at once call for a view, without a reason."""
        up = self._up()
        for id_ in self.chance.sample(up, min(len(up), 2)):
            if self.world.machines[id_].runs:
                self.world.feed(id_, call_now)

    def _voters(self) -> None:
        """An operator adds a voter, takes one out, or replaces one."""
        view = self.world.ledger.view
        voters = sorted(voter[0] for voter in view.voters)
        others = [id_ for id_ in self.world.machines if id_ not in voters]
        turn = self.chance.random()
        if others and turn < 0.5:
            out = self.chance.choice(voters) if self.chance.random() < 0.3 else 0
            new = self.chance.choice(others)
            data = new not in self.plan.witnesses
            self._change(Change(view.id, new, 1, data=data, instead_of=out))
        elif len(voters) > 2:
            self._change(Change(view.id, self.chance.choice(voters)))

    def _change(self, change: Change) -> None:
        """Asked of some machine, which may know better or worse than a god what may be had."""
        ids = [id_ for id_ in self._up() if self.world.machines[id_].runs]
        if ids:
            self.world.tell(f"wanted: {change}")
            change_at = self.chance.choice(ids)
            self.world.feed(change_at, lambda member: member.change(change, self.world.now))

    def _leave(self) -> None:
        """In order: it says so, and ends when it has been heard."""
        id_ = self._someone()
        if id_ is not None and self.world.machines[id_].runs and self._may_kill(id_, "kill"):
            self.world.feed(id_, lambda member: member.leave(self.world.now))
            seconds = self.chance.uniform(0.1, 2)
            self.world.after(0.05, self._end_of_leaving, id_, seconds)

    def _end_of_leaving(self, id_: int, seconds: float) -> None:
        """Somebody else may have died meanwhile."""
        if self._may_kill(id_, "kill"):
            self._kill_and_start(id_, "kill", seconds)

    def _weight(self) -> None:
        """An operator gives a voter another weight."""
        view = self.world.ledger.view
        id_, _, _, data = self.chance.choice(view.voters)
        self._change(Change(view.id, id_, self.chance.choice([1, 2, 3]), data=data))

    def _settings(self) -> None:
        """An operator wants more or fewer copies, or another durability."""
        view = self.world.ledger.view
        if self.chance.random() < 0.5:
            self._change(Change(view.id, min_copies=self.chance.choice([1, 2])))
        else:
            self._change(Change(view.id, durability=self.chance.choice([FSYNC, self.plan.level])))

    def _cut(self) -> None:
        edge = self.chance.choice(self.plan.edges)
        self.world.net.cut(edge, silent=self.chance.random() < 0.5)
        self.world.after(self.chance.uniform(0.05, 3), self.world.net.mend, edge)

    def _hole(self) -> None:
        way = self.chance.choice(self.plan.edges)
        if self.chance.random() < 0.5:
            way = way[::-1]
        self.world.net.blocked.add(way)
        self.world.after(self.chance.uniform(0.2, 2.5), self.world.net.blocked.discard, way)

    def _part(self) -> None:
        side = {id_ for id_ in self.world.machines if self.chance.random() < 0.5}
        silent, seconds = self.chance.random() < 0.5, self.chance.uniform(0.3, 4)
        for edge in self.plan.edges:
            if (edge[0] in side) != (edge[1] in side):
                self.world.net.cut(edge, silent=silent)
                self.world.after(seconds, self.world.net.mend, edge)

    def _slow_disk(self) -> None:
        machine = self.world.machines[self.chance.choice(self.plan.ids)]
        machine.slowness = self.chance.choice([10, 60, 300])
        seconds = self.chance.uniform(0.3, 2.5)
        self.world.after(seconds, setattr, machine, "slowness", 1)

    def _slow_link(self) -> None:
        edge = self.chance.choice(self.plan.edges)
        self.world.net.delays[edge] = 0.02, self.chance.choice([0.08, 0.2])
        self.world.after(self.chance.uniform(0.3, 2.5), self._fast_link, edge)

    def _fast_link(self, edge: Edge) -> None:
        self.world.net.delays[edge] = 0.001, 0.005

    def _pause(self) -> None:
        id_ = self._someone()
        if id_ is not None and self.world.machines[id_].paused is None:
            self._stop_for(id_, self.chance.choice([0.1, 0.7, self.chance.uniform(0.3, 3)]))

    def _stop_for(self, id_: int, seconds: float) -> None:
        self.world.tell(f"{id_} pauses")
        machine = self.world.machines[id_]
        machine.paused = []
        self.world.after(seconds, self.world.resume, id_, machine.life)

    # Aimed ones.

    def _moment(self, moment: str, id_: int) -> None:
        if self.healing or self.chance.random() >= self.plan.snipers.get(moment, 0):
            return
        how = self.chance.choice(["kill", "power", "pause", "cut"])
        kills = how in ("kill", "power")
        if kills and not self._may_kill(id_, how):
            return
        world = self.world
        machine = world.machines[id_]
        voters = {v[0] for v in world.ledger.view.voters if v[3]}
        fatal = kills and self.plan.level == FSYNC and self.chance.random() < self.plan.fatal
        if fatal and not self.plan.witnesses and id_ in voters and self.minority(id_):
            world.marks[f"dead for good when {moment}"] += 1
            world.tell(f"{id_} dies for good when {moment}")
            machine.muted = True
            world.dead, self.ends_early = {id_}, world.now
            world.after(0, self._end_for_good, id_, how)
            return
        world.marks[f"aimed at {moment}"] += 1
        machine.muted = machine.muted or (kills and self.chance.random() < 0.5)
        world.after(0, self._shoot, id_, machine.life, how)

    def _end_for_good(self, id_: int, how: str) -> None:
        self.world.kill(id_, how)
        self.world.net.lose_all_of(id_)

    def _shoot(self, id_: int, life: int, how: str) -> None:
        world = self.world
        machine = world.machines[id_]
        if machine.life != life:
            return
        if how == "pause":
            if machine.paused is None:
                self._stop_for(id_, self.chance.uniform(0.1, 3))
        elif how == "cut":
            for edge in self.plan.edges:
                if id_ in edge:
                    world.net.cut(edge, silent=self.chance.random() < 0.5)
                    world.after(self.chance.uniform(0.3, 3), world.net.mend, edge)
        else:
            seconds = self.chance.choice([0.001, 0.05, self.chance.uniform(0.1, 3)])
            self._kill_and_start(id_, how, seconds)

    # A disaster: one machine is left, and an operator has it go on.

    def lose_all_but_one(self) -> int | None:
        """The one that is left, a member that has all; None: there is none now."""
        world, self.healing = self.world, True
        view = world.ledger.view
        exact = [
            id_
            for id_, machine in world.machines.items()
            if machine.runs
            and id_ in self.plan.voters  # or all founders would be blank, and found another cluster
            and machine.up.standing.newest.id == view.id
            and machine.up.standing.keeps_row
            and machine.up.standing.exact
            and not machine.node.is_lost
        ]
        if not exact or len(view.members) == 1:  # who acts alone does not miss the others
            return None
        left = self.chance.choice(exact)
        self._wipe_all_but(left)
        world.marks["disaster"] += 1
        return left

    def force(self, left: int) -> None:
        """What it acked must be in its row, since others may have acknowledged it."""
        world = self.world
        self._wipe_all_but(left)  # those that were begun anew have met it as it was
        machine = world.machines[left]
        if not machine.runs or machine.up.standing.active:
            return  # it has the majority alone
        cluster = self.chance.randbytes(16)
        world.ledger.forced.add(cluster)
        world.marks["forced"] += 1
        world.tell(f"{left} is forced")
        world.feed(left, lambda member: member.force(cluster, 2, world.now))
        self._readmit(left)

    def _wipe_all_but(self, left: int) -> None:
        for id_ in self.world.machines:
            if id_ != left:
                self.world.kill(id_, "wipe")
                self.world.wipe(id_)  # also of one that was down

    def _readmit(self, left: int) -> None:
        """An operator gives the others their votes again, one after the other."""
        world, view = self.world, self.world.ledger.view
        voters = {voter[0] for voter in view.voters}
        missing = [i for i in self.plan.voters if i not in voters | {*self.plan.witnesses}]
        if missing:
            change = Change(view.id, missing[0], 1)
            world.feed(left, lambda member: member.change(change, world.now))
            world.after(0.3, self._readmit, left)

    # The end.

    def heal(self) -> None:
        """Everything is well again, but for a minority that may stay dead."""
        world, self.healing = self.world, True
        world.tell("all is well again")
        world.net.blocked.clear()
        self.stores.heal()
        for id_, machine in world.machines.items():
            machine.slowness = 1
            world.resume(id_, machine.life)
        for edge in self.plan.edges:
            self._fast_link(edge)
        data_only = all(voter[3] for voter in world.ledger.view.voters)
        may_stay_dead = (
            not world.ledger.forced
            and self.ends_early is None
            and self.plan.level == FSYNC
            and data_only
            and not any(machine.node.is_lost for machine in world.machines.values())
        )
        if may_stay_dead and self.chance.random() < 0.8:
            world.dead = self.minority()
            world.marks["a minority stays dead"] += bool(world.dead)
            for id_ in world.dead:
                world.kill(id_, "power")
        for id_, machine in world.machines.items():
            if machine.member is None:
                world.after(self.chance.uniform(0, 0.2), world.start, id_)


def call_now(member: Member) -> None:
    """Begins a ballot at once, as if there were a reason."""
    if member.standing.votes:
        member.council.begin()
