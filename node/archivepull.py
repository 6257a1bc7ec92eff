"""Pulls through the archive: from its files, then what the node keeps for it, then what is live.

    partition 0    files 1 .......... 900 | kept 901 ... 950 | live 951 ...
    partition 1    files 1 . 300 | live 301 .....................
                             one pull: in the order of the row, whatever lies where

The node is asked first, with all that it keeps.  What it says is missing is read from the archive,
and both are merged by (position, partition, number) as far as both are known.  What no file has
either is missing: told at the beginning of the pull that comes to it.

A pull is a generator, so that it is the same for all clients: it yields *wishes*, which a client
does at its node, and *jobs*, functions that read files and so block, and is given what they bring.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Self

from . import asks, cursors
from .archivenames import Span
from .archiveplace import Place
from .archivereading import Archive, Run
from .asks import FOLLOW_ENTRIES, FOLLOW_SECONDS, PULL_BYTES, Following, Wish
from .cursors import After, Back, Cursor
from .entries import Batch, Entries
from .errors import NotFound

Job = Callable[[], Any]
Pulling = Generator[Wish[Any] | Job, Any, Entries]
Key = tuple[int, int, int]

_END: Final = (1 << 64, 0, 0)  # behind all keys


class Where(NamedTuple):
    """What is asked for."""

    topic: str
    after: After
    partition: int | None
    limit: int
    max_bytes: int
    wait: float
    topic_id: int
    timeout: float | None
    place: str = ""  # of the archive; empty: where the node says

    @classmethod
    def of(
        cls,
        topic: str,
        after: object,
        partition: int | None,
        limit: int,
        max_bytes: int,
        wait: float,
        topic_id: int,
        timeout: float | None,
        *,
        archive: bool | str,
    ) -> Self:
        """As a user says it: True for an archive is where the node says."""
        place = archive if isinstance(archive, str) else ""
        begins = cursors.read(after)
        return cls(topic, begins, partition, limit, max_bytes, wait, topic_id, timeout, place)

    def wish(self, after: After, *, few: bool = False) -> Wish[Entries]:
        """`few`: it is already known that the archive comes first."""
        return asks.pull(
            self.topic,
            after,
            self.partition,
            1 if few else self.limit,
            1 if few else self.max_bytes,
            0 if few else self.wait,
            self.topic_id,
            self.timeout,
            kept=True,
        )


class Through:
    """The archives that one client reads, and where it is deep in one."""

    def __init__(self) -> None:
        self._open: dict[str, Archive] = {}
        self._deep: set[tuple[str, int | None]] = set()  # topic and partition of such a pull

    def is_deep(self, where: Where) -> bool:
        """Whether the last pull found nothing but files."""
        return (where.topic, where.partition) in self._deep

    def pull(self, where: Where) -> Pulling:
        """
        Raises:
            NotFound: something is missing, and no archive is known, or it is not to be found.
            Corrupt: a file of it is damaged.
            DuckrowError: see `Client.pull`.
        """
        after: After = 0 if where.after == cursors.FIRST else where.after
        few = self.is_deep(where)
        found: Entries = yield where.wish(after, few=few)
        if found.topic_id and (isinstance(after, Back) or _since(after)):
            begins = yield from self._begins(where, after, found)
            if begins is not None:
                after = begins
                found = yield where.wish(after)
        if not found.missing:
            self._deep.discard((where.topic, where.partition))
            if few:
                found = yield where.wish(after)
            if not found.missing:
                return found
        place = where.place or found.archive
        if not place:
            raise NotFound(
                f"{found.missing:,} entries of topic {where.topic!r} were pruned, and the node knows no "
                "archive: no archiver has come yet; say where it is, or do without it"
            )
        lacking = lacks(after, found.spans)
        runs = yield partial(self._runs, place, where, found.topic_id, lacking)
        merged, deep = merge(after, lacking, runs, found, where.limit)
        if deep:
            self._deep.add((where.topic, where.partition))
        else:
            self._deep.discard((where.topic, where.partition))
        return merged

    def _begins(
        self, where: Where, after: After, found: Entries
    ) -> Generator[Wish[Any] | Job, Any, Cursor | None]:
        """Where to begin, if that lies in the archive: the node knows only what it keeps."""
        kept = sum(last + 1 - first for first, last in found.spans.values())
        if isinstance(after, Back) and kept >= after.entries:
            return None
        place = where.place
        if not place:
            place = (yield asks.status())["archive"]["place"]
        if not place:
            return None
        look = _back if isinstance(after, Back) else _since_time
        begins: Cursor | None = yield lambda: look(
            self._archive(place), where.topic, found.topic_id, after, found.spans
        )
        return begins

    def _runs(
        self, place: str, where: Where, topic_id: int, lacking: Mapping[int, Span]
    ) -> dict[int, Run]:
        archive = self._archive(place)
        return {
            partition: archive.run(
                where.topic, topic_id, partition, numbers, where.limit, where.max_bytes
            )
            for partition, numbers in lacking.items()
        }

    def _archive(self, place: str) -> Archive:
        if place not in self._open:
            archive = Archive(Place(place))
            archive.reach()
            self._open[place] = archive
        return self._open[place]


class FollowingThrough(Following):
    """A follow that goes through the archive as long as it is behind what the node keeps."""

    kept = True

    def __init__(
        self, through: Through, topic: str, after: object, partition: int | None, place: str
    ) -> None:
        super().__init__(topic, after, partition)
        self._through, self._place = through, place
        self.is_behind = True  # perhaps; the first pull tells

    def pulling(self) -> Pulling:
        return self._through.pull(self._where())

    def takes(self, found: Entries) -> bool:
        if found.missing:  # pruned, and let go of, since the last pull
            self.is_behind = True
            return False
        return super().takes(found)

    def took(self, found: Entries) -> None:
        super().took(found)
        self.is_behind = self._through.is_deep(self._where())

    def _where(self) -> Where:
        return Where(
            self._topic,
            self._after,
            self._partition,
            FOLLOW_ENTRIES,
            PULL_BYTES,
            FOLLOW_SECONDS,
            self._topic_id,
            None,
            self._place,
        )


def _since(after: After) -> bool:
    return isinstance(after, Cursor) and bool(after.since)


def _back(
    archive: Archive, topic: str, topic_id: int, after: After, spans: cursors.Spans
) -> Cursor | None:
    """Behind which the last so many entries are; all that the node keeps are among them."""
    assert isinstance(after, Back)
    more = after.entries - sum(last + 1 - first for first, last in spans.values())
    keys: list[tuple[int, int, int]] = []
    for partition, (first, _) in spans.items():
        for batch in archive.last(topic, topic_id, partition, first, more):
            numbers = range(batch.first, batch.last + 1)
            keys += [(batch.position, partition, number) for number in numbers]
    done = {partition: first - 1 for partition, (first, _) in spans.items()}
    for _, partition, number in sorted(keys)[-more:]:
        done[partition] = min(done[partition], number - 1)
    return Cursor(done)


def _since_time(
    archive: Archive, topic: str, topic_id: int, after: After, spans: cursors.Spans
) -> Cursor | None:
    """The partitions whose first entry at or after the time lies in the archive get a number."""
    assert isinstance(after, Cursor)
    done = dict(after.done)
    for partition, (first, _) in spans.items():
        if partition not in done:
            number = archive.since(topic, topic_id, partition, after.since)
            if number is not None and number < first:
                done[partition] = number - 1
    return Cursor(done, after.since) if done != after.done else None


def lacks(after: After, spans: cursors.Spans) -> dict[int, Span]:
    """The numbers of each partition that the node has not."""
    found = {}
    for partition, (first, _) in spans.items():
        done = _done(after, partition)
        if done is not None and done + 1 < first:
            found[partition] = Span(done + 1, first - 1)
    return found


def merge(
    after: After,
    lacking: Mapping[int, Span],
    runs: Mapping[int, Run],
    live: Entries,
    limit: int,
) -> tuple[Entries, bool]:
    """What both have, in the order of the row; and whether all of it is from the archive.

    A source that was cut short is known up to its last batch; nothing behind that can be given, since
    what comes next there may come before it.
    """
    horizon = _horizon_of_live(live)
    done = {p: number for p in live.spans if (number := _done(after, p)) is not None}
    missing = 0
    before: dict[Key, int] = {}  # numbers that nobody has, before the batch with that key
    for partition, numbers in lacking.items():
        batches = runs[partition].batches
        if not batches:
            missing += len(numbers)
            done[partition] = numbers.last
            continue
        before[_key(batches[0])] = batches[0].first - numbers.first
        if batches[-1].last < numbers.last:
            horizon = min(horizon, _key(batches[-1]))
    from_files = [batch for run in runs.values() for batch in run.batches]
    given: list[Batch] = []
    count = 0
    for batch in sorted([*from_files, *live.batches], key=_key):
        if _key(batch) > horizon or count >= limit:
            break
        part = batch.part(0, min(len(batch), limit - count))
        missing += before.get(_key(batch), 0)
        given.append(part)
        count += len(part)
        done[batch.partition] = part.last
    since = after.since if isinstance(after, Cursor) else 0
    entries = Entries(
        given,
        missing=missing,
        first=live.first,
        last=live.last,
        after=Cursor(done, since),
        topic_id=live.topic_id,
        spans=live.spans,
        archive=live.archive if missing else "",
    )
    live_begins = min(map(_key, live.batches), default=_END)
    return entries, bool(given) and _key(given[-1]) < live_begins


def _horizon_of_live(live: Entries) -> Key:
    """The node gave all that it keeps up to here."""
    assert isinstance(live.after, Cursor), "an answer says a number for each partition"
    done = live.after.done
    is_all = all(done.get(partition, last) >= last for partition, (_, last) in live.spans.items())
    return _END if is_all or not live.batches else _key(live.batches[-1])


def _key(batch: Batch) -> Key:
    return batch.position, batch.partition, batch.first


def _done(after: After, partition: int) -> int | None:
    if isinstance(after, Cursor):
        return after.done_in(partition)
    return after if isinstance(after, int) else None
