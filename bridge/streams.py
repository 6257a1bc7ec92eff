"""Streams: what is held here of every member's bundles in one view, and who has acked what.

Each member numbers its own bundles 1, 2, 3 ...  For each such stream there are counters that only
grow, and the bundles themselves, which come and go:

    1 ... base ... delivered ... durable ... journaled ... have
          '-- dropped here       '-- acked    '-- reported   '-- received without a gap

Counters are not possession (F6): whoever dropped what all members hold still counts on.  So what
may be installed is asked of the bundles (`lacks`), never of `have`.

Acks are counted here too.  An ack is also a promise of the clock: whatever its member makes later
sorts behind what it acked.  That holds only for bundles made later, so an ack waits until all that
its member made before is here (T2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from duckrow.node.limits import ORIGIN_BUNDLES_MAX, ORIGIN_BYTES_MAX
from duckrow.node.row import Bundle, View

from .messages import Acks
from .pending import size_of


class Gap(Exception):
    """Raised when a feed skips a bundle, which a feed cannot do (F4): a bug, here or there."""


@attrs.define
class Stream:
    """One member's bundles.  Counters never go down."""

    base: int = 0  # up to here bundles were dropped, since every member holds them
    have: int = 0
    journaled: int = 0
    durable: int = 0
    bundles: dict[int, Bundle] = attrs.field(factory=dict)  # by s; those past `have` are of a tail
    _sizes: dict[int, int] = attrs.field(factory=dict, init=False)  # bytes, by s, where asked for

    def holds_too_much(self) -> bool:
        """The oldest was delivered by its origin, which makes no more while so much is under way (B1)."""
        if self.base < self.have - ORIGIN_BUNDLES_MAX:
            return True
        under_way = range(self.base + 1, self.have)  # all of it, when the last one was made
        sizes = self._sizes
        self._sizes = {s: sizes.get(s) or size_of(self.bundles[s].commands) for s in under_way}
        return sum(self._sizes.values()) >= ORIGIN_BYTES_MAX


