"""Council: the voters of a view agree on the next one.

    proposer                          acceptors
    Prepare(ballot) ----------------> promise, and *wedge*: what is reported cannot change any more
    choose  <------------------------ Promise(accepted value, report)
    Accept(value) ------------------> accept, if it could be installed here and now
    decided by a majority <---------- Accepted
    Decided(view) ------------------> everybody

Everything an acceptor says is durable before it is said, at every level (L2).  All messages are
floods: lost ones are made good by the next ballot, which finds what was accepted (V4).
"""

from __future__ import annotations

from functools import partial

import attrs

from .calling import Calling
from .choosing import choose
from .messages import (
    Accept,
    Accepted,
    Ballot,
    Decided,
    Prepare,
    Promise,
    Refusal,
    Report,
)
from .neighbours import Neighbours
from .ordering import Ordering
from .outbox import Outbox
from .proposer import Proposal, ballot_above
from .standing import Standing
from .suspicion import Suspicion
from .tails import Tails
from .views import Views

GRACE_DOUBLINGS_MAX = 8


@attrs.define
class Council:
    standing: Standing
    outbox: Outbox
    neighbours: Neighbours
    ordering: Ordering
    views: Views
    suspicion: Suspicion
    calling: Calling
    tails: Tails
    _proposal: Proposal | None = attrs.field(default=None, init=False)
    _seen: Ballot | None = attrs.field(default=None, init=False)  # the highest of all
    _held: tuple[int, Accept] | None = attrs.field(default=None, init=False)  # lacks its tail

    # As an acceptor.

    def hear_prepare(self, source: int, prepare: Prepare) -> None:
        """V2."""
        if not self._concerns(source, prepare):
            return
        standing, acceptor = self.standing, self.standing.acceptor
        before = acceptor.accepted_ballot, acceptor.accepted
        self.outbox.put(acceptor.promise(prepare.ballot))
        self.calling.promised(source)
        self.views.wedge()
        exact = standing.exact
        report = Report(
            exact,
            self.ordering.journaled() if exact else None,
            standing.incarnation,
            standing.position,
            standing.comes,
            standing.held_off,
        )
        promise = Promise(prepare.register, prepare.ballot, *before, report)
        self.outbox.when_durable(partial(self._promised, source, promise))

    def _promised(self, to: int, promise: Promise) -> None:
        acceptor = self.standing.acceptor
        if (acceptor.register, acceptor.promised) == (promise.register, promise.ballot):
            self.neighbours.flood(promise, to)

    def hear_accept(self, source: int, accept: Accept) -> None:
        """V6: what is decided can be installed by a majority, so no single death leaves a hole."""
        if not self._concerns(source, accept):
            return
        if self.standing.holds_data:
            if not self.ordering.holds(accept.value):
                self._held = source, accept
                self.tails.want(accept.value)
                return
            self.ordering.journal_cut(accept.value)
        self.outbox.put(self.standing.acceptor.accept(accept.ballot, accept.value))
        self.calling.goes_on()
        self.views.wedge()
        accepted = Accepted(accept.register, accept.ballot)
        self.outbox.when_durable(partial(self.neighbours.flood, accepted, source))

    def retry_accept(self) -> None:
        """Something came that may have been missing."""
        held, self._held = self._held, None
        if held is not None and held[1].register > self.standing.newest.id:
            self.hear_accept(*held)

    def _concerns(self, source: int, message: Prepare | Accept) -> bool:
        """Whether this node answers as an acceptor, by its disk (U2) and its promise (V2, V6)."""
        self.views.learn(message.view)
        standing = self.standing
        if message.register <= standing.newest.id:
            self.neighbours.flood(Decided(standing.newest), source)  # and no wedge
            return False
        if message.register != standing.newest.id + 1 or not standing.votes:
            return False
        if message.view.cluster != standing.newest.cluster:
            return False  # one of them was forced: the views of that number are two (R4)
        self._see(message.ballot)
        promised = standing.acceptor.promised
        if promised is not None and standing.acceptor.refuses(message.ballot):
            self.neighbours.flood(Refusal(message.register, promised), source)
            return False
        return True

    # As a proposer.

    def call(self) -> None:
        """Begins a ballot, if it is time for one."""
        if self._current() is None and self.calling.is_due():
            self.begin()

    def begin(self) -> None:
        """V1."""
        standing = self.standing
        promised = standing.acceptor.promised
        if promised is not None:
            self._see(promised)
        ballot = ballot_above(self._seen, standing.id, standing.start_count)
        self._proposal = Proposal(standing.newest, ballot, standing.now)
        self.neighbours.flood(Prepare(standing.newest.id + 1, ballot, standing.newest))

    def hear_promise(self, source: int, promise: Promise) -> None:
        proposal = self._current()
        if proposal is not None:
            proposal.hear_promise(source, promise)
            self.propose()

    def hear_refusal(self, refusal: Refusal) -> None:
        proposal = self._current()
        if refusal.register == self.standing.newest.id + 1:
            self._see(refusal.promised)
            if proposal is not None and refusal.promised > proposal.ballot:
                self._fail()

    def propose(self) -> None:
        """V3 and V4, whenever there is a promise more, or time has passed."""
        proposal, now, timing = self._current(), self.standing.now, self.standing.timing
        if proposal is None or proposal.value is not None or proposal.lacks_promises():
            return
        doublings = min(self.standing.churn() + self.calling.failures(), GRACE_DOUBLINGS_MAX)
        last = self.calling.patience(carried=True) - timing.retry_margin
        proposal.carried_at = min(proposal.carried_at, now)
        took = proposal.carried_at - proposal.began  # and to accept it will take as long
        most = max(timing.grace, last - 2 * took)
        until = proposal.carried_at + min(timing.grace * 2**doublings, most)
        if proposal.lacks_voices(self._seem_alive()) and now < until:
            return
        value = proposal.found() or choose(
            proposal.view,
            {source: promise.report for source, promise in proposal.promises.items()},
            self.calling.joins(),
            lag_items=timing.lag_items,
            change=self.calling.change(),
            leaving=self.suspicion.gone() | self._held_off(proposal),
        )
        if value is not None:
            proposal.value = value
            ids = {member.id for member in value.members} | {v[0] for v in value.voters if not v[3]}
            self.suspicion.put_off(proposal.promises.keys() - ids, now)
            self.suspicion.left_out(self.calling.want_in() - ids, now)
            self.neighbours.flood(Accept(proposal.register, proposal.ballot, value, proposal.view))
        elif proposal.all_answered() or now >= proposal.began + last:
            self._fail()  # an exact member that is heard a moment later would have saved it

    def _seem_alive(self) -> set[int]:
        """V3; also witnesses to whom a way leads: they say nothing between ballots, and without their
        vote somebody may have to stay who wants to leave (N8)."""
        voters, reached = self.standing.newest.voters, self.neighbours.routes.paths
        witnesses = {id_ for id_, _, _, data in voters if not data and id_ in reached}
        return self.calling.seem_alive() | witnesses

    def _held_off(self, proposal: Proposal) -> set[tuple[int, int]]:
        """Those that stalled are not taken in again before their time (S6), nor kept (S2)."""
        incarnations = {id_: each.report.incarnation for id_, each in proposal.promises.items()}
        slow = self.suspicion.held_off(proposal.view, self.standing.now)
        return {(id_, incarnations[id_]) for id_ in slow & incarnations.keys()}

    def hear_accepted(self, source: int, message: Accepted) -> None:
        proposal = self._current()
        decided = proposal.hear_accepted(source, message) if proposal is not None else None
        if decided is not None:
            self.neighbours.flood(Decided(decided))

    def beat(self) -> None:
        self.retry_accept()
        self.propose()
        proposal = self._current()
        if proposal is not None:
            patience = self.calling.patience(carried=not proposal.lacks_promises())
            if self.standing.now - proposal.began > max(patience, proposal.takes()):
                self._fail()
        self.call()

    def _current(self) -> Proposal | None:
        """The ballot that goes on: one for a register that was decided is over."""
        if self._proposal is not None and self._proposal.view.id != self.standing.newest.id:
            self._proposal = None
        return self._proposal

    def _fail(self) -> None:
        promises = self._proposal.promises if self._proposal is not None else {}
        self._proposal = None
        self.calling.has_failed({source: each.report for source, each in promises.items()})

    def _see(self, ballot: Ballot) -> None:
        self._seen = max(self._seen or ballot, ballot)
