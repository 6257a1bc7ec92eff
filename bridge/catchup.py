"""Catch-up: from which neighbour a node that is not active gets what it lacks of the row.

    the next item is kept there       it is *followed* from there (C1)
    nobody keeps it any more          an *image* is taken (C4), from one who may have one

The row is the same everywhere, so any switch at any position is right (C2).  But what the former
neighbour still sends must not be taken for what the new one does: every switch is a new
*generation*, and items of another one are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.define
class Following:
    upstream: int | None = attrs.field(default=None, init=False)
    generation: int = attrs.field(default=0, init=False)

    def choose(self, position: int, offers: Mapping[int, int]) -> None:
        """`offers`: by linked neighbour, the position of its row.  Stays while that is ahead."""
        if self.upstream is not None and offers.get(self.upstream, 0) > position:
            return
        ahead = [neighbour for neighbour in sorted(offers) if offers[neighbour] > position]
        if ahead:
            best = max(ahead, key=lambda neighbour: offers[neighbour])
            if best != self.upstream:
                self.upstream = best
                self.generation += 1
        elif self.upstream not in offers:
            self.upstream = None

    def stop(self) -> None:
        """Active nodes take no items (C3)."""
        self.upstream = None
        self.generation += 1

    def lost(self, neighbour: int) -> None:
        if self.upstream == neighbour:
            self.upstream = None

    def takes(self, generation: int) -> bool:
        return self.upstream is not None and generation == self.generation


@attrs.define
class ImageSource:
    """Whose image is taken.  Who had none is asked again when all others had none."""

    peer: int | None = attrs.field(default=None, init=False)
    _had_none: dict[int, None] = attrs.field(factory=dict, init=False)
    _lost: bool = attrs.field(default=False, init=False)  # the link with it, and it may be back

    def choose(self, offers: Mapping[int, int]) -> bool:
        """`offers` as above, of those that are ahead.  True: it is another one now, or
        has to be asked again.
        """
        before, lost = self.peer, self._lost
        self._lost = False
        if self.peer not in offers or self.peer in self._had_none:
            self.peer = None
        if self.peer is None and offers:
            left = [peer for peer in sorted(offers) if peer not in self._had_none]
            if not left:
                self._had_none.clear()
                left = sorted(offers)
            self.peer = max(left, key=lambda peer: offers[peer])
        if not offers:
            self._had_none.clear()
        return lost or self.peer != before

    def lost(self, peer: int) -> None:
        """What was asked may not have come there, nor the answer here."""
        self._lost = self._lost or peer == self.peer

    def failed(self, peer: int) -> None:
        """It has none now, or it did not come through."""
        self._had_none[peer] = None