@attrs.define
class Streams:
    view: int
    of: dict[int, Stream]  # by origin
    acked: dict[int, dict[int, int]]  # by member, by origin; of this member: what is durable
    newest: dict[int, Acks]  # by member; the last that was heard, counted or not

    @classmethod
    def start(cls, view: View) -> Streams:
        ids = [member.id for member in view.members]
        return cls(view.id, {i: Stream() for i in ids}, {i: {} for i in ids}, {})

    # Bundles.

    def take(self, bundle: Bundle) -> bool:
        """True: it is new.  Records of one origin come in order (T1)."""
        stream = self.of.get(bundle.origin)
        if bundle.view != self.view or stream is None or bundle.s <= stream.have:
            return False  # of another view (F8), or a duplicate
        if bundle.s != stream.have + 1:
            raise Gap(f"{bundle[:3]} came, and of its stream only {stream.have} are here")
        stream.bundles[bundle.s] = bundle
        stream.have = bundle.s
        self._count(bundle.origin)
        return True

    def keep(self, bundle: Bundle, delivered: int) -> bool:
        """A bundle out of a tail: it is held, but the feed goes on where it was (V6).  True: it is new."""
        stream = self.of.get(bundle.origin)
        if bundle.view != self.view or stream is None or bundle.s <= delivered:
            return False
        if bundle.s in stream.bundles:
            return False
        stream.bundles[bundle.s] = bundle
        return True

    def jump(self, origin: int, s: int) -> bool:
        """The feed of this origin goes on after s (F5).  True: that is news."""
        stream = self.of.get(origin)
        if stream is None or s <= stream.have:
            return False
        stream.have = stream.base = s
        for held in [n for n in stream.bundles if stream.journaled < n <= s]:
            del stream.bundles[held]
        self._count(origin)
        return True

    def drop(self, origin: int, s: int) -> None:
        """It is in the row here, and every member holds it (O3)."""
        stream = self.of.get(origin)
        if stream is not None:
            stream.bundles.pop(s, None)
            if s <= stream.have:
                stream.base = max(stream.base, s)

    def reached(self, origin: int, s: int) -> bool:
        """An image has all of it up to there, durably.  True: the feed jumps behind it."""
        stream = self.of.get(origin)
        if stream is None:
            return False
        jumped = self.jump(origin, s)
        for held in [each for each in stream.bundles if each <= s]:
            del stream.bundles[held]
        stream.base = max(stream.base, s)
        stream.journaled = max(
            stream.journaled, s
        )  # what is reported must not be less than the row
        stream.durable = max(stream.durable, s)
        return jumped

    def drop_acked_by_all(self) -> None:
        """What a relay that is no member need not keep (F6)."""
        for origin, stream in self.of.items():
            held_by_all = min(acked.get(origin, 0) for acked in self.acked.values())
            while stream.base < min(held_by_all, stream.have):
                self.drop(origin, stream.base + 1)

    def drop_older(self) -> None:
        """What the next view may ask a voter for that follows too slowly is no older than this: an origin
        that makes one more has delivered what it made so many before, or so many bytes (B1, F10).  And
        all of it goes over one link to who is fed from here, which takes no more at a time.

        What it has accepted with the next view stays: it has to be able to install that by itself (V6).
        """
        for stream in self.of.values():
            while stream.holds_too_much():
                stream.base += 1
                if stream.base > stream.journaled:
                    stream.bundles.pop(stream.base, None)

    def after(self, origin: int, s: int) -> Iterator[Bundle]:
        """What is held of a stream past s, in order."""
        stream = self.of[origin]
        return (stream.bundles[n] for n in range(max(s, stream.base) + 1, stream.have + 1))

    # Acks.

    def hear(self, acks: Acks) -> bool:
        """True: newer than all before from this member."""
        last = self.newest.get(acks.member)
        if acks.view != self.view or acks.member not in self.of:
            return False  # of another view (F8)
        if last is not None and acks.beat <= last.beat:
            return False
        self.newest[acks.member] = acks
        self._count(acks.member)
        return True

    def _count(self, member: int) -> None:
        """Lets the newest acks of this member count, if all it made before is here (T2).

        So acks may overtake bundles on their way (F7).
        """
        acks = self.newest.get(member)
        if acks is not None and self.of[member].have >= acks.s:
            acked = self.acked[member]
            for origin, s in acks.acks.items():
                if s > acked.get(origin, 0):
                    acked[origin] = s

    @staticmethod
    def least(newest: Iterable[Acks]) -> dict[int, int]:
        """By origin, what all of these have acked, which are one or more."""
        first, *others = [acks.acks for acks in newest]
        least = first
        for acked in others:
            least = {o: min(s, acked[o]) for o, s in least.items() if o in acked}
        return least

    # The order.

    def head(self, delivered: Mapping[int, int]) -> Bundle | None:
        """The lowest (lamport, origin) of what was received and is not in the row yet."""
        head = None
        for origin, stream in self.of.items():
            s = delivered.get(origin, 0) + 1
            if s <= stream.have:
                bundle = stream.bundles[s]
                if head is None or (bundle.lamport, bundle.origin) < (head.lamport, head.origin):
                    head = bundle
        return head

    def lacking(self, bundle: Bundle) -> list[int]:
        """The members whose ack of it is missing; empty: it is stable (O1)."""
        origin, s = bundle.origin, bundle.s
        return [member for member, acked in self.acked.items() if acked.get(origin, 0) < s]

    def lacks(self, delivered: Mapping[int, int], cut: Mapping[int, int]) -> bool:
        """Whether a bundle of the cut is neither in the row nor physically here (V6, V8)."""
        return bool(self.gaps(delivered, cut))

    def gaps(self, delivered: Mapping[int, int], cut: Mapping[int, int]) -> dict[int, int]:
        """By origin of which something of the cut is missing: the last one before that."""
        gaps = {}
        for origin, end in cut.items():
            s = delivered.get(origin, 0)
            bundles = self.of[origin].bundles
            while s < end and s + 1 in bundles:
                s += 1
            if s < end:
                gaps[origin] = s
        return gaps

    def journaled_on(self, delivered: Mapping[int, int]) -> dict[int, int]:
        """By origin, how far it is in the row or on this disk, without a gap: a cut of what is here."""
        cut = {}
        for origin, stream in self.of.items():
            s = delivered.get(origin, 0)
            while s < stream.journaled and s + 1 in stream.bundles:
                s += 1
            cut[origin] = s
        return cut

    def rest(self, delivered: Mapping[int, int], cut: Mapping[int, int]) -> list[Bundle]:
        """The bundles of the cut that are not in the row yet, in the order of the row."""
        rest = [
            self.of[origin].bundles[s]
            for origin, end in cut.items()
            for s in range(delivered.get(origin, 0) + 1, end + 1)
        ]
        return sorted(rest, key=lambda bundle: (bundle.lamport, bundle.origin))
