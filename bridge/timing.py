"""Every time of the protocol, in one place, so that slow networks scale them together.

None of them is needed for safety; wrong ones make views change too often or too late.  A WAN wants
a beat that is no shorter than a round trip.
"""

from __future__ import annotations

from typing import Self

import attrs


@attrs.frozen
class Timing:
    """Seconds, but for `lag_items`."""

    beat: float = 0.1  # signs of life, and the whole state of every link
    beat_early: float = 0.05  # due so soon, a beat goes with that of a neighbour
    beat_late: float = 0.01  # the next one then leaves the neighbour the lead
    link_dead: float = 0.45  # four beats and some: a link that says nothing is down (F9)
    dial: float = 1.5  # for a connection, and for the handshake there; then it is dialled again
    suspect_min: float = 0.8  # without a beat, however regular they came (S1)
    suspect_max: float = 10.0
    hung_up: float = 0.25  # instead of suspect_min, for a neighbour that ended its link (S3)
    grace: float = 0.05  # longer than the first majority, for all who seem alive (V3)
    retry: float = 0.5  # a first ballot takes at most this; then somebody tries again (S5)
    retry_margin: float = 0.1  # before the end of a ballot, when nobody is waited for any more
    rank: float = 0.15  # between the first to start a view change and the next (S5)
    jitter: float = 0.06  # on top of it
    join: float = 0.25  # between two Joins of a node that is not active
    churn: float = 10.0  # views younger than this make the grace longer (V3)
    change: float = 1.0  # how long the wish of an operator is pursued
    readmit_min: float = 1.0  # until one that stalled is let in again, doubling (S6)
    readmit_max: float = 300.0
    conduct: float = 3600.0  # in which it has to behave for that to be forgotten
    standby_min: float = 10.0  # a standby link stays when it is not needed any more, doubling (F12)
    standby_max: float = 3600.0
    lag_items: int = 1000  # a newcomer this close is caught up: the rest comes while the view waits

    def scaled(self, factor: float) -> Self:
        """For a network that is this much slower."""
        seconds = {a.name: getattr(self, a.name) * factor for a in attrs.fields(Timing)}
        return attrs.evolve(self, **{**seconds, "lag_items": self.lag_items})
