"""Asking: which damaged items are asked for, of whom, how often, and when nobody is left.

    wanted ──► the neighbour that keeps the row from there on, the lowest id first; some items at once
           ──► not answered in time: the next neighbour, also one that keeps only a part of the row
           ──► all were asked: it is told that nobody has it, and all are asked again, later each time

A neighbour that comes, or comes back, is asked at once.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import attrs

AT_ONCE: Final = 8  # items in one question
ANSWER_SECONDS: Final = 2.0  # since the last item came
REST_SECONDS: Final = 1.0, 60.0  # where all were asked; doubled each time
NEVER: Final = float("inf")


class Keeps(NamedTuple):
    """What a neighbour tells of its row."""

    floor: int
    position: int


def is_dropped(positions: Iterable[int], kept: Collection[Keeps]) -> bool:
    """One of these somebody has dropped, and nobody has."""
    return any(
        any(position < keeps.floor for keeps in kept)
        and not any(keeps.floor <= position <= keeps.position for keeps in kept)
        for position in positions
    )


class Question(NamedTuple):
    peer: int
    positions: tuple[int, ...]


@attrs.define
class Asking:
    hopeless: bool = attrs.field(default=False, init=False)  # nobody who is there has all of it
    due: float = attrs.field(default=NEVER, init=False)  # when `step` is to be called at the latest
    _wanted: dict[int, None] = attrs.field(factory=dict, init=False)
    _tried: dict[int, dict[int, None]] = attrs.field(factory=dict, init=False)  # by position: peers
    _asked: Question | None = attrs.field(default=None, init=False)
    _answered: bool = attrs.field(default=False, init=False)  # something of it came
    _until: float = attrs.field(default=NEVER, init=False)  # then it is asked elsewhere
    _rest: float = attrs.field(default=NEVER, init=False)  # then all are asked again
    _delay: float = attrs.field(default=0.0, init=False)

    def want(self, positions: Iterable[int]) -> None:
        """These, and no others."""
        before, self._wanted = self._wanted, dict.fromkeys(sorted(positions))
        if not self._wanted.keys() <= before.keys():
            self.hopeless = False  # nobody was asked for what is new
        self._tried = {p: peers for p, peers in self._tried.items() if p in self._wanted}

    def came(self, position: int, now: float) -> None:
        if self._wanted.pop(position, NEVER) is None:
            self._answered, self._until = True, now + ANSWER_SECONDS
            self.hopeless, self._rest, self._delay = False, NEVER, 0.0

    def refused(self, positions: Collection[int], peer: int) -> None:
        """What that one gave is not what was there, or it gave nothing."""
        if self._asked is not None and self._asked.peer == peer:
            self._asked = None
        for position in positions:
            self._tried.setdefault(position, {})[peer] = None

    def step(self, now: float, kept: Mapping[int, Keeps]) -> Question | None:
        """Who is to be asked now; `kept` by linked neighbour."""
        self._end_question(now, kept)
        for peers in self._tried.values():
            for gone in [peer for peer in peers if peer not in kept]:
                del peers[gone]  # it is asked at once when it comes back
        question = None if self._asked is not None else self._choose(kept)
        if question is None and self._asked is None and self._wanted:
            self.hopeless = True
            if self._rest == NEVER:
                self._delay = min(max(2 * self._delay, REST_SECONDS[0]), REST_SECONDS[1])
                self._rest = now + self._delay
            elif now >= self._rest:
                self._rest = NEVER
                self._tried.clear()
                question = self._choose(kept)
                if question is None:
                    return self.step(now, kept)
        if question is not None:
            self._asked, self._answered, self._until = question, False, now + ANSWER_SECONDS
        if not self._wanted:
            self.hopeless, self._rest, self._delay = False, NEVER, 0.0
        self.due = self._until if self._asked is not None else self._rest
        return question

    def _end_question(self, now: float, kept: Mapping[int, Keeps]) -> None:
        if self._asked is None:
            return
        peer, positions = self._asked
        left = [position for position in positions if position in self._wanted]
        if left and now < self._until and peer in kept:
            return
        self._asked = None
        if not self._answered:  # else it gave as much as it gives at once
            self.refused(left, peer)

    def _choose(self, kept: Mapping[int, Keeps]) -> Question | None:
        for whole in (True, False):
            for peer in sorted(kept):
                floor, end = kept[peer]
                positions = [
                    position
                    for position in self._wanted
                    if position <= end
                    and (position >= floor or not whole)
                    and peer not in self._tried.get(position, ())
                ]
                if positions:
                    return Question(peer, tuple(positions[:AT_ONCE]))
        return None
