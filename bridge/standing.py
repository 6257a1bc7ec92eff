"""Standing: who this node is, which views it knows, and how far its row goes.

    installed <= newest      the view of the last mark in the row; the newest decided one known
    active                   it acts in the newest view: makes bundles, acks, delivers by itself

What a node may do follows from these alone, and the questions are asked here in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import attrs

from duckrow.node.forms import Start
from duckrow.node.row import Bundle, View
from duckrow.node.storeoptions import FSYNC

from .acceptor import Acceptor
from .electorate import NOTHING, incarnation_of, voter_of, votes
from .exactness import is_exact
from .forcing import may_skip
from .recovered import Recovered
from .room import Room
from .timing import Timing


@attrs.define
class Standing:
    id: int
    uuid: bytes
    incarnation: int
    starts: Mapping[int, Start]
    timing: Timing
    newest: View
    installed: int  # id of a view; 0: the row is empty
    cluster: bytes  # of that view; only a forced one has another than the one before it
    position: int
    delivered: dict[int, int]  # by origin, of the installed view
    acceptor: Acceptor  # of the register after the newest view
    uncounted: bool  # damage hides what of the installed view is in the row: nothing can follow
    now: float  # of the input that is being handled
    foretold: bytes = attrs.field(
        default=b"", init=False
    )  # cluster of which the first view is to be
    active: bool = attrs.field(default=False, init=False)
    wedged: int = attrs.field(default=0, init=False)  # the last view in which it ended acting (W1)
    stateless: bool = attrs.field(default=False, init=False)  # the node has lost what it knew
    stateless_since: float = attrs.field(default=0.0, init=False)
    awaits_image: bool = attrs.field(default=False, init=False)  # nobody has the next item any more
    leaves_until: float = attrs.field(default=0.0, init=False)  # till then they may let it go
    room: Room = attrs.field(init=False)
    diverged: bool = attrs.field(default=False, init=False)  # its row is not that of the others
    hurt: int = attrs.field(default=0, init=False)  # position up to which items are damaged here
    learned: deque[float] = attrs.field(factory=deque, init=False)  # when the last views came

    @classmethod
    def start(cls, recovered: Recovered, timing: Timing, now: float) -> Standing:
        newest = recovered.newest or NOTHING
        return cls(
            id=recovered.id,
            uuid=recovered.uuid,
            incarnation=recovered.incarnation,
            starts=recovered.starts,
            timing=timing,
            newest=newest,
            installed=(recovered.installed or NOTHING).id,
            cluster=(recovered.installed or NOTHING).cluster,
            position=recovered.position,
            delivered=dict(recovered.delivered or {}),
            uncounted=recovered.delivered is None,
            acceptor=Acceptor.recovered(newest.id + 1, recovered.register),
            now=now,
        )

    def __attrs_post_init__(self) -> None:
        self.room = Room(self.timing)

    @property
    def only_cluster(self) -> bytes:
        """Views of others are not for this node; empty: there is none yet, and it may be any."""
        return self.newest.cluster or self.foretold

    @property
    def start_count(self) -> int:
        return self.starts[self.incarnation].start_count

    @property
    def waits_for_disk(self) -> bool:
        """Whether acks come after the sync, by level."""
        return self.newest.durability == FSYNC

    @property
    def votes(self) -> bool:
        """U2."""
        return votes(self.newest, self.id, self.uuid)

    @property
    def keeps_row(self) -> bool:
        """All but witnesses, and who knows no view yet does not know whether it is one."""
        voter = voter_of(self.newest, self.id)
        return self.newest.id > 0 and (voter is None or voter.data)

    @property
    def holds_data(self) -> bool:
        """A voter that may be a member."""
        voter = voter_of(self.newest, self.id)
        return voter is not None and voter.data

    @property
    def is_witness(self) -> bool:
        """A voter that keeps no row."""
        voter = voter_of(self.newest, self.id)
        return voter is not None and not voter.data

    @property
    def may_act(self) -> bool:
        """V10, and I2: this incarnation is named in the newest view, and installed it."""
        return (
            self.installed == self.newest.id
            and incarnation_of(self.newest, self.id) == self.incarnation
            and self.votes
            and self.acceptor.promised is None
            and len(self.newest.members) >= self.newest.min_copies
            and not self.diverged
            and not self.room.is_full
            and self.wedged != self.newest.id  # it left: its clock starts at 0 with a view only
        )

    @property
    def is_leaving(self) -> bool:
        """It stepped back, and the next view, without it, is about to begin.

        An image of before that would be of no use: the row here gets the mark of that view, too.
        """
        is_named = incarnation_of(self.newest, self.id) == self.incarnation
        return is_named and self.now < self.leaves_until

    @property
    def comes(self) -> bool:
        """It could be a member of the next view soon: nobody would have to wait for it."""
        lacks = self.stateless or self.awaits_image or self.uncounted
        return not lacks and not self.room.is_full

    @property
    def held_off(self) -> bool:
        """Its disk was full a short time ago: it does not come before its time, unless it is needed."""
        return self.now < self.room.until

    @property
    def exact(self) -> bool:
        """X1; who has no room for what the next view brings does not carry it over.

        Nor does one that has not whole what it acked in this view: that are the items since the mark.
        Damage that a start has found needs no word here: no view from before it lists this disk (U3).
        """
        mark = self.position - sum(self.delivered.values())
        return not (self.room.is_full or self.hurt > mark) and is_exact(
            self.newest,
            self.id,
            installed=self.installed,
            uuid=self.uuid,
            incarnation=self.incarnation,
            starts=self.starts,
        )

    def fits(self, content: Bundle | View) -> bool:
        """Whether it can be the next item of the row."""
        if isinstance(content, View):
            if content.cluster != self.cluster and self.installed:
                return content.id > self.installed and may_skip(content)  # it was forced
            return content.id == self.installed + 1
        s = self.delivered.get(content.origin, 0) + 1
        return content.view == self.installed and content.s == s

    def churn(self) -> int:
        """How many views came lately (V3)."""
        while self.learned and self.now - self.learned[0] >= self.timing.churn:
            self.learned.popleft()
        return len(self.learned)
