"""Tails: what an acceptor lacks of a cut before it may accept it (V6), asked of those who hold it.

One machine is asked at a time, and its answer waited for: over a slow link that takes long, and each
more would come behind it.  An answer is one part; who got it asks for what is still missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from duckrow.node.limits import BUNDLE_BYTES_MAX
from duckrow.node.row import Bundle, View

from .calling import Calling
from .messages import Fetch, Tail
from .neighbours import Neighbours
from .ordering import Ordering
from .pending import size_of
from .standing import Standing

DOUBLINGS_MAX = 2  # of the time that an answer is waited for
TAIL_BUNDLES_MAX = 1_024  # what is told of each takes 60 bytes of a frame's head at most


@attrs.define
class Tails:
    standing: Standing
    neighbours: Neighbours
    ordering: Ordering
    calling: Calling
    _view: int = attrs.field(default=0, init=False)  # whose cut it is
    _asked: set[int] = attrs.field(factory=set, init=False)  # in this round
    _rounds: int = attrs.field(default=0, init=False)  # in which all were asked
    _again_at: float = attrs.field(default=0.0, init=False)  # not before
    _has_more: int | None = attrs.field(default=None, init=False)  # whose last answer helped

    def want(self, value: View) -> None:
        """Any data voter may have it: those of `cont` do, and may be dead."""
        standing = self.standing
        if self._view != value.id:
            self._view, self._rounds, self._again_at, self._has_more = value.id, 0, 0.0, None
            self._asked.clear()
        one, self._has_more = self._has_more, None
        if one is None and standing.now >= self._again_at:
            one = self._next(value)
        if one is not None and standing.installed == standing.newest.id:
            self._asked.add(one)
            self._again_at = standing.now + standing.timing.retry * 2**self._rounds
            gaps = self.ordering.streams.gaps(standing.delivered, dict(value.cut))
            self.neighbours.flood(Fetch(standing.newest.id, gaps), one)

    def _next(self, value: View) -> int | None:
        others = {v[0] for v in self.standing.newest.voters if v[3]} - {self.standing.id}
        if others <= self._asked:
            self._asked.clear()
            self._rounds = min(self._rounds + 1, DOUBLINGS_MAX)
        alive = self.calling.seem_alive()
        left = sorted(others - self._asked)
        return min(left, key=lambda i: (i not in alive, i not in value.cont), default=None)

    def hear_fetch(self, source: int, fetch: Fetch) -> None:
        for streams in (self.ordering.streams, self.ordering.old):
            if streams is not None and streams.view == fetch.view:
                held = [
                    bundle
                    for origin, after in fetch.after.items()
                    if origin in streams.of
                    for s, bundle in sorted(streams.of[origin].bundles.items())
                    if s > after
                ]
                for part in parts(held):
                    self.neighbours.flood(Tail(fetch.view, part), source)
                    break

    def hear_tail(self, source: int, tail: Tail) -> None:
        streams, delivered = self.ordering.streams, self.standing.delivered
        if tail.view != streams.view or self.standing.active:
            return
        new = [b for b in tail.bundles if streams.keep(b, delivered.get(b.origin, 0))]
        if new:
            self._has_more = source


def parts(bundles: Sequence[Bundle]) -> Iterator[tuple[Bundle, ...]]:
    """Each fits a frame."""
    part: list[Bundle] = []
    size = 0
    for bundle in bundles:
        more = size_of(bundle.commands)
        if part and (size + more > BUNDLE_BYTES_MAX or len(part) == TAIL_BUNDLES_MAX):
            yield tuple(part)
            part, size = [], 0
        part.append(bundle)
        size += more
    if part:
        yield tuple(part)
