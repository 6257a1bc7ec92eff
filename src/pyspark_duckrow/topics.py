"""What there is to read: asked of a node, and where a read begins and ends in it.

    look        the partitions that a read means, with their first and last numbers
    places      earliest, latest, offsets or times become the next number of each partition
    within      what was pruned, or is not there: an error with the numbers, or a warning

Blocking: it runs where a query is planned, and asks as little as possible.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from duckrow.node.archivereading import Archive
from duckrow.node.blocking import Client
from duckrow.node.errors import NotFound, Refused

from .offsets import EARLIEST, EARLIEST_NUMBER, LATEST_NUMBER, Offsets, Place, Specified
from .options import Options
from .ranges import Range

log: Final = logging.getLogger("duckrow.spark")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Extent(NamedTuple):
    """What a partition holds."""

    topic_id: int  # 0: there is no such topic yet
    first: int
    last: int
    entry_bytes: (
        float  # of those that the node has, on average; what the archive has is taken for alike
    )

    @property
    def next(self) -> int:
        return self.last + 1


Extents = dict[Place, Extent]

_UNKNOWN_BYTES: Final = (
    1024.0  # of an entry, where the node has none: a limit in bytes still limits
)
_NOTHING: Final = Extent(0, 1, 0, _UNKNOWN_BYTES)


def look(client: Client, options: Options, archive: Archive | None = None) -> Extents:
    """
    Raises:
        NotFound: a partition that was assigned is not there.
        DuckrowError: nobody answers.
    """
    found = look_at(client, names(client, options), options)
    return found if archive is None else _with_archive(client, archive, found)


def caught_up(
    client: Client, options: Options, archive: Archive | None, known: Extents, wanted: Offsets
) -> Extents:
    """The same, or looked at again: a node that has less than is wanted may only be behind another one,
    which told it.

    Raises:
        DuckrowError: the node cannot catch up.
    """
    if all(number <= known.get(place, _NOTHING).next for place, number in wanted.items()):
        return known
    client.barrier()
    return look(client, options, archive)


def names(client: Client, options: Options) -> list[str]:
    """The topics that are meant, whether there are such or not."""
    if options.pattern:
        matches = re.compile(options.pattern).fullmatch
        return [name for name in client.topics() if matches(name)]
    return sorted({topic for topic, _ in options.assign} | set(options.subscribe))


def look_at(client: Client, topics: list[str], options: Options) -> Extents:
    """Of some of them; a topic that is not there is empty."""
    found: Extents = {}
    for name in topics:
        try:
            info = client.topic(name)
        except NotFound:
            assigned = [partition for topic, partition in options.assign if topic == name]
            found.update({(name, partition): _NOTHING for partition in assigned or [0]})
            continue
        for each in info.partitions:
            count = each.last + 1 - each.first
            size = each.bytes / count if count > 0 else _UNKNOWN_BYTES
            found[name, each.partition] = Extent(info.id, each.first, each.last, size)
    if not options.assign:
        return found
    for topic, partition in options.assign:
        if topic in topics and (topic, partition) not in found:
            count = sum(name == topic for name, _ in found)
            raise NotFound(
                f"option assign names partition {partition} of topic {topic!r}, which has {count}"
            )
    return {place: extent for place, extent in found.items() if place in options.assign}


def _with_archive(client: Client, archive: Archive, extents: Extents) -> Extents:
    """Each begins where the archive does, or what the node keeps for it."""
    kept = {(pin.topic, pin.partition): pin.kept for pin in client.pins().pins}
    found: Extents = {}
    for place, extent in extents.items():
        topic, partition = place
        first = archive.first(topic, extent.topic_id, partition)
        oldest = min(kept.get(place, extent.first), extent.first)
        found[place] = extent._replace(first=oldest if first is None else min(first, oldest))
    return found


def starting(client: Client, options: Options, extents: Extents) -> Offsets:
    """Where a read begins.

    Raises:
        Refused: offsets or times for other partitions than there are, or a time without an entry.
    """
    times = _times(options.starting_time, options.starting_times, extents)
    if times is not None:
        _check_same("startingOffsetsByTimestamp", times, extents)
        return {
            place: _at_time(client, options, place, times[place], extent, options.time_strategy)
            for place, extent in extents.items()
        }
    return _specified("startingOffsets", options.starting, extents)


def ending(client: Client, options: Options, extents: Extents) -> Offsets:
    """Where a batch ends.

    Raises:
        Refused: see `starting`.
    """
    times = _times(options.ending_time, options.ending_times, extents)
    if times is not None:
        _check_same("endingOffsetsByTimestamp", times, extents)
        return {
            place: _at_time(client, options, place, times[place], extent, "latest")
            for place, extent in extents.items()
        }
    if not isinstance(options.ending, str) and EARLIEST_NUMBER in options.ending.values():
        raise Refused("option endingOffsets says -2, the earliest: a batch cannot end there")
    return _specified("endingOffsets", options.ending, extents)


def check_order(start: Offsets, end: Offsets, extents: Extents) -> None:
    """
    Raises:
        Refused: a batch is to begin behind its end, with entries that there are.
    """
    for place, extent in extents.items():
        first, next_ = start[place], end[place]
        if max(next_, extent.first) < first <= extent.next:
            raise Refused(
                f"topic {place[0]!r} partition {place[1]}: the read is to begin with entry {first:,} and to "
                f"end before entry {next_:,}: look at startingOffsets and endingOffsets, or the times"
            )


def ranges(start: Offsets, end: Offsets, extents: Extents, options: Options) -> list[Range]:
    """From where to where, in each partition that has something; what is lost is told.

    Raises:
        Refused: entries are lost, and that is not allowed.
    """
    found = []
    for place, next_ in sorted(end.items()):
        extent = extents.get(place, _NOTHING)
        first = start.get(place)
        if first is None:  # it came while the stream ran
            first = extent.first
        first, next_ = within(place, first, next_, extent, options.fail_on_loss)
        if first < next_:
            found.append(Range(place[0], extent.topic_id, place[1], first, next_))
    return found


def check_there(begin: Offsets, extents: Extents, *, fail: bool) -> None:
    """What was to be read next is there, or may come.

    Raises:
        Refused: it is not, and that is not allowed.
    """
    for place, first in begin.items():
        extent = extents.get(place)
        if extent is None or first > extent.next:
            lost(_ends_before(place, extent, first), fail)


def made_anew(begin: Offsets, before: Extents, now: Extents, *, fail: bool) -> Offsets:
    """Where topics begin that were deleted while a stream has read them, and made again.

    Raises:
        Refused: there are such, and that is not allowed.
    """
    found = {}
    for place, first in begin.items():
        old, new = (each.get(place, _NOTHING) for each in (before, now))
        if old.topic_id and new.topic_id and old.topic_id != new.topic_id and first != new.first:
            lost(
                f"topic {place[0]!r} is another one now: the one of which partition {place[1]} was read "
                f"up to {first - 1:,} was deleted",
                fail,
            )
            found[place] = new.first
    return found


def within(place: Place, first: int, next_: int, extent: Extent, fail: bool) -> tuple[int, int]:
    """The part of a range that there is."""
    if first > min(next_, extent.next):
        lost(_ends_before(place, extent, first), fail)
        first = extent.first  # another topic of that name: nothing of it was read
    if next_ > extent.next:
        lost(_ends_before(place, extent, next_), fail)
        next_ = extent.next
    if first < extent.first and first < next_:
        lost(
            f"topic {place[0]!r} partition {place[1]}: entries {first:,} to "
            f"{min(extent.first, next_) - 1:,} were pruned before they were read; the first one there is "
            f"is {extent.first:,}",
            fail,
        )
        first = extent.first
    return first, next_


def _ends_before(place: Place, extent: Extent | None, wanted: int) -> str:
    last = f"ends with entry {extent.last:,}" if extent else "is not there any more"
    return (
        f"topic {place[0]!r} partition {place[1]} {last}, and the next one to read was to be {wanted:,}: "
        "is it another topic of that name?"
    )


def lost(what: str, fail: bool) -> None:
    """
    Raises:
        Refused: that is not allowed.
    """
    if fail:
        raise Refused(f"{what}; to go on all the same, set failOnDataLoss to false")
    log.warning("data_lost: %s", what)


def _specified(name: str, told: Specified, extents: Extents) -> Offsets:
    if isinstance(told, str):
        return {
            place: extent.first if told == EARLIEST else extent.next
            for place, extent in extents.items()
        }
    _check_same(name, told, extents)
    return {place: _number(told[place], extent) for place, extent in extents.items()}


def _number(told: int, extent: Extent) -> int:
    if told == EARLIEST_NUMBER:
        return extent.first
    return extent.next if told == LATEST_NUMBER else told


def _check_same(name: str, told: Mapping[Place, int], extents: Extents) -> None:
    """
    Raises:
        Refused: these are not the partitions that there are.
    """
    missing, unknown = sorted(extents.keys() - told.keys()), sorted(told.keys() - extents.keys())
    if missing or unknown:
        problem = f"does not name {_places(missing)}" if missing else f"names {_places(unknown)}"
        raise Refused(
            f"option {name} {problem}: it has to name each partition that is read, and no other "
            f"({_places(sorted(extents))})"
        )


def _places(places: list[Place]) -> str:
    return ", ".join(f"{topic}/{partition}" for topic, partition in places) or "none"


def _times(
    for_all: int | None, by_place: dict[Place, int] | None, extents: Extents
) -> dict[Place, int] | None:
    return by_place if for_all is None else dict.fromkeys(extents, for_all)


def _at_time(
    client: Client, options: Options, place: Place, time_ms: int, extent: Extent, strategy: str
) -> int:
    """The number of the first entry that is not older, in the archive or at the node."""
    topic, partition = place
    since = _EPOCH + timedelta(milliseconds=time_ms)
    if extent.topic_id:
        found = client.pull(
            topic,
            since,
            partition=partition,
            limit=1,
            topic_id=extent.topic_id,
            archive=options.archive or False,
        )
        if found.batches:
            return found.batches[0].first
    if strategy == "latest":
        return extent.next
    raise Refused(
        f"no entry of topic {topic!r} partition {partition} is of {since} ({time_ms} ms) or later; "
        "to begin with what is new, set startingOffsetsByTimestampStrategy to latest"
    )
