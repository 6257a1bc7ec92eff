"""Catch-up: from which neighbour a node that is not active gets what it lacks of the row.

    the next item is kept there       it is *followed* from there (C1)
    nobody keeps it any more          an *image* is taken (C4), from one who may have one

The row is the same everywhere, so any switch at any position is right (C2).  But what the former
neighbour still sends must not be taken for what the new one does: every switch is a new
*generation*, and items of another one are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

PATIENCE_MAX: Final = 32  # times as long as at first


@attrs.define
class Following:
    patience: float  # seconds
    upstream: int | None = attrs.field(default=None, init=False)
    generation: int = attrs.field(default=0, init=False)
    _came_to: int = attrs.field(default=0, init=False)  # position
    _came_at: float = attrs.field(default=0.0, init=False)  # when it came further, or was to
    _stays: float = attrs.field(init=False)  # with one that brings nothing; it may just be slow

    def __attrs_post_init__(self) -> None:
        self._stays = self.patience

    def choose(self, position: int, offers: Mapping[int, int], now: float) -> None:
        """`offers`: by linked neighbour, the position of its row.  Stays while that is ahead, but not
        with one that brings nothing for long, where somebody else is ahead: its disk may hang.
        """
        ahead = {peer: offers[peer] for peer in sorted(offers) if offers[peer] > position}
        if position != self._came_to or self.upstream not in ahead:
            self._came_to, self._came_at = position, now
        elif now - self._came_at >= self._stays and len(ahead) > 1:
            del ahead[self.upstream]
            self._came_at = now
            self._stays = min(2 * self._stays, PATIENCE_MAX * self.patience)
        if self.upstream in ahead:
            return
        if ahead:
            self.upstream = max(ahead, key=lambda peer: ahead[peer])
            self.generation += 1
        elif self.upstream not in offers:
            self.upstream = None

    def stop(self) -> None:
        """Active nodes take no items (C3)."""
        self.upstream, self._stays = None, self.patience
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
