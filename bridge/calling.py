"""Calling: who calls for the next view, and when.  Liveness only.

Reasons: a member is suspected; somebody wants in; a voter shall go; nobody of the view runs any
more; a ballot began and came to nothing.  So that not all call at once, each waits for its rank,
which is how many seem alive before it, and a little chance.  A call that failed is repeated by whoever
is first, and each has more time than the one before: it takes two syncs of a majority, and some disks
are slow.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import NamedTuple

import attrs

from .changing import applied, objection
from .electorate import incarnation_of, voter_of
from .messages import Change, Join, Leave, Report
from .ordering import CLOCK_MAX, Ordering
from .standing import Standing
from .suspicion import Suspicion

TIMES_MAX = 4  # the time of the first ballot


class Heard(NamedTuple):
    join: Join
    at: float
    position: int  # of the row here, then


@attrs.define
class Calling:
    standing: Standing
    ordering: Ordering
    suspicion: Suspicion
    chance: random.Random
    began: float  # this process
    _ballots: int = attrs.field(default=0, init=False)  # heard of, for the register
    _register: int = attrs.field(default=0, init=False)  # that those are for
    _promised_at: float = attrs.field(default=0.0, init=False)
    _rests_until: float = attrs.field(default=0.0, init=False)  # after a ballot of its own
    _joins: dict[int, Heard] = attrs.field(factory=dict, init=False)
    _absent: set[int] = attrs.field(factory=set, init=False)  # who told so in the last ballot
    _change: tuple[Change, float] | None = attrs.field(default=None, init=False)  # since when
    _due: float | None = attrs.field(default=None, init=False)  # when to call

    # What is heard.

    def hear_join(self, source: int, join: Join) -> None:
        """A later incarnation proves that the one in the view is dead (S3).

        It is a later one if it knows that view: an earlier one, whose word comes late, does not.
        """
        self.suspicion.speaks(source)
        voter = voter_of(self.standing.newest, source)
        stranger = voter is not None and voter.uuid != join.uuid
        if stranger and not self.suspicion.may_replace(source, self.standing.now):
            return
        before = self._joins.get(source)
        if before is not None and before.join.incarnation != join.incarnation:
            self.suspicion.runs_anew(source)
        self._joins[source] = Heard(join, self.standing.now, self.standing.position)
        self._absent.discard(source)
        view = self.standing.newest
        named = incarnation_of(view, source)
        if join.view == view.id and named != join.incarnation:
            self.suspicion.wants_in(source, join.incarnation)
            if named is not None:
                self.suspicion.is_dead(source, named)

    def hear_leave(self, source: int, leave: Leave) -> None:
        self._joins.pop(source, None)
        self.suspicion.leaves(source, leave.incarnation)

    def hear_change(self, change: Change) -> None:
        self._change = change, self.standing.now

    def joins(self) -> dict[int, Join]:
        """Those who ask to get in, now.  Who follows has come as much further since then as the row here: more
        may be ordered in that time than it may lack (V4).
        """
        standing, found = self.standing, {}
        for id_, (join, at, position) in self._joins.items():
            if at > standing.now - 2 * standing.timing.join:
                came = join.position + standing.position - position
                found[id_] = join._replace(position=came)
        return found

    def change(self) -> Change | None:
        """What an operator wants of the next view; of a later one it has to be wanted again."""
        if self._change is None:
            return None
        change, since = self._change
        late = self.standing.now - since >= self.standing.timing.change
        return None if late or change.view != self.standing.newest.id else change

    def seem_alive(self) -> set[int]:
        """Whom a proposer waits for a little longer than for a majority (V3)."""
        view = self.standing.newest
        members = {member.id for member in view.members}
        alive = members - self.suspicion.suspects(view, self.standing.now)
        for id_, join in self.joins().items():
            voter = voter_of(view, id_)
            if voter is not None and voter.uuid == join.uuid:
                alive.add(id_)
        return alive

    def would_come(self) -> set[int]:
        """Voters that the next view can count on: who is too far behind, or held off, runs in vain."""
        standing, view = self.standing, self.standing.newest
        members = {member.id for member in view.members}
        if standing.active:  # else nobody has to give signs of it
            members -= self.suspicion.suspects(view, standing.now)
        return members | {voter[0] for voter in view.voters if not voter[3]} | self.want_in()

    # When to call.

    def is_due(self) -> bool:
        """S5.  True once: the caller begins a ballot.

        Each is written down, and where too many disks are full none of them can lead to a view: they would use
        up the reserve.  Who has room again calls.
        """
        standing = self.standing
        vain = standing.room.is_full or self._would_be_vain()
        rank = self._rank() if standing.votes and not (standing.diverged or vain) else None
        if rank is None:
            self._due = None
            return False
        timing = self.standing.timing
        if self._due is None:
            self._due = self.standing.now + rank * timing.rank
            self._due += self.chance.uniform(0, timing.jitter)
        if self.standing.now < self._due:
            return False
        self._due = None
        return True

    def promised(self, source: int) -> None:
        """A ballot goes on; those before it, if any, came to nothing."""
        register = self.standing.newest.id + 1
        if source != self.standing.id:
            self._absent.clear()  # it may know better
        if self._register != register:
            self._register, self._ballots, self._rests_until = register, 0, 0.0
        self._ballots += 1
        self.goes_on()

    def goes_on(self) -> None:
        """The ballot that this node promised to."""
        self._promised_at = self.standing.now

    def has_failed(self, reports: Mapping[int, Report]) -> None:
        """One of this node: the next one later, by chance."""
        self._absent = {id_ for id_, each in reports.items() if not (each.exact or each.comes)}
        rest = self.chance.uniform(0.04, 1) * self.patience(carried=False)
        self._rests_until = self.standing.now + rest

    def patience(self, *, carried: bool) -> float:
        """How long a ballot may take: longer with each that came to nothing since the last view.

        `carried`: a majority may have promised.  Then also longer with each view that came lately: who is
        far away is to be waited for longer then, and without the time for it is left out again (V3).
        """
        times = 1 + self.failures() // 2 + (self.standing.churn() // 2 if carried else 0)
        return self.standing.timing.retry * min(times, TIMES_MAX)

    def failures(self) -> int:
        return self._ballots - 1 if self._register == self.standing.newest.id + 1 else 0

    def _rank(self) -> int | None:
        """How many are to go before this node; None: there is no reason to call."""
        standing, view = self.standing, self.standing.newest
        now, timing = standing.now, standing.timing
        suspects = self.suspicion.suspects(view, now)
        if standing.active:
            alive = [member.id for member in view.members if member.id not in suspects]
            rank = sorted(alive).index(standing.id) if standing.id in alive else 0
            changes = bool(self.want_in()) or self._wants_change(suspects)
            exhausted = self.ordering.clock >= CLOCK_MAX
            return rank if suspects or exhausted or (rank == 0 and changes) else None
        rank = 1 + sorted(voter[0] for voter in view.voters).index(standing.id)
        if standing.acceptor.promised is not None:
            return None if self._may_succeed(standing.acceptor.promised[1]) else rank
        if standing.may_act:
            return None  # it will, as soon as what it has is durable (V9)
        nobody = all(m.id in suspects or m.id == standing.id for m in view.members)  # S4
        return rank if nobody and now - self.began > timing.suspect_min else None

    def _would_be_vain(self) -> bool:
        """Too many have told that they are no members of the next view; who may be one after all asks to get in,
        or calls.
        """
        view = self.standing.newest
        if not self._absent or self._register != view.id + 1:
            return False
        absent = sum(v[1] for v in view.voters if v[3] and v[0] in self._absent)
        return 2 * absent >= sum(voter[1] for voter in view.voters)

    def _may_succeed(self, proposer: int) -> bool:
        """The ballot that this node promised to; one of its own has been given up."""
        now = self.standing.now
        if proposer == self.standing.id or now <= self._rests_until:
            return now <= self._rests_until
        alive = proposer in self.seem_alive()
        patience = self.patience(carried=True) if alive else self.standing.timing.retry
        return now - self._promised_at <= patience

    def want_in(self) -> set[int]:
        """Who would be let in (R1, U3), and is not held off (S6)."""
        found = set()
        view, position = self.standing.newest, self.standing.position
        for id_, join in self.joins().items():
            behind = join.position < position - self.standing.timing.lag_items
            voter = voter_of(view, id_)
            if voter is None or join.view != view.id:
                continue
            if self.suspicion.holds_off(id_, self.standing.now):
                continue
            if not voter.data:
                wanted = voter.uuid != join.uuid
            else:
                wanted = not behind and incarnation_of(view, id_) != join.incarnation
            if wanted:
                found.add(id_)
        return found

    def _wants_change(self, suspects: Collection[int]) -> bool:
        """An operator wants something that can be had now, or each ballot would end in a view without it."""
        change, view = self.change(), self.standing.newest
        if change is None or objection(view, change, self.would_come(), {change.id}):
            return False
        behind = self.standing.position - self.standing.timing.lag_items
        cont = {member.id for member in view.members} - set(suspects)
        wanted, _ = applied(view, change, self.joins(), cont, behind)
        return wanted is not view
