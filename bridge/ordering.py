"""Ordering: from commands to items, while a view lasts.

    commands --> bundle, stamped with the clock --> all members --> journaled, durable --> acked
                                                                                             |
    item  <-- delivered  <-- the head of the order, and acked by *every* member  <-----------'

The clock is Lamport's: it counts own bundles, and taking a bundle raises it to what that one has.
So what a member makes after its ack of a bundle sorts behind it; once all have acked the head,
nothing that is still unseen can come before it.

Durability is the members' word: at level fsync an ack follows the sync, else the write.  The origin's
own copy is not taken for granted: it acks like everybody else (B3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import attrs

from duckrow.node.limits import (
    BUNDLE_BYTES_MAX,
    ORIGIN_BUNDLES_MAX,
)
from duckrow.node.row import Bundle, View

from .effects import Journal, Place, Settled, Staged
from .messages import Acks, Base, name_of
from .neighbours import Neighbours
from .outbox import Outbox
from .pace import Pace
from .pending import Pending, Waiting, size_of
from .standing import Standing
from .streams import Gap, Streams

BUNDLE_COMMANDS: Final = 256  # applied in one go, so that others wait some milliseconds at most
CLOCK_JUMP_MAX: Final = 1 << 32  # more at once is corruption (B2)
CLOCK_MAX: Final = 1 << 62  # a new view starts at 0 again
STAGES_PER_START: Final = 1 << 32


class UnderWay(NamedTuple):
    """An own bundle that has no place yet."""

    bytes: int
    since: float


@attrs.define
class Ordering:
    standing: Standing
    outbox: Outbox
    neighbours: Neighbours
    pending: Pending
    streams: Streams  # of the newest view
    old: Streams | None  # of the installed view, if that is not the newest (V7)
    others: Callable[[Bundle], None]  # is shown the items of other origins
    clock: int = attrs.field(default=0, init=False)
    _beat: int = attrs.field(default=0, init=False)
    _stages: int = attrs.field(default=0, init=False)
    acks_due: bool = attrs.field(default=False, init=False)
    beats: bool = attrs.field(default=False, init=False)  # in this round
    _unsynced: bool = attrs.field(default=False, init=False)  # this round journaled something
    _own: list[Bundle] = attrs.field(factory=list, init=False)  # journaled in this round, own
    _under_way: dict[int, UnderWay] = attrs.field(factory=dict, init=False)  # own, by s
    _pace: Pace = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pace = Pace(self.standing.timing.suspect_min / 2)

    # What comes over a feed.

    def take(self, peer: int, bundle: Bundle) -> None:
        current = self.standing.active and bundle.view == self.streams.view
        if current and bundle.lamport > self.clock + CLOCK_JUMP_MAX:
            self.neighbours.hang_up(peer, f"the clock of {name_of(bundle)} is {bundle.lamport}")
            return
        try:
            new = self.streams.take(bundle)
        except Gap as gap:
            self.neighbours.hang_up(peer, str(gap))  # the next link begins where this end is
            return
        if new:
            self._taken(bundle)

    def hear(self, acks: Acks) -> bool:
        """True: a new sign of life of this member."""
        if acks.member == self.standing.id or not self.streams.hear(acks):
            return False
        if self._only_relays():
            self.streams.drop_acked_by_all()
        elif self.standing.id not in self.streams.of:
            self.streams.drop_older()
        return True

    def jump(self, base: Base) -> None:
        if base.view == self.streams.view and self.streams.jump(base.origin, base.s):
            assert not self.standing.active, "all members hold it, and this one does not"
            self.neighbours.pass_base(base)

    def reached(self, delivered: Mapping[int, int]) -> None:
        """An image has so much of the streams of this view."""
        for origin, s in delivered.items():
            if self.streams.reached(origin, s):
                self.neighbours.pass_base(Base(self.streams.view, origin, s))

    def _only_relays(self) -> bool:
        """F6: a data voter that has installed the view may be asked to accept the next one."""
        standing = self.standing
        if standing.id in self.streams.of:
            return False
        return not standing.holds_data or standing.installed < standing.newest.id

    def _taken(self, bundle: Bundle) -> None:
        self.neighbours.pass_on(bundle)  # before the own disk has it (F4, B3)
        if self.standing.active:
            self.journal(bundle)

    # The own disk.

    def journal(self, bundle: Bundle) -> None:
        """What an active member takes: its clock goes past it, and it will be acked (B2, T3)."""
        self.clock = max(self.clock, bundle.lamport)
        self.outbox.put(Journal(bundle))
        self.streams.of[bundle.origin].journaled = bundle.s
        own = bundle.origin == self.standing.id
        if self.standing.waits_for_disk:
            self._unsynced = True
            if own:
                self._own.append(bundle)
        else:
            self._durable(self.streams, {bundle.origin: bundle.s})
            if own:
                self.outbox.put(Staged(bundle))

    def _durable(self, streams: Streams, journaled: dict[int, int]) -> None:
        """What a sync covers may be acked, unless a promise came between (W1, W2)."""
        if not self.standing.active or streams is not self.streams:
            return
        acked = streams.acked[self.standing.id]
        for origin, s in journaled.items():
            if s > acked.get(origin, 0):
                acked[origin] = streams.of[origin].durable = s
                self.acks_due = True

    def activated(self) -> None:
        """Acts from now on: what came early is journaled and acked, what waited is sent (V10)."""
        self.clock = 0
        self._pace.dropped(self._own_bytes())
        self._under_way.clear()
        self.pending.again()
        for stream in self.streams.of.values():
            for s in range(stream.journaled + 1, stream.have + 1):
                self.journal(stream.bundles[s])
        self.acks_due = True

    # The row.

    def advance(self, stamp: int) -> None:
        """Delivers and makes whatever is due, once for all inputs of a round."""
        if not self.standing.active:
            self._stage(stamp)
            return
        self._deliver()
        made = False
        while self.pending.waits and self._has_room():
            bytes_max = min(BUNDLE_BYTES_MAX, self._pace.bytes)
            waiting = self.pending.take(BUNDLE_COMMANDS, bytes_max)
            if waiting.commands:
                self._originate(waiting, stamp)
                made = True
        if made:
            self._deliver()  # where nobody else has to ack, and no disk

    def _has_room(self) -> bool:
        """B1: a bounded number of own bundles is under way; the others gather meanwhile."""
        if not self._under_way:
            return True
        return len(self._under_way) < ORIGIN_BUNDLES_MAX and self._own_bytes() < self._pace.bytes

    def _own_bytes(self) -> int:
        return sum([each.bytes for each in self._under_way.values()])

    def _originate(self, waiting: Waiting, stamp: int) -> None:
        """B1."""
        self.clock += 1
        me, view = self.standing.id, self.streams.view
        s = self.streams.of[me].have + 1
        bundle = Bundle(view, me, s, self.clock, stamp, waiting.commands)
        self.streams.take(bundle)
        self._under_way[s] = UnderWay(size_of(waiting.commands), self.standing.now)
        self.pending.bundled(bundle)
        self._taken(bundle)
        for stage in waiting.stages:
            self.outbox.put(Settled(stage))
        self.acks_due = True  # they ride along (T3)

    def _stage(self, stamp: int) -> None:
        """Nothing can be ordered now; what was accepted is kept on this disk (P1)."""
        while True:
            waiting = self.pending.take(BUNDLE_COMMANDS, BUNDLE_BYTES_MAX, only_fresh=True)
            if not waiting.commands:
                return
            self._stages += 1
            s = (
                self.standing.start_count * STAGES_PER_START + self._stages
            )  # never given twice (I3)
            bundle = Bundle(0, self.standing.id, s, 0, stamp, waiting.commands)
            self.pending.staged(bundle)
            self.outbox.put(Journal(bundle))
            if self.standing.waits_for_disk:
                self._own.append(bundle)
            else:
                self.outbox.put(Staged(bundle))

    def _deliver(self) -> None:
        """O1: the lowest of what was received, once every member acked it; nothing overtakes it."""
        standing, streams = self.standing, self.streams
        while standing.active:
            head = streams.head(standing.delivered)
            if head is None or streams.lacking(head):
                break
            self.place(head)

    def place(self, bundle: Bundle) -> None:
        """The bundle is the next item of the row: delivered, installed or followed (O2)."""
        standing, origin, s = self.standing, bundle.origin, bundle.s
        assert bundle.view == standing.installed, f"{bundle[:3]} in view {standing.installed}"
        assert s == standing.delivered.get(origin, 0) + 1, (
            f"{bundle[:3]} after {standing.delivered}"
        )
        standing.position += 1
        streams = self._streams_of(bundle.view)
        if streams is None or s > streams.of[origin].journaled:
            self.outbox.put(Journal(bundle))
            if streams is not None:
                streams.of[origin].journaled = s
        self.outbox.put(Place(standing.position, name_of(bundle)))
        standing.delivered[origin] = s
        if streams is not None:
            streams.drop(origin, s)  # O3
        if origin == standing.id:
            for stage in self.pending.ordered(bundle):
                self.outbox.put(Settled(stage))
            if s in self._under_way:
                self._pace.delivered(self._own_bytes(), standing.now - self._under_way.pop(s).since)
        else:
            self.others(bundle)

    def _streams_of(self, view: int) -> Streams | None:
        if self.streams.view == view:
            return self.streams
        return self.old if self.old is not None and self.old.view == view else None

    # Views.

    def new_view(self, view: View) -> None:
        """The streams of the installed view are set aside, until it is known what of them counts (V7)."""
        if self.standing.installed == self.streams.view:
            self.old = self.streams
        self.streams = Streams.start(view)

    def holds(self, view: View) -> bool:
        """Whether this node could install that value right now (V6)."""
        installed = self.standing.installed == self.standing.newest.id == view.id - 1
        return installed and not self.streams.lacks(self.standing.delivered, dict(view.cut))

    def journal_cut(self, view: View) -> None:
        """What the value needs is as durable as its acceptance (V6)."""
        for origin, end in view.cut:
            stream = self.streams.of[origin]
            done = max(self.standing.delivered.get(origin, 0), stream.journaled)
            for s in range(done + 1, end + 1):
                self.outbox.put(Journal(stream.bundles[s]))
                stream.journaled = s

    def journaled(self) -> dict[int, int]:
        return {origin: stream.journaled for origin, stream in self.streams.of.items()}

    # The end of a round.

    def flush(self) -> None:
        """One sync for all that the round journaled, one Acks for all it has to say (T3, T4)."""
        if self._unsynced:
            self._unsynced = False
            self.outbox.when_durable(partial(self._durable, self.streams, self.journaled()))
        if self._own:
            own, self._own = self._own, []
            self.outbox.when_durable(partial(self._staged, own))
        if self.acks_due and self.standing.active:
            self._beat += 1
            streams, me = self.streams, self.standing.id
            acked = dict(streams.acked[me])
            acks = Acks(streams.view, me, streams.of[me].have, acked, self._beat)
            streams.hear(acks)
        self.acks_due = False
        self.neighbours.tell_acks(self.streams, everything=self.beats)
        self.beats = False

    def _staged(self, own: list[Bundle]) -> None:
        for bundle in own:
            self.outbox.put(Staged(bundle))
