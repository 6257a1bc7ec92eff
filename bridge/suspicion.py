"""Suspicion: who seems to have stopped.  Wrong answers cost time, never safety.

Four signs, each enough:

    silence   no new beat for much longer than beats usually take (S1).  Beats come by any path, so
              a cut between two who both see a third makes nobody suspect anybody.  Who hung up is
              missed sooner: the kernel does so for a process that died (S3)
    stall     the head of the order waits for an ack (S2): a hung disk beats, and is as bad as death;
              until then the slowest sets the pace (F11).  So is one that never begins to act, since
              the rest of the row, or its disk, takes too long (V11)
    proof     a later incarnation speaks (S3)
    word      it said that it leaves; a view that names it all the same could not do without it (S3)
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from duckrow.node.row import View

from .messages import Name
from .timing import Timing

SMOOTH = 0.125  # as TCP smooths round trips


@attrs.define
class Pulse:
    """How regularly one member is heard."""

    last: float
    mean: float
    deviation: float = 0.0
    came: bool = False  # it has begun to act in the view

    def beat(self, now: float) -> None:
        gap = now - self.last
        self.last, self.came = now, True
        self.deviation += SMOOTH * (abs(gap - self.mean) - self.deviation)
        self.mean += SMOOTH * (gap - self.mean)


@attrs.define
class HeldOff:
    """One that was too slow, or has two disks: not let in again before its time (S6)."""

    until: float
    delay: float


@attrs.define
class Suspicion:
    me: int
    timing: Timing
    _pulses: dict[int, Pulse] = attrs.field(factory=dict, init=False)
    _hung_up: set[int] = attrs.field(factory=set, init=False)  # neighbours, until they speak again
    _dead: set[tuple[int, int]] = attrs.field(factory=set, init=False)  # (id, incarnation)
    _leaving: dict[int, int] = attrs.field(factory=dict, init=False)  # last of each, in this view
    _held_off: dict[int, HeldOff] = attrs.field(factory=dict, init=False)
    _view: int = attrs.field(default=0, init=False)
    _head: Name | None = attrs.field(default=None, init=False)
    _head_since: float = attrs.field(default=0.0, init=False)
    _waited: float = attrs.field(default=0.0, init=False)  # for it, while this node acted
    _lacking: tuple[int, ...] = attrs.field(default=(), init=False)
    _members: tuple[tuple[int, int], ...] = attrs.field(default=(), init=False)
    _formers: set[tuple[int, bytes]] = attrs.field(factory=set, init=False)  # disks that were lost
    _returned: dict[int, HeldOff] = attrs.field(factory=dict, init=False)  # who has one of those
    _left_out: dict[int, int] = attrs.field(factory=dict, init=False)  # how often, since it came
    _absent: frozenset[int] = attrs.field(default=frozenset(), init=False)  # they never came

    def watch(self, view: View, now: float) -> None:
        """A new view: its members have all the time that members have."""
        for member in view.members:
            pulse = self._pulses.setdefault(member.id, Pulse(now, self.timing.beat))
            pulse.last = now
            pulse.came = pulse.came and view.id == self._view
        self._members = tuple((member.id, member.incarnation) for member in view.members)
        self._dead &= {(member.id, member.incarnation) for member in view.members}
        if view.id != self._view:
            self._view = view.id
            self._leaving.clear()
        self._head, self._lacking, self._waited = None, (), 0.0
        self._absent = frozenset()

    def beat(self, member: int, now: float) -> None:
        self.speaks(member)
        self._left_out.pop(member, None)
        self._pulses.setdefault(member, Pulse(now, self.timing.beat)).beat(now)

    def runs_anew(self, member: int) -> None:
        """Who did not live until a ballot's end may be quick enough for the next one."""
        self._left_out.pop(member, None)

    def speaks(self, member: int) -> None:
        """Over whatever way: if it hung up, it was the link that ended.  It need not come again: a standby
        one is hung up when it is not needed any more (F12).
        """
        self._hung_up.discard(member)

    def hung_up(self, neighbour: int) -> None:
        """Its side has ended the link, as that of a dead process does; by itself it says nothing."""
        self._hung_up.add(neighbour)

    def is_dead(self, id_: int, incarnation: int) -> None:
        self._dead.add((id_, incarnation))

    def leaves(self, id_: int, incarnation: int) -> None:
        self._leaving[id_] = incarnation

    def wants_in(self, id_: int, incarnation: int) -> None:
        """Who left when it was no member, of a view that goes on, is not gone for that view's whole time."""
        if self._leaving.get(id_) == incarnation:
            del self._leaving[id_]

    def gone(self) -> frozenset[tuple[int, int]]:
        return frozenset(self._dead | self._leaving.items())

    def waits(self, head: Name | None, lacking: Iterable[int], now: float) -> None:
        """The head of the order, and whose acks it lacks.  Who does not act any more sees no acks: till the
        next view it goes by what it saw.
        """
        if head != self._head:
            self._head, self._head_since = head, now
        self._lacking = tuple(lacking) if head is not None else ()
        self._waited = now - self._head_since
        gone = self.gone()  # a later run of those may be quicker
        self._absent = frozenset(
            member
            for member, incarnation in self._members
            if member != self.me and (member, incarnation) not in gone
            if not self._pulses[member].came and self.silent(member, now)
        )

    def awaited(self, seconds: float) -> list[int]:
        """Whose acks the head of the order has lacked for so long."""
        return sorted(self._lacking) if self._waited > seconds else []

    def patience(self, member: int) -> float:
        pulse = self._pulses[member]
        usual = pulse.mean + 4 * pulse.deviation
        least = self.timing.hung_up if member in self._hung_up else self.timing.suspect_min
        return min(max(usual, least), self.timing.suspect_max)

    def silent(self, member: int, now: float) -> bool:
        pulse = self._pulses.get(member)
        return pulse is not None and now - pulse.last > self.patience(member)

    def suspects(self, view: View, now: float) -> set[int]:
        gone = self.gone()
        return self._stalling() | {
            member.id
            for member in view.members
            if member.id != self.me
            and (self.silent(member.id, now) or (member.id, member.incarnation) in gone)
        }

    def _stalling(self) -> set[int]:
        others = {member for member in self._lacking if member != self.me}
        return {member for member in others if self._waited > 2 * self.patience(member)}

    def ejected(self, members: Iterable[int], now: float) -> None:
        """The next view is without these; those that stalled wait longer each time (S6)."""
        for member in sorted(set(members) & self._stalling()):
            self._hold_off(member, now)

    def put_off(self, alive: Iterable[int], now: float) -> None:
        """The next view is without these, which run; so do those of them that did not come (V11)."""
        for member in sorted(set(alive) & self._absent):
            self._hold_off(member, now)

    def left_out(self, asked: Iterable[int], now: float) -> None:
        """These want in, and were not heard in time: from the second time on they wait, too (S6).

        Or each view would be followed by the next one that is without them, for ever.
        """
        for member in sorted(asked):
            self._left_out[member] = self._left_out.get(member, 0) + 1
            if self._left_out[member] > 1 and not self.holds_off(member, now):
                self._hold_off(member, now)

    def replaced(self, voter: int, before: bytes, disk: bytes, now: float) -> bool:
        """Its disk is another one now.  True: one that it had before, so two machines may have its id.

        Each would take the place of the other in every view, for ever: the next one waits, longer each time.
        """
        self._formers.add((voter, before))
        if (voter, disk) not in self._formers:
            return False
        self._returned[voter] = self._held_off[voter] = self._longer(self._returned.get(voter), now)
        return True

    def may_replace(self, voter: int, now: float) -> bool:
        held = self._returned.get(voter)
        return held is None or now >= held.until

    def _hold_off(self, member: int, now: float) -> None:
        self._held_off[member] = self._longer(self._held_off.get(member), now)

    def _longer(self, before: HeldOff | None, now: float) -> HeldOff:
        delay = self.timing.readmit_min
        if before is not None and now - before.until < self.timing.conduct:
            delay = min(2 * before.delay, self.timing.readmit_max)
        return HeldOff(now + delay, delay)

    def holds_off(self, id_: int, now: float) -> bool:
        held = self._held_off.get(id_)
        return held is not None and now < held.until

    def held_off(self, view: View, now: float) -> set[int]:
        """Whom the view after this one is better off without (S2, S6)."""
        late = {voter[0] for voter in view.voters if self.holds_off(voter[0], now)}
        return late | self._stalling() | self._absent
