"""Pace: how many bytes of its own a member has under way (B1).

    all of them used, and delivered soon     twice as many
    a view has ended with some under way     a quarter of those

What a view has dropped is sent again in the next one.  Over links that are slow, all of it at once would
be under way for so long that its members seem to stall (S2), and that view ends like the one before, for
ever.  Pure.
"""

from __future__ import annotations

from typing import Final

import attrs

from duckrow.node.limits import KIB, MIB, ORIGIN_BYTES_MAX

FIRST: Final = 1 * MIB  # doubled within milliseconds where links are fast
LEAST: Final = 4 * KIB  # larger commands go one at a time


@attrs.define
class Pace:
    soon: float  # seconds; a quarter of the time after which who has not acked it seems to stall
    bytes: int = attrs.field(default=FIRST, init=False)

    def delivered(self, under_way: int, took: float) -> None:
        """A bundle, `took` seconds after it was made; so much was under way until then."""
        if 2 * under_way >= self.bytes and took <= self.soon:
            self.bytes = min(2 * self.bytes, ORIGIN_BYTES_MAX)

    def dropped(self, size: int) -> None:
        """A view is over, and so many bytes have no place yet."""
        if size:
            self.bytes = max(min(self.bytes, size // 4), LEAST)
