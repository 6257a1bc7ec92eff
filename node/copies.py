"""Copies: commands that bridges were given twice, and the one that came first is in the row.

    submitted   2 1 |          | 2 1 | 3             the bridge was away: all goes again (N2)
    the row     2 1              2 1   3             2 is refused at first, for 1 was missing before it
                                   '-- until here    and is done then

What is refused for what is missing before it (D3, D4) may be done all the same when its other copy
comes.  Whoever waits for it is not told that it was not done as long as that may be.

A bridge orders what its node gives it in that order.  So behind the first command that it was given
once there are no copies any more.  Pure.
"""

from __future__ import annotations

import math
from typing import Final

from .calls import Key

COPIES_MAX: Final = 100_000  # beyond it the oldest are taken to have come


class Copies:
    def __init__(self) -> None:
        self._until: dict[Key, float] = {}  # position: another one may come up to there

    def came(self, key: Key) -> None:
        """One of a command that was given twice, perhaps."""
        self._until[key] = math.inf
        if len(self._until) > COPIES_MAX:
            del self._until[next(iter(self._until))]

    def none_behind(self, position: int) -> None:
        """There is one that was given once."""
        for key, until in self._until.items():
            self._until[key] = min(until, position)

    def may_come(self, key: Key, position: int) -> bool:
        """Behind that position."""
        return position < self._until.get(key, 0)

    def tidy(self) -> None:
        """All that came is applied."""
        if self._until:
            self._until = {key: at for key, at in self._until.items() if at == math.inf}
