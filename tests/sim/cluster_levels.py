"""The durability that a simulated cluster has for certain, while an operator changes it.

Less holds from the moment somebody wishes it; more, when all who keep the row act in a view that says
so, have their mark of it on the disk, and nobody can decide on a wish for less any more:

    wish "fsync"      view 7 is "fsync"     all act in it, durably       wish "write"
    ── write ─────────────────────────────────┤── fsync ─────────────────────┤── write ──
"""

from __future__ import annotations

from collections.abc import Mapping

from duckrow.node.row import View
from duckrow.node.storeoptions import LEVELS

from .cluster_machine import Machine


class Levels:
    def __init__(
        self, level: str, machines: Mapping[int, Machine], marks: Mapping[int, int]
    ) -> None:
        """`marks`: by view, its position in the row."""
        self.lowest = self._floor = level
        self._machines, self._marks = machines, marks
        self._wishes = 0  # under way
        self._last_wish = 0  # the newest view that there was when one of them ended

    def wish(self, level: str) -> None:
        """Somebody begins to wish for it, and it is less than there could be."""
        self._wishes += 1
        self._floor = max(self._floor, level, key=LEVELS.index)
        self.lowest = max(self.lowest, level, key=LEVELS.index)

    def ended(self, newest: View | None) -> None:
        """Such a wish; the view after this one may still be as he wished."""
        self._wishes -= 1
        self._last_wish = max(self._last_wish, 0 if newest is None else newest.id)

    def now(self, newest: View | None) -> str:
        if newest is not None and newest.durability != self._floor and self._holds(newest):
            self._floor = newest.durability
        return self._floor

    def _holds(self, view: View) -> bool:
        mark = self._marks.get(view.id)
        if self._wishes or view.id <= self._last_wish or mark is None:
            return False
        for id_, _, _, keeps_row in view.voters:
            bridge = self._machines[id_].bridge
            if bridge is None or not self._machines[id_].bridge_host.alive:
                return False
            standing = bridge.member.standing
            is_in = standing.active and standing.newest.id == standing.installed == view.id
            if standing.acceptor.accepted is not None or (keeps_row and not is_in):
                return False
            if keeps_row and bridge.store.durable_position < mark:
                return False
        return True
