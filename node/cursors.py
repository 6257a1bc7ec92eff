"""Where a reader stands: the last number done in each partition, and the ways to say where to begin.

    a number       the last one done; of a topic with several partitions, only 0
    Cursor()       from the oldest entry there is
    LAST           only what is new
    Back(k)        the last k entries, in the order of the row
    Cursor(since=t)   from the first entry at or after a time, in microseconds

All of them become a `Cursor`, which means the same on every node: numbers and positions do not
depend on where they are looked up.  A partition that a cursor does not name, while it names others,
is one that grew later; it is read from `since` on, that is, whole: nothing of it is done.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta  # sim-ok: what a user gives; no clock is read
from typing import Final

import attrs

from .errors import Refused
from .limits import NUMBER_LIMIT
from .numbers import Numbers

Spans = Mapping[int, tuple[int, int]]  # partition: first and last number there are


@attrs.frozen
class Cursor:
    """What is done; `since` is for partitions that are not named."""

    done: Mapping[int, int] = attrs.field(factory=dict)
    since: int = 0

    def done_in(self, partition: int) -> int | None:
        """The last number done; None: where it begins depends on what there is."""
        nothing = 0 if self.done and not self.since else None
        return self.done.get(partition, nothing)


@attrs.frozen
class Back:
    """The last `entries` there are now."""

    entries: int


class Last(enum.Enum):
    """Nothing that is there now."""

    LAST = "last"


LAST: Final = Last.LAST
FIRST: Final = Cursor()
After = int | Cursor | Back | Last

_LEAST: Final = 1 - NUMBER_LIMIT  # the last k
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def read(after: object) -> After:
    """What a user says: a number done, `first`, `last`, -k for the last k, a time (datetime, with
    its zone), {partition: number}, or what an earlier pull gave as `after`.

    Raises:
        Refused: it is none of these.
    """
    match after:
        case Cursor() | Back() | Last():
            return after
        case bool():
            pass
        case int() if _LEAST <= after < NUMBER_LIMIT:
            return after if after >= 0 else Back(-after)
        case "first":
            return FIRST
        case "last":
            return LAST
        case datetime() if after.tzinfo is not None:
            return Cursor(since=max(0, (after - _EPOCH) // _MICROSECOND))
        case datetime():
            text = f"pull after {after}: a time needs its zone, as in datetime.now(UTC)"
            raise Refused(text, after=after.isoformat())
        case Mapping() if all(map(_is_number, (n for pair in after.items() for n in pair))):
            return Cursor(dict(after))
    raise Refused(
        f"pull after {after!r:.60}: it is a number, 'first', 'last', a time, or {{partition: number}}",
        after=f"{after!r:.60}",
    )


def check(after: After) -> None:
    """
    Raises:
        Refused: numbers begin at 1, and so do the last k.
    """
    if isinstance(after, int) and after < 0:
        raise Refused(f"pull after {after}: the last number done is 0 or more", after=after)
    if isinstance(after, Back) and after.entries < 1:
        raise Refused(f"the last {after.entries} entries: ask for 1 or more", last=after.entries)
    if isinstance(after, Cursor) and min((*after.done.values(), after.since)) < 0:
        text = f"a cursor at {dict(after.done)} since {after.since}: numbers are 0 or more"
        raise Refused(text, lowest=min((*after.done.values(), after.since)))


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < NUMBER_LIMIT


def without_topic(after: After) -> After:
    """What to go on with while there is no topic: all of it will be new."""
    return FIRST if isinstance(after, Back | Last) else after


def resolve(after: After, numbers: Numbers, topic_id: int, spans: Spans) -> Cursor:
    """
    Raises:
        Refused: a number above 0 and several partitions.
    """
    if isinstance(after, Cursor):
        return after
    if isinstance(after, Last):
        return Cursor({partition: last for partition, (_, last) in spans.items()})
    if isinstance(after, Back):
        return _back(after.entries, numbers, topic_id, spans)
    if after and len(spans) > 1:
        raise Refused(
            f"pull after {after}: the topic has {len(spans)} partitions, each with numbers of its "
            "own; name the partition, or give a number for each",
            after=after,
            partitions=len(spans),
        )
    return Cursor(dict.fromkeys(spans, after))


def starts(
    cursor: Cursor, numbers: Numbers, topic_id: int, spans: Spans
) -> tuple[dict[int, int], int]:
    """The next number to read in each partition, and how many entries were pruned before it.

    A partition is left out as long as nothing in it is late enough for `since`.
    """
    found: dict[int, int] = {}
    missing = 0
    for partition, (first, _) in spans.items():
        done = cursor.done_in(partition)
        if done is not None:
            missing += max(0, first - 1 - done)
            found[partition] = max(first, done + 1)
        elif not cursor.since:
            found[partition] = first
        elif (row := numbers.at_time(topic_id, partition, cursor.since)) is not None:
            found[partition] = max(first, row.first)
    return found, missing


def _back(entries: int, numbers: Numbers, topic_id: int, spans: Spans) -> Cursor:
    """The last entries of several partitions, in the order (position, partition, number).

    Goes back from the newest position in growing steps, until enough entries lie at or after it,
    and then finds the greatest such position; what lies at that position is taken from its end.
    """

    def since(position: int) -> dict[int, int]:
        """The last number before that position, in each partition."""
        done = {}
        for partition, (first, last) in spans.items():
            row = numbers.at_position(topic_id, partition, position)
            done[partition] = last if row is None else max(first, row.first) - 1
        return done

    def entries_after(done: Mapping[int, int]) -> int:
        return sum(max(0, last - done[partition]) for partition, (_, last) in spans.items())

    if len(spans) == 1:
        ((partition, (first, last)),) = spans.items()
        return Cursor({partition: max(first - 1, last - entries)})
    step, high = 1, numbers.covered + 1  # too few lie at or after `high`
    low = max(0, high - step)
    while low and entries_after(since(low)) < entries:
        high, step = low, 2 * step
        low = max(0, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        if entries_after(since(middle)) < entries:
            high = middle
        else:
            low = middle
    done, done_next = since(low), since(high)
    extra = entries_after(done) - entries
    for partition in sorted(done):
        taken = min(max(0, extra), done_next[partition] - done[partition])
        done[partition] += taken
        extra -= taken
    return Cursor(done)
