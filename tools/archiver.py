"""The archiver: what is pruned, and pinned at a node, becomes files, and then need not be pinned.

    node ──► what is pinned ──► spans that are due ──► one buffer fills ──► the other is written
      ▲                                                                              │
      └────────────────────────── safe up to here ◄─────── synced, and has its name ─┘

Nothing is remembered here: what is missing is found anew from the node's pins and the names of the
files, so a kill at any moment loses nothing.  What keeps it from getting on it tells the node, which
keeps the entries, and tries again; with one partition it does not hold up the others.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final

import attrs

from duckrow.node.archivenames import Due, Named, Span, due
from duckrow.node.archiveplace import Mark, Place, is_full
from duckrow.node.archivereading import verified
from duckrow.node.archivetables import groups
from duckrow.node.errors import Conflict, Corrupt, DuckrowError, NotFound, Refused
from duckrow.node.limits import PULL_BYTES_MAX

from .archivewriting import OtherHand, Writer

if TYPE_CHECKING:
    from duckrow import Client
    from duckrow.node.blockingreads import Between
    from duckrow.node.entries import Batch
    from duckrow.node.topicinfo import Pin, Pinned

log = logging.getLogger("duckrow.archiver")

FILES_A_ROUND: Final = 16  # of a partition; then the others get a turn
IDLE_SECONDS: Final = 1.0  # between looks at what is pinned
LATER_SECONDS: Final = 0.1  # a sync takes less, mostly
TROUBLE_SECONDS: Final = 5.0  # between tries


class StoppedError(Exception):
    """Raised when it was told to stop: what is half done is left, and pinned at the node."""


class _LaterError(Exception):
    """Raised when entries are not on the node's disk for certain yet: they could still change."""


@attrs.define
class Archiver:
    client: Client
    place: Place
    node: str  # its name
    stopped: Callable[[], bool] = lambda: False
    troubles: list[str] = attrs.field(factory=list, init=False)  # of this round
    files: int = attrs.field(default=0, init=False)  # that were written
    entries: int = attrs.field(default=0, init=False)  # that have become safe
    later: bool = attrs.field(default=False, init=False)  # some wait until the node has synced them
    _told: str | None = attrs.field(default=None, init=False)  # the trouble that the node knows
    # Files of a partition, by the id of its topic: another one may have the same name later.
    _there: dict[tuple[int, int], list[Span]] = attrs.field(factory=dict, init=False)

    def round(self) -> bool:
        """Everything that is due, or some of it; whether anything was done.

        Raises:
            DuckrowError: the node cannot be asked, or has another archiver.
            StoppedError: in the middle.
        """
        self.troubles, self.later = [], False
        before = self.entries
        pinned = self.client.pins()
        try:
            archive = self._archive(pinned)
            if self._told is None:
                self._tell(archive)  # who it is, before it begins
            for pin in pinned.pins:
                try:
                    self._partition(pin, pinned.durable)
                except (NotFound, Conflict, Corrupt, Refused) as error:
                    self._there.pop((pin.topic_id, pin.partition), None)
                    self.troubles.append(str(error))
        except OSError as error:
            self._there.clear()  # what is behind it when it comes back may be something else
            self.troubles.append(self._why(error))
            archive = ""
        self._tell(archive)
        return self.entries > before

    def _archive(self, pinned: Pinned) -> str:
        """The id of the archive, which is begun if there is none.

        Raises:
            OSError: its disk is away, it is of another row, or its mark is damaged.
        """
        try:
            mark = self.place.mark()
        except Refused as error:
            raise OSError(
                f"{error}; if this is the archive of {self.node} all the same, remove that file, then: "
                f"duckrow archive init {self.place}"
            ) from error
        if not mark and pinned.archive:
            raise OSError(
                f"the archive {pinned.archive} is not there: is its disk mounted? If it is lost, or "
                f"another one is to begin there: duckrow archive init {self.place}"
            )
        if not mark:
            mark = Mark(uuid.uuid4().hex[:12], pinned.lineage)
            self.place.begin(mark)
            log.info("archive_begun place=%s archive=%s", self.place, mark.archive)
        elif not mark.lineage:
            self.place.begin(mark._replace(lineage=pinned.lineage))
        elif mark.lineage != pinned.lineage:
            raise OSError(
                f"the archive {mark.archive} is of another row than that of {self.node} (of another "
                "cluster, or of before a restore or a forced view), which may have other entries under "
                f"the same numbers: archive to another place, or, if you know that it has not: "
                f"duckrow archive init {self.place} --adopt"
            )
        return mark.archive

    def _why(self, error: OSError) -> str:
        if is_full(error):
            free = self.place.free()
            room = "" if free is None else f": {free:,} bytes are free"
            return f"the disk of {self.place} is full{room}"
        return f"{self.place} cannot be used: {error}"

    def _tell(self, archive: str) -> None:
        more = len(self.troubles) - 1
        trouble = self.troubles[0] if self.troubles else ""
        if more > 0:
            trouble += f" (and {more} more)"
        self.client.unpin(None, place=str(self.place), trouble=trouble, archive=archive)
        if trouble != self._told:
            level = logging.WARNING if trouble else logging.INFO
            log.log(level, "archive place=%s trouble=%s", self.place, trouble or "none")
            self._told = trouble

    # -- one partition ------------------------------------------------------------------------------

    def _partition(self, pin: Pin, durable: int) -> None:
        """
        Raises:
            DuckrowError: of the node, or of a file.
            OSError: of the place.
        """
        if pin.first - pin.kept < 1:
            return
        key = pin.topic_id, pin.partition
        if key not in self._there:
            files = self.place.files(pin.topic, pin.partition)
            self._there[key] = [each.named.span for each in files]
        there = self._there[key] = [span for span in self._there[key] if span.last >= pin.kept]
        feed = _Feed(self.client, pin, durable)
        with OtherHand[Writer | None]() as hand:
            writing: Writer | None = None
            try:
                for turn, each in enumerate(due(pin.kept, pin.first, pin.span, there)):
                    if turn == FILES_A_ROUND:
                        break
                    if each.there and self._is_good(pin, each):
                        self._safe(pin, hand.wait())
                        self._is_safe(pin, each.span)
                        continue
                    writing = self._writer(pin, each)
                    for group in groups(feed.through(each.span)):
                        if self.stopped():
                            raise StoppedError
                        self._safe(pin, hand.swap(partial(writing.put, group)))
            except _LaterError:
                self.later = True
            finally:
                feed.close()
                try:
                    self._safe(pin, hand.wait())
                finally:
                    if writing is not None:
                        writing.abandon()

    def _writer(self, pin: Pin, each: Due) -> Writer:
        name = Named(pin.topic, pin.partition, each.span)
        return Writer(self.place, name, pin.topic_id, self.node, replace=each.there)

    def _is_good(self, pin: Pin, each: Due) -> bool:
        """Whether the file that is there may be relied on.

        Raises:
            Conflict: it is of another topic.
            Corrupt: it is damaged, and this node has not all of its entries.
        """
        name = Named(pin.topic, pin.partition, each.span)
        try:
            footer = verified(self.place, name)
        except Corrupt as error:
            if each.span.first < pin.kept or each.span.last >= pin.first:
                raise
            log.warning("archive_file_replaced file=%s why=%s", name.path, error)
            return False
        if footer.topic_id != pin.topic_id:
            raise Conflict(
                f"{self.place}/{name.path} is of another topic {pin.topic!r}, which was deleted (its "
                f"id is {footer.topic_id}, and this one's {pin.topic_id}): move its folder away"
            )
        return True

    def _safe(self, pin: Pin, writer: Writer | None) -> None:
        """Of a file that was finished.

        Raises:
            OSError: it is not in the archive, whose disk has gone since the round began.
        """
        if writer is not None:
            if not self.place.mark():
                raise OSError(f"it has gone while {writer.name.path} was written: is it mounted?")
            self.files += 1
            log.debug("archived file=%s", writer.name.path)
            self._is_safe(pin, writer.name.span)

    def _is_safe(self, pin: Pin, span: Span) -> None:
        self.client.unpin(pin, span.last, place=str(self.place), trouble=self._told or "")
        self.entries += span.last + 1 - max(span.first, pin.kept)


