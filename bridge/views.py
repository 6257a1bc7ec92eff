"""Views: learned, installed, acted in; and the end of acting, the wedge.

    learned ----> installed ----> active ----> wedged
    (newest)      (the row is     (named, and   (promised to somebody
                  complete up     durable)      who wants the next)
                  to its mark)

Installing needs nobody: whoever physically holds all bundles of the cut puts them into the row in
their order, and the mark behind them (V8).  Whoever does not follows the row of one that did, and
finds the mark there.
"""

from __future__ import annotations

from functools import partial

import attrs

from duckrow.node.row import View

from .acceptor import Acceptor
from .effects import Alarm, Learned, Place
from .forcing import forced_view
from .neighbours import Neighbours
from .ordering import Ordering
from .outbox import Outbox
from .standing import Standing
from .streams import Streams
from .suspicion import Suspicion


@attrs.define
class Views:
    standing: Standing
    outbox: Outbox
    neighbours: Neighbours
    ordering: Ordering
    suspicion: Suspicion
    founded: View | None = attrs.field(default=None, init=False)  # made by this process

    def found(self, view: View) -> None:
        """G1: it is written down; this node learns it like all others, when that is durable.

        A view that is known here is told to every neighbour that knows less.
        """
        self.founded = view
        self.outbox.put(Learned(view))

    def learn(self, view: View) -> None:
        """V7: a decided view, from anywhere."""
        standing = self.standing
        if view.id <= standing.newest.id:
            return
        if view.cluster != (standing.only_cluster or view.cluster):
            return  # rows of different clusters never merge (N7)
        if not standing.newest.id and self.founded not in (None, view):
            return  # the first one is written down already, and it is not this
        self._know(view)

    def force(self, cluster: bytes, lineage: int) -> None:
        """An operator has this machine go on alone, whatever the others did (R4)."""
        standing, ordering = self.standing, self.ordering
        if ordering.streams.view == standing.installed:
            held = ordering.streams
        else:
            held = ordering.old or Streams(standing.installed, {}, {}, {})
        ordering.old = held
        # The row here is the row from now on, and of the view nothing comes that is not in it yet.
        standing.diverged = standing.uncounted = False
        me = standing.id, standing.uuid, standing.incarnation
        cut = held.journaled_on(standing.delivered)
        self._know(forced_view(standing.newest, *me, cut, cluster, lineage))

    def _know(self, view: View) -> None:
        """It is the newest one from now on."""
        standing = self.standing
        before = {member.id for member in standing.newest.members}
        self.suspicion.ejected(before - {member.id for member in view.members}, standing.now)
        disks = {voter[0]: voter[2] for voter in standing.newest.voters}
        for id_, _, disk, _ in view.voters:
            was = disks.get(id_, disk)
            if was != disk and self.suspicion.replaced(id_, was, disk, standing.now):
                text = f"node {id_} has a disk that it had before: two machines may have its id"
                self.outbox.put(Alarm(text))
        self.ordering.new_view(view)
        standing.newest = view
        standing.acceptor = Acceptor(view.id + 1)
        standing.active = False
        standing.learned.append(standing.now)
        if view != self.founded:
            self.outbox.put(Learned(view))
        self.suspicion.watch(view, standing.now)
        self.neighbours.new_view()
        self.try_install()

    def try_install(self) -> None:
        """V8: from what this node holds itself, in the order of the row, waiting for nobody."""
        standing, old = self.standing, self.ordering.old
        view = standing.newest
        if old is None or old.view != standing.installed or not standing.fits(view):
            return
        if not standing.keeps_row:
            return  # a witness that began a row would be followed, and never go on
        if standing.room.is_full or standing.uncounted:
            return
        cut = dict(view.cut)
        if old.lacks(standing.delivered, cut):
            return  # counters would not do: a relay may have dropped what it counted
        for bundle in old.rest(standing.delivered, cut):
            self.ordering.place(bundle)
        self.install(view)
        self.neighbours.follow_on()

    def install(self, view: View) -> None:
        """The mark is the next item of the row: made here, or followed."""
        standing = self.standing
        assert standing.fits(view), f"the mark of view {view.id} in view {standing.installed}"
        standing.position += 1
        self.outbox.put(Place(standing.position, view))
        standing.installed, standing.cluster = view.id, view.cluster
        standing.delivered = {}
        self.learn(view)
        self.ordering.old = None
        if view.id == standing.newest.id:
            # V9, V11: at every level, since what it acks from now on says that it has all before.
            self.outbox.when_durable(partial(self._activate, view.id))

    def based(self, view: View) -> None:
        """An image ends in this view: what was held of older ones does not count any more."""
        self.neighbours.follow_on()
        self.ordering.old = None
        self.learn(view)
        self.ordering.old = None
        if view.id == self.standing.newest.id:
            self.ordering.reached(self.standing.delivered)
            self.outbox.when_durable(partial(self._activate, view.id))

    def wedge(self) -> None:
        """W1: no bundle, no ack, no delivery in this view any more, by this node."""
        self.standing.active, self.standing.wedged = False, self.standing.newest.id

    def _activate(self, view: int) -> None:
        """V10."""
        standing = self.standing
        if standing.active or standing.newest.id != view or not standing.may_act:
            return
        standing.active = True
        self.neighbours.following.stop()
        self.neighbours.links_due = True
        self.suspicion.watch(standing.newest, standing.now)
        self.ordering.activated()
