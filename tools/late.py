"""Late arrivals: who misses or reorders what, when several sites write to one log at once.  Pure.

    writer at A ──5 ms──► B        what A wrote at 10:00:00.000 is at C later than what B wrote at
    writer at B ──40 ms─► C        10:00:00.020, though its clock is earlier: it is a *late arrival*
    writer at A ──80 ms─► C

A log of several writers has to number what they write.  Two ways need no agreement between the sites:

    numbers of a site   each site numbers what arrives there, as it arrives: no reader of that site misses
                        anything, but readers of two sites see two orders
    by the clock        the time of the writer is the number: all sites have the same order in the end,
                        but who has read up to 10:00:00.020 goes on from there, and never sees the late one;
                        who wants to see it must wait so long that nobody can be late, or read again

Here is what both make of the arrivals that were seen, and whether readers of a row with one number for
each entry saw what they should have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Write(NamedTuple):
    """An entry, as its writer knows it."""

    clock: int  # of its writer, nanoseconds
    writer: int
    nth: int  # 0, 1, ... of its writer


class Read(NamedTuple):
    """An entry, as a reader got it."""

    number: int
    write: Write


def late(arrivals: Sequence[Write]) -> int:
    """How many came to a site after one with a later clock: a reader who goes on behind the latest clock
    that he has seen never gets them.
    """
    newest, found = -1, 0
    for each in arrivals:
        found += each.clock < newest
        newest = max(newest, each.clock)
    return found


def differing(sites: Sequence[Sequence[Write]]) -> int:
    """How many entries have another number at one site than at another, if each numbers what arrives."""
    numbers: dict[Write, set[int]] = {}
    for arrivals in sites:
        for number, each in enumerate(arrivals, 1):
            numbers.setdefault(each, set()).add(number)
    return sum(len(found) > 1 for found in numbers.values())


class Verdict(NamedTuple):
    """What readers of one row saw wrongly."""

    skipped: int  # numbers that a reader went past, and entries that he did not get
    twice: int  # numbers or entries that a reader got again
    reordered: int  # entries of one writer behind a later one of his, and numbers that went back
    different: int  # numbers under which two readers have different entries

    @property
    def ok(self) -> bool:
        return not any(self)


def judged(readers: Mapping[str, Sequence[Read]], writes: Sequence[Write]) -> Verdict:
    """Each reader began at the first entry, and should have come to the last."""
    skipped = twice = reordered = 0
    under: dict[int, set[Write]] = {}
    for reads in readers.values():
        numbers = Counter(each.number for each in reads)
        entries = Counter(each.write for each in reads)
        gaps = {*range(1, max(numbers, default=0) + 1)} - numbers.keys()
        skipped += max(len(gaps), len({*writes} - entries.keys()))
        twice += max(numbers.total() - len(numbers), entries.total() - len(entries))
        reordered += _reordered(reads)
        for each in reads:
            under.setdefault(each.number, set()).add(each.write)
    return Verdict(skipped, twice, reordered, sum(len(found) > 1 for found in under.values()))


def _reordered(reads: Sequence[Read]) -> int:
    found, last, newest = 0, 0, dict[int, int]()
    for number, write in reads:
        found += number < last or write.nth < newest.get(write.writer, 0)
        last = max(last, number)
        newest[write.writer] = max(newest.get(write.writer, 0), write.nth)
    return found
