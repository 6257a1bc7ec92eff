"""Catch-up: from which neighbour a node that is not active follows the row (C1).

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
