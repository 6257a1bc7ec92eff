"""Standby: when links are dialled that are only there for a day when others are down (F12).

    1 ─── 2 ─── 3 ─── 4        2 is dead: 1 reaches nobody.  With a standby link 1 ─ 3 the chain
    '╌╌╌╌╌╌╌╌╌╌╌'              heals around it, since routes take it up by themselves (F1)

They are wanted while a link of this node is down, or a machine of the cluster file is not reached by
any way; some time after that is over they are hung up again.  If that was too early, since all are
reached by this very link alone, it is dialled again, and the next time stays for twice as long.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from .timing import Timing


@attrs.define
class Standby:
    primaries: frozenset[int]  # neighbours that there is always a link with
    machines: frozenset[int]  # that should be reached
    timing: Timing
    wanted: bool = attrs.field(default=False, init=False)
    _since: float | None = attrs.field(default=None, init=False)  # it is the other way round
    _stays: float = attrs.field(default=0.0, init=False)
    _ended: float = attrs.field(default=0.0, init=False)

    def beat(self, now: float, linked: Collection[int], reached: Collection[int]) -> bool:
        """Whether the standby links are wanted now."""
        lacks = not self.primaries <= set(linked) or not self.machines <= set(reached)
        if lacks == self.wanted:
            self._since = None
            return self.wanted
        if self._since is None:
            self._since = now
        if now - self._since >= (self.timing.link_dead if lacks else self._stays):
            self.wanted, self._since = lacks, None
            if lacks:
                again = self._stays and now - self._ended < self.timing.standby_min
                longer = min(2 * self._stays, self.timing.standby_max)
                self._stays = longer if again else self.timing.standby_min
            else:
                self._ended = now
        return self.wanted
