"""Spans and names of the archive: which numbers make a file, and what it is called.

    span = 10     pruned and kept here: 78 .................... 120      live: 121 ...
    files         78-80   81-90   91-100   101-110   111-120

A file ends at a multiple of the span, and begins behind the one before it, so that every node cuts
at the same numbers whenever it comes to it.  What other files have already, in a folder that nodes
share or after the span was changed, is left to them: no number is in two files.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from .errors import Refused

DIGITS: Final = 20  # of a number in a name: sorted by name is sorted by number
_FILE: Final = re.compile(rf"(\d{{{DIGITS}}})-(\d{{{DIGITS}}})\.parquet")
_PATH: Final = re.compile(r"topic=([^/]+)/partition=(\d+)/([^/]+)")


class Span(NamedTuple):
    """Entries first <= number <= last, one at least."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def name(self) -> str:
        return f"{self.first:0{DIGITS}}-{self.last:0{DIGITS}}.parquet"


class Named(NamedTuple):
    """A file of the archive, by its path."""

    topic: str
    partition: int
    span: Span

    @property
    def path(self) -> str:
        return f"{folder_of(self.topic, self.partition)}/{self.span.name}"


def folder_of(topic: str, partition: int | None = None) -> str:
    """Within the archive."""
    folder = f"topic={quote(topic, safe='')}"
    return folder if partition is None else f"{folder}/partition={partition}"


def temporary(path: str, node: str) -> str:
    """What a file is called while that node writes it.  No reader looks at it, and after a kill the
    node writes over it.
    """
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{quote(node, safe='')}.tmp"


def span_in(name: str) -> Span | None:
    """None: it is no name of a file of the archive."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    span = Span(int(found[1]), int(found[2]))
    return span if 1 <= span.first <= span.last else None


def named(path: str) -> Named | None:
    """Of a path within the archive; None: that is no file of it."""
    found = _PATH.fullmatch(path)
    span = span_in(found[3]) if found else None
    return None if found is None or span is None else Named(unquote(found[1]), int(found[2]), span)


class Due(NamedTuple):
    """What comes next in the archive of a partition: a file to be written, or one that is there."""

    span: Span
    there: bool


def due(kept: int, first: int, size: int, there: Iterable[Span] = ()) -> Iterator[Due]:
    """How a partition gets whole in the archive, from `kept` to what lies below `first`.

    A file that is there counts from the number on at which nothing is missing before it.
    """
    if size < 1:
        raise Refused(f"a span of {size} entries: it is 1 or more", span=size)
    files = tidy(there)
    starts = [span.first for span in files]
    at = kept
    while at < first:
        before = bisect_right(starts, at) - 1
        if before >= 0 and files[before].last >= at:
            yield Due(files[before], True)
            at = files[before].last + 1
            continue
        end = (at - 1) // size * size + size
        if before + 1 < len(files):
            end = min(end, files[before + 1].first - 1)
        if end >= first:
            return  # pruned in the middle of a span: the rest goes with the next
        yield Due(Span(at, end), False)
        at = end + 1


def tidy(spans: Iterable[Span]) -> list[Span]:
    """Sorted, without those that lie wholly within another one."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.first, -each.last)):
        if not found or span.last > found[-1].last:
            found.append(span)
    return found


def gaps(spans: Sequence[Span]) -> list[Span]:
    """Numbers between the first and the last that no file has."""
    found = []
    files = tidy(spans)
    for before, after in itertools.pairwise(files):
        if after.first > before.last + 1:
            found.append(Span(before.last + 1, after.first - 1))
    return found
