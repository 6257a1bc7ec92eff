"""Handing: what a node without a vote still has to be ordered goes to one that can (R3).

A machine that is retired may have commands on its disk that it told a producer were accepted.  It
never acts again, so it gives them to the nearest member, in their order and as much at a time as others
may wait behind, and again until they are in the row, less and less often: links may take long for it.
Whatever comes twice by that is known by its lanes.  What a member has taken it takes again only of one
whose row has come so far that it has missed the item: an image had it.

    pending ──► Hand ──► a member, as if its own node had submitted it ──► an item ──► gone from here
"""

from __future__ import annotations

import math
from typing import Final

import attrs

from duckrow.node.commands import Command
from duckrow.node.row import Bundle

from .effects import Settled
from .electorate import voter_of
from .messages import Hand
from .neighbours import Neighbours
from .ordering import BUNDLE_COMMANDS
from .outbox import Outbox
from .pending import Pending
from .sending import AT_ONCE_BYTES
from .standing import Standing

PATIENCE_MAX: Final = 16  # times as long as at first


@attrs.define
class _Taken:
    """Of one source."""

    commands: tuple[Command, ...]
    until: float = math.inf  # position: they are in the row up to there


@attrs.define
class Handing:
    standing: Standing
    outbox: Outbox
    neighbours: Neighbours
    pending: Pending
    # Too much is staged here, as where no node runs.
    is_full: bool = attrs.field(default=False, init=False)
    _given: tuple[Command, ...] = attrs.field(default=(), init=False)
    _given_to: int = attrs.field(default=0, init=False)
    _given_at: float = attrs.field(default=0.0, init=False)
    _patience: float = attrs.field(default=0.0, init=False)
    _taken: dict[int, _Taken] = attrs.field(factory=dict, init=False)  # by source

    @property
    def is_due(self) -> bool:
        """Its row is complete: what was in the last cut it acted for is not pending any more (P3)."""
        return self._waits and 0 < self.standing.installed == self.standing.newest.id

    @property
    def _waits(self) -> bool:
        """Seldom, and asked in every round; who acts has a vote."""
        standing = self.standing
        if standing.active:
            return False
        return len(self.pending) > 0 and voter_of(standing.newest, standing.id) is None

    def advance(self) -> None:
        """At the end of a round: what comes next, or the same again after a while."""
        if not self.is_due:
            return
        now, paths, retry = (
            self.standing.now,
            self.neighbours.routes.paths,
            self.standing.timing.retry,
        )
        there = [m.id for m in self.standing.newest.members if m.id in paths]
        first = self.pending.first(BUNDLE_COMMANDS, AT_ONCE_BYTES)
        nearest = min(there, key=lambda id_: (len(paths[id_]), id_), default=0)
        is_new = (first, nearest) != (self._given, self._given_to)
        if nearest and (is_new or now - self._given_at >= self._patience):
            self._patience = retry if is_new else min(2 * self._patience, PATIENCE_MAX * retry)
            self._given, self._given_to, self._given_at = first, nearest, now
            self.neighbours.flood(Hand(first, self.standing.position), nearest)

    def hear(self, source: int, hand: Hand) -> None:
        """At a member.  If too much waits here already it comes again; what was taken is not."""
        if not self.standing.active or self.is_full or self._has_taken(source, hand):
            return
        if self.pending.submit(hand.commands):
            self._taken[source] = _Taken(hand.commands)

    def _has_taken(self, source: int, hand: Hand) -> bool:
        taken = self._taken.get(source)
        if taken is None or taken.commands != hand.commands:
            return False
        if taken.until == math.inf and not self.pending.holds(hand.commands):
            taken.until = self.standing.position
        return hand.position < taken.until

    def ordered(self, bundle: Bundle) -> None:
        """An item of somebody else, which may carry what was handed on."""
        if self._waits:
            for stage in self.pending.ordered(bundle):
                self.outbox.put(Settled(stage))
