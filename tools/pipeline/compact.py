"""Compaction: which small files of an archive become one, so that every node comes to the same names.  Pure.

    size = 40      1-10  11-20  21-30  31-40 | 41-50  51-60 |              files of a span of 10
                   ╰────────────┬──────────╯   these wait for the others
                              1-40

A file that comes of it ends at a multiple of the size, and begins behind the one before it, as all files of
an archive do.  So it depends on the numbers alone when it is made: as soon as all of them are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from duckrow.node.archivenames import Span, tidy


class Merge(NamedTuple):
    into: Span
    of: tuple[Span, ...]  # in order; they go when the other one is safe
    there: bool  # it was written before, and its files are left over


def merges(files: Iterable[Span], size: int) -> list[Merge]:
    """What there is to do in a partition; files that lie within another one are left over from a merge
    that was killed.
    """
    spans = sorted(set(files), key=lambda span: (span.first, -span.last))
    whole = tidy(spans)
    left_over = [span for span in spans if span not in whole]
    done = [
        Merge(span, inner, True)
        for span in whole
        if (inner := tuple(each for each in left_over if _holds(span, each)))
    ]
    at_rest = [span for span in whole if not any(span == merge.into for merge in done)]
    return [*done, *_new(at_rest, whole[0] if whole else None, size)]


def _new(spans: list[Span], oldest: Span | None, size: int) -> Iterator[Merge]:
    for block, found in groupby(spans, key=lambda span: (span.first - 1) // size):
        of = tuple(span for span in found if span.last <= (block + 1) * size)
        if len(of) < 2 or of[-1].last != (block + 1) * size:
            continue
        begins = of[0].first == block * size + 1 or of[0] == oldest
        if begins and all(after.first == before.last + 1 for before, after in pairwise(of)):
            yield Merge(Span(of[0].first, of[-1].last), of, False)


def _holds(span: Span, other: Span) -> bool:
    return span.first <= other.first and other.last <= span.last
