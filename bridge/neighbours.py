"""Neighbours: the links that are up, what each end told, and what flows over them.

Each link carries, in both directions:

    Link            the whole state of one end, every beat and when it changes
    feeds           the streams that the other end *wants* from here: those of which this end is its
                    next hop (F2), so that in a mesh each origin sends to all, and a chain passes on (F3)
    Follow          the row itself, to whom asked for it; the store is read by the shell
    Control         floods

All of that whether this node acts or not (W3, F6).

A feed begins with Base, if the oldest bundles are gone here, then all bundles past what the other
has, then the newest acks; from then on each as it is taken (F4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from duckrow.node.row import Bundle

from .asking import Keeps
from .catchup import Following, ImageSource
from .effects import Alarm, Hang, Image, Send, Serve
from .flood import Flood
from .messages import Acks, Base, Control, Link, Message, Newer, Payload, Tail
from .outbox import Outbox
from .routes import Routes
from .standing import Standing
from .streams import Streams

DIGESTS_EVERY = 1024  # positions
ONLY_ACKS = (1 << 63) - 1  # wanted of a stream: its bundles all are there, as it were
DIGESTS_KEPT = 64  # the newest: neighbours may be that far apart and still compare


@attrs.define
class Neighbour:
    heard: float  # when it last said anything
    link: Link | None = None  # what it said of itself
    feeds: set[int] = attrs.field(factory=set)  # members whose acks go there
    bundles: set[int] = attrs.field(factory=set)  # of these, whose bundles do, too
    served: tuple[int, int] | None = None  # what it follows from here
    told: dict[int, Acks] = attrs.field(
        factory=dict
    )  # by member of a feed, the last that went there
    least: dict[int, int] = attrs.field(factory=dict)  # by origin, what all of these had acked then


@attrs.define
class Neighbours:
    standing: Standing
    outbox: Outbox
    flooding: Flood
    routes: Routes
    handle: Callable[[int, Payload], None]  # a control message for this node, by its source
    following: Following = attrs.field(init=False)
    floor: int = attrs.field(default=1, init=False)  # told by the store
    disk: str = attrs.field(default="ok", init=False)
    images: ImageSource = attrs.field(factory=ImageSource, init=False)
    digests: dict[int, bytes] = attrs.field(factory=dict, init=False)  # by position
    furthest: int = attrs.field(default=0, init=False)  # end of a row that was told of, ever
    _way: dict[int, int] = attrs.field(
        factory=dict, init=False
    )  # by id: the link by which its last flood came first
    _of: dict[int, Neighbour] = attrs.field(factory=dict, init=False)  # by id; links that are up
    links_due: bool = attrs.field(default=False, init=False)
    _came_to: int = attrs.field(default=0, init=False)  # position, by what was followed
    _came_at: float = attrs.field(default=0.0, init=False)  # when more came last, or was to come

    def __attrs_post_init__(self) -> None:
        self.following = Following(self.standing.timing.suspect_max)

    @property
    def linked(self) -> list[int]:
        return sorted(self._of)

    def of(self, peer: int) -> Neighbour | None:
        """None: the link is not up."""
        return self._of.get(peer)

    # Links.

    def up(self, peer: int) -> None:
        self.down(peer)
        self._of[peer] = Neighbour(self.standing.now)
        self.links_due = True

    def down(self, peer: int) -> None:
        self._of.pop(peer, None)
        self.outbox.forget(peer)
        self.following.lost(peer)
        self.images.lost(peer)
        self.reroute()

    def heard(self, peer: int) -> bool:
        """False: the link is not up any more, and what was on its way does not count."""
        neighbour = self._of.get(peer)
        if neighbour is not None:
            neighbour.heard = self.standing.now
        return neighbour is not None

    def hang_up(self, peer: int, why: str) -> None:
        """Something came that cannot be: somebody has to know, and nothing more of it is taken."""
        self.outbox.put(Alarm(why))
        self.outbox.put(Hang(peer, why))
        self.down(peer)

    def hang_up_dead(self) -> None:
        """A link that hears nothing may still send: closing it makes both ends see the same (F9)."""
        patience = self.standing.timing.link_dead
        for peer in self.linked:
            if self.standing.now - self._of[peer].heard > patience:
                self.outbox.put(Hang(peer, f"nothing was heard of it for {patience:g} s"))
                self.down(peer)

    def reroute(self) -> None:
        offers = {p: n.link.paths for p, n in self._of.items() if n.link is not None}
        if self.routes.settle(offers):
            self.links_due = True

    def hear_link(self, peer: int, link: Link, streams: Streams) -> None:
        neighbour = self._of[peer]
        known = self.standing.only_cluster
        if link.cluster and known and link.cluster != known:
            # Founded twice, or forced elsewhere: nothing of the one may count in the other (G1, N7).
            self.hang_up(
                peer, f"node {peer} is in cluster {link.cluster.hex()}, this is {known.hex()}"
            )
            return
        before, neighbour.link = neighbour.link, link
        first = before is None
        self.furthest = max(self.furthest, link.position)
        if before is None or before.paths != link.paths:
            self.reroute()
        if not self._agrees(peer, link):
            return
        if link.view < self.standing.newest.id:
            self.send(peer, Newer(self.standing.newest))
        self._feed(peer, neighbour, link, streams)
        if link.follow is None or neighbour.served is None or link.follow[0] != neighbour.served[0]:
            self._serve(peer, neighbour, link.follow)
        ahead = link.position > self.standing.position and self.following.upstream is None
        if (first or (ahead and self.images.peer is None)) and self._may_follow:
            self.links_due = True  # at once, so that it can be followed

    def tell_links(self, streams: Streams) -> None:
        """What every neighbour has to know of this end, if it is time to say so."""
        if not self.links_due:
            return
        self.links_due = False
        standing = self.standing
        self._catch_up()
        digest = max(self.digests.items(), default=(0, b""))
        for peer in self.linked:
            wants = {
                origin: stream.have if self._uses(origin, streams) else ONLY_ACKS
                for origin, stream in streams.of.items()
                if self.routes.next_hop.get(origin) == peer
            }
            follow = None
            if self.following.upstream == peer and not standing.active:
                follow = self.following.generation, standing.position
            link = Link(
                standing.newest.id,
                standing.position,
                digest,
                self.floor,
                self.disk,
                self.routes.paths,
                wants,
                follow,
                standing.newest.cluster,
            )
            self.send(peer, link)

    def follow_on(self) -> None:
        """From where the row ends now, which what was followed did not bring: from further back nobody may keep
        it any more.
        """
        if self.following.upstream is not None:
            self.following.generation += 1
            self.links_due = True

    @property
    def _may_follow(self) -> bool:
        standing = self.standing
        if standing.active or standing.is_leaving or standing.room.is_full:
            return False
        return standing.keeps_row and (standing.stateless or not standing.uncounted)

    def _catch_up(self) -> None:
        """From whom the row is followed, and if nobody has what comes next, from whom an image."""
        standing = self.standing
        near, far = dict[int, int](), dict[int, int]()
        if self._may_follow:
            for peer, neighbour in self._of.items():
                link = neighbour.link
                if link is None:
                    continue
                if standing.stateless:
                    if link.position >= standing.position:
                        far[peer] = link.position
                elif link.floor <= standing.position + 1:
                    near[peer] = link.position
                elif link.position > standing.position:
                    far[peer] = link.position
            self.following.choose(standing.position, near, standing.now)
        standing.awaits_image = bool(far) and not self._is_led(near)
        if self.images.choose(far if standing.awaits_image else {}):
            self.outbox.put(Image(self.images.peer))

    def _is_led(self, near: Mapping[int, int]) -> bool:
        """Whether more may come from who is followed.  It may have come no further itself, and wait here for
        what comes next, as this end does there: then an image is waited for no less.
        """
        upstream, position, now = self.following.upstream, self.standing.position, self.standing.now
        if upstream is None:
            return False
        if position != self._came_to or near.get(upstream, 0) > position:
            self._came_to, self._came_at = position, now
        return now - self._came_at < self.standing.timing.suspect_max

    def digested(self, position: int, digest: bytes) -> None:
        """Of the row here, at a multiple of 1024."""
        assert position % DIGESTS_EVERY == 0
        self.digests[position] = digest
        if len(self.digests) > DIGESTS_KEPT:
            del self.digests[min(self.digests)]

    def kept(self) -> dict[int, Keeps]:
        """By neighbour, what it tells of its row."""
        told = ((peer, neighbour.link) for peer, neighbour in self._of.items())
        return {peer: Keeps(link.floor, link.position) for peer, link in told if link is not None}

    def _agrees(self, peer: int, link: Link) -> bool:
        """D-check: two rows are prefixes of one.  If not, this end stops acking, and says so."""
        position, digest = link.digest
        if self.digests.get(position, digest) == digest:
            return True
        self.standing.diverged = True
        self.hang_up(
            peer, f"the row here is not that of node {peer}: their digests at {position} differ"
        )
        return False

    # Feeds.

    def new_view(self) -> None:
        """The streams are others now, and wanted anew."""
        for neighbour in self._of.values():
            neighbour.feeds, neighbour.bundles = set(), set()
            neighbour.told.clear()
            neighbour.least.clear()
        self.links_due = True

    def pass_on(self, bundle: Bundle) -> None:
        self._pass(bundle.origin, bundle)

    def pass_base(self, base: Base) -> None:
        """Whoever is fed from here jumps with this end, or it would see a gap (F5)."""
        self._pass(base.origin, base)

    def tell_acks(self, streams: Streams, *, everything: bool) -> None:
        """What members have acked, to the neighbours that hear of them through here (T3).

        Nothing is delivered before all have acked it.  So what some of a feed's members acked waits for the
        others of that feed, until the next beat at most: along a chain acks come back in one wave.
        Signs of life do not wait.
        """
        heard = streams.newest
        for peer, neighbour in self._of.items():
            told, feeds = neighbour.told, neighbour.feeds
            newest = [heard[each] for each in feeds if each in heard]
            news = [acks for acks in newest if told.get(acks.member) is not acks]
            if not news:
                continue
            least = streams.least(newest) if len(newest) == len(feeds) else {}
            if not everything and least == neighbour.least:
                news = [acks for acks in news if _says_as_much(told.get(acks.member), acks)]
            else:
                neighbour.least = least
            for acks in news:
                told[acks.member] = acks
                self.send(peer, acks)

    def _pass(self, origin: int, message: Message) -> None:
        for peer, neighbour in self._of.items():
            if origin in neighbour.bundles:
                self.send(peer, message)

    def _uses(self, origin: int, streams: Streams) -> bool:
        """A member acks its bundles, and who feeds others passes them on.  For all others they are in the row
        that they follow, and would come twice over a link that may be slow.
        """
        is_member = self.standing.id in streams.of
        return is_member or any(origin in each.bundles for each in self._of.values())

    def _feed(self, peer: int, neighbour: Neighbour, link: Link, streams: Streams) -> None:
        if link.view != streams.view:
            # It ignores streams of another view than its own (F8).
            neighbour.feeds, neighbour.bundles = set(), set()
            return
        before, neighbour.feeds = neighbour.feeds, set(link.wants) & streams.of.keys()
        for origin in sorted(before - neighbour.feeds):
            neighbour.told.pop(origin, None)
        wanted = {origin for origin in neighbour.feeds if link.wants[origin] != ONLY_ACKS}
        had, neighbour.bundles = neighbour.bundles, wanted
        if neighbour.bundles - had and self.standing.id not in streams.of:
            self.links_due = True  # who only passes them on wants them from now on
        for origin in sorted(neighbour.bundles - had):
            have = link.wants[origin]
            gone = streams.of[origin].base
            if self.standing.installed == streams.view:
                gone = max(gone, self.standing.delivered.get(origin, 0))
            if have < gone:
                self.send(peer, Base(streams.view, origin, gone))
            for bundle in streams.after(origin, max(have, gone)):
                self.send(peer, bundle)
        for origin in sorted(neighbour.feeds - before):
            acks = streams.newest.get(origin)
            if acks is not None:
                neighbour.told[origin] = acks
                self.send(peer, acks)

    def _serve(self, peer: int, neighbour: Neighbour, follow: tuple[int, int] | None) -> None:
        if follow != neighbour.served:
            neighbour.served = follow
            self.outbox.put(Serve(peer, follow))

    # Control.

    def flood(self, payload: Payload, to: int | None = None) -> None:
        """To everybody, or to one; this node is somebody too."""
        self._flood(self.flooding.start(payload, to), None)
        if to is None or to == self.standing.id:
            self.handle(self.standing.id, payload)

    def hear_control(self, peer: int, control: Control) -> None:
        if not self.flooding.is_new(control):
            return
        self._way[control.source] = peer
        if control.to != self.standing.id:
            self._flood(control, peer)
        if control.to is None or control.to == self.standing.id:
            self.handle(control.source, control.payload)

    def _flood(self, control: Control, back: int | None) -> None:
        way = self._way.get(control.to) if control.to is not None else None
        bulky = isinstance(control.payload, Tail)  # asked for again where it gets lost
        for peer in [way] if bulky and way in self._of and way != back else self.linked:
            if peer != back:
                self.send(peer, control)

    def send(self, peer: int, message: Message) -> None:
        self.outbox.put(Send(peer, message))


def _says_as_much(before: Acks | None, now: Acks) -> bool:
    """A sign of life and nothing else, or the first that is said at all."""
    return before is None or (before.s == now.s and before.acks == now.acks)
