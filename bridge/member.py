"""Member: one node's whole part in the protocol, as a core without time, chance or files of its own.

Inputs are method calls, each with the time of a steady clock; then `take_effects` ends the round
and gives what is to be done, in order.  Any number of inputs may go into a round.

    messages, links ──►┌──────────────────────────────────────────────┐
    submitted ────────►│ neighbours   links, feeds, floods            │──► effects
    synced ───────────►│ ordering     bundles, acks, items            │
    beat ─────────────►│ views        learned, installed, active      │
                       │ council      votes for the next view         │
                       │ calling      when somebody should start that │
                       └──────────────────────────────────────────────┘

Nothing is decided here: a message is shown to the room that it concerns.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import assert_never

from duckrow.node.commands import Command
from duckrow.node.row import Bundle, Item, View

from .calling import Calling
from .council import Council
from .effects import Effect, Settled
from .electorate import NOTHING, voter_of
from .flood import Flood
from .founding import Charter, first_view
from .handing import Handing
from .imageforms import ImageOffer, ImageSlice, NoImage, WantImage
from .messages import (
    Accept,
    Accepted,
    Acks,
    Ask,
    Base,
    Change,
    Control,
    Decided,
    Fetch,
    Follow,
    Hand,
    Join,
    Leave,
    Link,
    Mended,
    Message,
    Newer,
    Payload,
    Prepare,
    Promise,
    Refusal,
    Tail,
)
from .neighbours import Neighbours
from .ordering import Ordering
from .outbox import Outbox
from .pending import Pending
from .recovered import Recovered
from .routes import Routes
from .standing import Standing
from .streams import Stream, Streams
from .suspicion import Suspicion
from .tails import Tails
from .timing import Timing
from .views import Views

TIMING = Timing()


class Member:
    def __init__(
        self,
        recovered: Recovered,
        now: float,
        chance: random.Random,  # spreads the calls for a new view; nothing else
        timing: Timing = TIMING,
        charter: Charter | None = None,  # of a cluster that may have to be founded
        cluster: bytes = b"",  # the only one that a blank one may come into
    ) -> None:
        self.standing = standing = Standing.start(recovered, timing, now)
        standing.foretold = cluster
        self._charter = charter
        self._joined_at = -timing.join
        self._steps_back_at = self._stays = 0.0  # when at the soonest; seconds between two times
        self.beat_at = now  # the next one is due
        self._beats_with = False  # with a neighbour, before it is due
        self.outbox = Outbox()
        flood = Flood(recovered.id, recovered.incarnation)
        routes = Routes(recovered.id)
        self.neighbours = Neighbours(standing, self.outbox, flood, routes, self._control)
        self.pending = Pending()
        for name in self.pending.recover(recovered.staged):
            self.outbox.put(Settled(name))
        streams, old = held(recovered), None
        if standing.newest.id > standing.installed:
            streams, old = Streams.start(standing.newest), streams
        self.suspicion = Suspicion(recovered.id, timing)
        self.suspicion.watch(standing.newest, now)
        rooms = standing, self.outbox, self.neighbours, self.pending
        self.handing = Handing(*rooms)
        self.ordering = Ordering(*rooms, streams, old, self.handing.ordered)
        self.views = Views(standing, self.outbox, self.neighbours, self.ordering, self.suspicion)
        self.calling = Calling(standing, self.ordering, self.suspicion, chance, now)
        self.council = Council(
            standing,
            self.outbox,
            self.neighbours,
            self.ordering,
            self.views,
            self.suspicion,
            self.calling,
            Tails(standing, self.neighbours, self.ordering, self.calling),
        )
        self.views.try_install()

    # Inputs.

    def link_up(self, peer: int, now: float) -> None:
        self.standing.now = now
        self.neighbours.up(peer)
        self.suspicion.speaks(peer)
        self._join()  # at once: a restart is announced, not waited out (S3)

    def link_down(self, peer: int, now: float, *, by_peer: bool = False) -> None:
        """`by_peer`: it hung up, or nobody is there any more."""
        self.standing.now = now
        self.neighbours.down(peer)
        if by_peer:
            self.suspicion.hung_up(peer)

    def hear_from(self, peer: int, now: float) -> None:
        """Something, if only a part of a message that takes long: the link lives (F9)."""
        self.standing.now = now
        self.neighbours.heard(peer)

    def receive(self, peer: int, message: Message, now: float) -> None:
        self.standing.now = now
        if not self.neighbours.heard(peer):
            return
        match message:
            case Bundle():
                self.ordering.take(peer, message)
            case Acks():
                if self.ordering.hear(message):
                    self.suspicion.beat(message.member, now)
            case Link():
                self.neighbours.hear_link(peer, message, self.ordering.streams)
                if self.standing.diverged:
                    self.views.wedge()
                self._beat_with(now)
            case Base():
                self.ordering.jump(message)
            case Follow():
                self._follow(peer, message.generation, message.item)
            case Newer():
                if message.view.id > self.standing.newest.id:
                    self.views.learn(message.view)
                    self._join()  # who names that view is believed
            case Control():
                self.neighbours.hear_control(peer, message)
            case Ask() | Mended() | WantImage() | ImageOffer() | ImageSlice() | NoImage():
                pass  # between the stores: the shell's concern
            case _:
                assert_never(message)

    def synced(self, token: int, now: float) -> None:
        self.standing.now = now
        self.outbox.synced(token)

    def beat(self, now: float) -> None:
        """When it is due: every `timing.beat` seconds, or a little earlier."""
        self.standing.now = now
        timing = self.standing.timing
        self.beat_at = now + timing.beat + (timing.beat_late if self._beats_with else 0)
        self._beats_with = False
        self.neighbours.hang_up_dead()
        self.neighbours.links_due = True
        self.ordering.beats = True
        if self.standing.active:
            self.ordering.acks_due = True  # T4
            head = self.ordering.streams.head(self.standing.delivered)
            lacking = self.ordering.streams.lacking(head) if head else []
            self.suspicion.waits(head[:3] if head else None, lacking, now)
        if now - self._joined_at >= self.standing.timing.join:
            self._join()
        if self.standing.stateless:
            self._step_back()
        self.council.beat()

    def submit(self, commands: Sequence[Command]) -> bool:
        """False: too much waits already, and nothing of it was taken."""
        return self.pending.submit(commands)

    def withdraw(self, command: Command) -> bool:
        return self.pending.withdraw(command)

    def change(self, change: Change, now: float) -> None:
        """An operator wants something of the next view (R1, N8)."""
        self.standing.now = now
        self.neighbours.flood(change)

    def force(self, cluster: bytes, lineage: int, now: float) -> None:
        """An operator has this machine go on alone, as another cluster (R4)."""
        assert self.standing.installed and self.standing.keeps_row and not self.standing.active
        self.standing.now = now
        self.views.force(cluster, lineage)

    def leave(self, now: float) -> None:
        """This process is about to end; the others need not wait to find out (S3)."""
        self.standing.now = now
        self.neighbours.flood(Leave(self.standing.incarnation))

    def need_image(self, now: float) -> None:
        """The node beside has no state that the row here leads on from: an image brings one (N4)."""
        standing = self.standing
        if not standing.stateless:
            standing.stateless, standing.stateless_since = True, now
        standing.now = now
        self.neighbours.links_due = True
        self._step_back()

    def _step_back(self) -> None:
        """Leaves the view, to take an image; it goes on acting if the others cannot without it (N8).

        Not all of them may take part in the next ballot, and then it has to stay: so it comes again,
        later each time, as each costs all of them a view.
        """
        standing, view, timing = self.standing, self.standing.newest, self.standing.timing
        members = {member.id for member in view.members}
        others = [v for v in view.voters if v[0] != standing.id and (v[0] in members or not v[3])]
        enough = 2 * sum(v[1] for v in others) > sum(v[1] for v in view.voters)
        if standing.active and enough and standing.now >= self._steps_back_at:
            self._stays = min(max(2 * self._stays, timing.readmit_min), timing.readmit_max)
            self._steps_back_at = standing.now + self._stays
            standing.leaves_until = standing.now + timing.readmit_min
            self.neighbours.flood(Leave(standing.incarnation))

    def hear_disk(self, disk: str, now: float) -> None:
        """The state of the reserve: on a full disk it acts no more, and the others go on."""
        self.standing.now = now
        if self.standing.room.hear(disk, now):
            self.views.wedge()
            self.neighbours.following.stop()  # what is followed is written, too
            self.neighbours.flood(Leave(self.standing.incarnation))
        self.views.try_install()
        self.neighbours.links_due = True

    def hear_damage(self, position: int, now: float) -> None:
        """Up to there something of the row is damaged; 0: it is whole."""
        self.standing.now, self.standing.hurt = now, position
        self.neighbours.links_due = True

    def counted(self, view: View | None, delivered: Mapping[int, int], now: float) -> None:
        """The installed view and what of it is in the row, after damage that hid it is mended."""
        standing = self.standing
        standing.now = now
        if standing.uncounted:
            if view is not None:
                self.views.learn(view)
                standing.installed, standing.cluster = view.id, view.cluster
            standing.uncounted, standing.delivered = False, dict(delivered)
            if self.ordering.streams.view == standing.installed:
                self.ordering.reached(standing.delivered)
            self.ordering.old = None  # of what was held it is not known what is in the row
            self.neighbours.links_due = True

    def no_image(self, peer: int, now: float) -> None:
        """That neighbour has none: somebody else may."""
        self.standing.now = now
        self.neighbours.images.failed(peer)
        self.neighbours.links_due = True

    def takes_image(self, position: int) -> bool:
        """Whether one of that position may become the row now (C4)."""
        standing = self.standing
        return not standing.active and position >= standing.position + (not standing.stateless)

    def based(self, position: int, view: View, delivered: Mapping[int, int], now: float) -> None:
        """An image is the row now, durably: up to that position, in that view (N5)."""
        assert self.takes_image(position)
        standing = self.standing
        standing.now, standing.stateless, standing.awaits_image = now, False, False
        self._steps_back_at = self._stays = 0.0
        standing.position = position
        standing.installed, standing.cluster = view.id, view.cluster
        standing.delivered, standing.uncounted = dict(delivered), False
        self.views.based(view)
        self.neighbours.links_due = True
        self._join()

    def digested(self, position: int, digest: bytes) -> None:
        """The store's digest of the row at a multiple of 1024."""
        self.neighbours.digested(position, digest)

    def take_effects(self, now: float, stamp: int) -> list[Effect]:
        """Ends the round.  `stamp`: the wall clock in microseconds, for bundles made in it."""
        self.standing.now = now
        self.ordering.advance(stamp)
        self.ordering.flush()
        self.handing.advance()
        self.neighbours.tell_links(self.ordering.streams)
        return self.outbox.take()

    # What concerns several rooms.

    def _control(self, source: int, payload: Payload) -> None:
        council = self.council
        match payload:
            case Prepare():
                council.hear_prepare(source, payload)
            case Promise():
                council.hear_promise(source, payload)
            case Accept():
                council.hear_accept(source, payload)
            case Accepted():
                council.hear_accepted(source, payload)
            case Refusal():
                council.hear_refusal(payload)
            case Decided():
                self.views.learn(payload.view)
            case Fetch():
                council.tails.hear_fetch(source, payload)
            case Tail():
                council.tails.hear_tail(source, payload)
                council.retry_accept()
            case Join():
                self.calling.hear_join(source, payload)
                self._found()
                council.call()  # from the message, not from the next beat
            case Change():
                self.calling.hear_change(payload)
                self._join()  # who shall get a vote says which disk it has
                council.call()
            case Hand():
                self.handing.hear(source, payload)
            case Leave():
                self.calling.hear_leave(source, payload)
                council.call()
            case _:
                assert_never(payload)

    def _beat_with(self, now: float) -> None:
        """A neighbour beats, and this node soon: together they wake each other once, not twice (T4)."""
        if self.beat_at - now <= self.standing.timing.beat_early:
            self.beat_at, self._beats_with = now, True

    def _follow(self, peer: int, generation: int, item: Item) -> None:
        """C1, C3, C5: items that somebody else delivered, while this node does not act."""
        standing, content = self.standing, item.content
        if standing.active or not self.neighbours.following.takes(generation):
            return
        if item.position != standing.position + 1:
            return
        if not standing.fits(content):
            why = f"item {item.position} of node {peer} does not fit the row here"
            self.neighbours.hang_up(peer, why)
            return
        if isinstance(content, View):
            self.views.install(content)
        else:
            self.ordering.place(content)
        self.views.try_install()
        self.council.retry_accept()

    def _found(self) -> None:
        """G1: only where nothing is known of any view."""
        blank = self.standing.newest is NOTHING and self.views.founded is None
        if blank and self._charter is not None:
            view = first_view(self._charter, self.standing.id, self.calling.joins())
            if view is not None:
                # Not said before it is durable: after a restart its founder would make another one.
                # Nor learned, which the flood does as well: who knows a view tells of it.
                self.views.found(view)
                self.outbox.when_durable(partial(self.neighbours.flood, Decided(view)))

    def _join(self) -> None:
        """Says that this process runs and is no active member (S3, R1, U3)."""
        standing = self.standing
        voter = voter_of(standing.newest, standing.id)
        stranger = voter is not None and voter.uuid != standing.uuid
        founds = standing.newest is NOTHING and self._charter is not None
        change = self.calling.change()
        called = change is not None and change.id == standing.id and voter is None
        if change is not None and not change.data and len(self.pending):
            called = False  # as a witness it would never hand that on (R3)
        wants = standing.holds_data or stranger or founds or called
        if standing.active or standing.held_off or not (wants and standing.comes):
            return
        self._joined_at = standing.now
        self.neighbours.flood(
            Join(
                standing.incarnation,
                standing.uuid,
                standing.newest.id,
                standing.position,
            )
        )


def held(recovered: Recovered) -> Streams:
    """The streams of the installed view, as the journal has them: this is what is reported (§11.3)."""
    streams = Streams.start(recovered.installed or NOTHING)
    for origin in streams.of:
        s = (recovered.delivered or {}).get(origin, 0)
        streams.of[origin] = Stream(base=s, have=s, journaled=s, durable=s)
    for bundle in recovered.bundles:
        if streams.take(bundle):
            stream = streams.of[bundle.origin]
            stream.journaled = stream.durable = bundle.s
    return streams
