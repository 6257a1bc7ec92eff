"""Proposer: one ballot for the next view, from its first promise to its majority.

    prepare --> promises of a majority, and then of all who seem alive --> value --> accepted by a majority

A value that any promise carries has perhaps been decided already: the one of the highest ballot
is taken as it is, bit for bit (V4).  Only if there is none, a view is chosen (`choosing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import attrs

from duckrow.node.row import View

from .electorate import is_majority
from .messages import Accepted, Ballot, Promise

# A ballot must never be used for two values.  What this proposer promised to itself may not be
# durable yet when others have answered, and be lost with the power; the start never is (I1).
STARTS_LIMIT: Final = 1 << 32


def ballot_above(seen: Ballot | None, id_: int, start_count: int) -> Ballot:
    """V1: above every ballot seen, and one that no other incarnation can make."""
    turn = (seen[0] // STARTS_LIMIT if seen else 0) + 1
    return turn * STARTS_LIMIT + start_count, id_


@attrs.define
class Proposal:
    view: View  # the one that it follows, whose voters decide
    ballot: Ballot
    began: float
    carried_at: float = math.inf  # when a majority had promised
    value: View | None = None  # set: it is in its second phase
    promises: dict[int, Promise] = attrs.field(factory=dict)
    accepted: set[int] = attrs.field(factory=set)

    @property
    def register(self) -> int:
        return self.view.id + 1

    def hear_promise(self, source: int, promise: Promise) -> None:
        if (promise.register, promise.ballot) == (self.register, self.ballot):
            self.promises[source] = promise

    def lacks_promises(self) -> bool:
        return not is_majority(self.view, self.promises)

    def lacks_voices(self, alive: Collection[int]) -> bool:
        """Whether somebody who seems alive was not heard yet (V3)."""
        return not set(alive) <= self.promises.keys()

    def takes(self) -> float:
        """Seconds, in all: to accept takes as long as to promise did, and as much for what comes between."""
        return 3 * (self.carried_at - self.began) if self.value is not None else 0.0

    def all_answered(self) -> bool:
        return {voter[0] for voter in self.view.voters} <= self.promises.keys()

    def found(self) -> View | None:
        """What may have been decided already: the accepted value of the highest ballot (V4)."""
        best: tuple[Ballot, View] | None = None
        for promise in self.promises.values():
            ballot, value = promise.accepted_ballot, promise.accepted
            if ballot is not None and value is not None and (best is None or ballot > best[0]):
                best = ballot, value
        return best[1] if best else None

    def hear_accepted(self, source: int, message: Accepted) -> View | None:
        """The view that this decided (V6b)."""
        if (message.register, message.ballot) != (self.register, self.ballot) or not self.value:
            return None
        self.accepted.add(source)
        return self.value if is_majority(self.view, self.accepted) else None
