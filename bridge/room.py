"""Room: whether the disk of this machine lets it take part.

    a write did not fit     it leaves the view, and writes next to nothing: others go on without it
    there is room again     it follows, and after its time acts again; the next time it waits longer

Without that it would be in and out with every segment that pruning gives back.  Where there is no
majority without it, it does not wait: the others take it in as soon as there is room.
"""

from __future__ import annotations

from typing import Final

import attrs

from duckrow.node.reserve import HARD

from .timing import Timing

FOREVER: Final = float("inf")


@attrs.define
class Room:
    timing: Timing
    until: float = attrs.field(default=0.0, init=False)  # before then it does not come back
    _delay: float = attrs.field(default=0.0, init=False)
    _was_full: float = attrs.field(default=0.0, init=False)  # when it was so last

    @property
    def is_full(self) -> bool:
        return self.until == FOREVER

    def hear(self, disk: str, now: float) -> bool:
        """The state of the reserve.  True: it has just run full."""
        if not self.is_full and now - self._was_full >= self.timing.conduct:
            self._delay = 0.0
        if disk == HARD:
            first, self.until, self._was_full = not self.is_full, FOREVER, now
            return first
        if self.is_full:
            grown = min(2 * self._delay, self.timing.readmit_max)
            self._delay = max(self.timing.readmit_min, grown)
            self.until, self._was_full = now + self._delay, now
        return False