class _Feed:
    """The entries of a partition, from one span to the next."""

    def __init__(self, client: Client, pin: Pin, durable: int) -> None:
        self._client, self._pin, self._durable = client, pin, durable
        self._ahead: list[Batch] = []  # the last one comes first
        self._pulls: Between | None = None
        self._at = 0  # what the next of these pulls begins with

    def through(self, span: Span) -> Iterator[Batch]:
        """All entries of the span.

        Raises:
            DuckrowError: the node does not give them.
            _LaterError: they are not on its disk for certain yet.
        """
        at = span.first
        while at <= span.last:
            batch = self._next(at)
            if batch.position > self._durable:
                raise _LaterError
            if batch.last > span.last:
                rest = span.last + 1 - batch.first
                self._ahead.append(batch.part(rest, len(batch)))
                batch = batch.part(0, rest)
            yield batch
            at = batch.last + 1

    def _next(self, at: int) -> Batch:
        pin = self._pin
        if not self._ahead or self._ahead[-1].first != at:  # a file that is there was left out
            self._ahead = []
            if self._pulls is None or self._at != at:
                self.close()
                self._pulls = self._client.between(
                    pin.topic,
                    at,
                    pin.first - 1,
                    partition=pin.partition,
                    max_bytes=PULL_BYTES_MAX,
                    topic_id=pin.topic_id,
                    kept=True,
                )
            found = next(self._pulls, None)
            if not found or found.batches[0].first != at:
                self.close()
                raise NotFound(
                    f"entry {at:,} of partition {pin.partition} of {pin.topic!r} has gone"
                )
            self._ahead = [*reversed(found.batches)]
            self._at = found.batches[-1].last + 1
        return self._ahead.pop()

    def close(self) -> None:
        """What is under way is not wanted any more."""
        if self._pulls is not None:
            self._pulls.close()
            self._pulls = None


def once(archiver: Archiver, stop: Event) -> None:
    """Everything that is due.

    Raises:
        DuckrowError: the node cannot be asked, or has another archiver; or something is in the way.
    """
    try:
        while archiver.round() or (archiver.later and not stop.wait(LATER_SECONDS)):
            pass
    except StoppedError:
        return
    if archiver.troubles:
        raise NotFound("; ".join(archiver.troubles))


def serve(archiver: Archiver, stop: Event, told: Callable[[str], None]) -> None:
    """Round after round, until `stop` is set.  `told` hears of the first one that went through.

    Raises:
        Conflict: the node has another archiver.
    """
    away = ""
    ready = False
    while not stop.is_set():
        busy = False
        try:
            busy = archiver.round()
            if not ready:
                ready = True
                told(str(archiver.place))
            away = ""
        except StoppedError:
            return
        except Conflict:
            if not ready:
                raise
        except DuckrowError as error:
            if str(error) != away:
                away = str(error)
                log.warning("node_away error=%s", away)
        if not busy:
            stop.wait(TROUBLE_SECONDS if archiver.troubles else IDLE_SECONDS)
