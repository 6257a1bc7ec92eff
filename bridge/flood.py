"""Flood: each node passes each control message once to all its other links.

So it arrives by any path there is, without routes, which a view change must not depend on.  What
was seen is remembered by (source, incarnation): a restarted source counts from 1 again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs

from .messages import Control, Payload

WINDOW: Final = 4096  # numbers of one source; older ones count as seen
SOURCES_MAX: Final = 256  # incarnations; the one that is silent for longest is forgotten first


@attrs.define
class Flood:
    me: int
    incarnation: int
    _n: int = attrs.field(default=0, init=False)
    _seen: OrderedDict[tuple[int, int], set[int]] = attrs.field(factory=OrderedDict, init=False)

    def start(self, payload: Payload, to: int | None) -> Control:
        self._n += 1
        control = Control(self.me, self.incarnation, self._n, to, payload)
        self.is_new(control)  # it comes back over every ring
        return control

    def is_new(self, control: Control) -> bool:
        """True once for each message."""
        source = control.source, control.incarnation
        seen = self._seen.setdefault(source, set())
        self._seen.move_to_end(source)
        if len(self._seen) > SOURCES_MAX:
            self._seen.popitem(last=False)
        if control.n in seen or (len(seen) >= WINDOW and control.n <= max(seen) - WINDOW):
            return False
        seen.add(control.n)
        if len(seen) >= 2 * WINDOW:
            newest = max(seen)
            seen.intersection_update(range(newest - WINDOW, newest + 1))
        return True
