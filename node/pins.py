"""Pins: entries that are pruned and that this node keeps all the same, until its archive has them.

    topic with an archive      1 ............ 4,000 | 4,001 ..... 9,000 | 9,001 ... 12,345
                                  in the archive           pinned           there
                                          safe ▲               first ▲          last ▲

What is pruned is decided in the row, on every node alike; what a node still needs of it is its own
affair, since each has an archive of its own, or a part in a common one.  So nothing here is in the
state.  The archiver tells how far its files are safe (archiver.py of the tools); a node without one
keeps everything that such a topic ever dropped, and says so.  A node has one archiver at a time: what
two of them call safe would not be so in either archive.

Pinned entries are to the index what live ones are: their rows stay, and the segments with their
bodies.  They are shown only to who asks for what is *kept*.

What is safe goes into snapshots.  If the process dies after it was told, less counts as safe than is,
and the archiver tells it again.  A topic that is deleted goes with its pins: for good is for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from . import cbor
from .effects import Reason, named
from .errors import Conflict, NotFound, Refused
from .numbers import Numbers
from .state import State
from .topicinfo import Pin
from .values import PARTITION_BITS, PARTITION_MASK, Topic

CHUNK: Final = "pins"  # of a snapshot
ARCHIVE: Final = "archive"  # of it, too: id and place
CHUNK_ROWS: Final = 4_000
TEXT_MAX: Final = 500  # characters of what an archiver says
AWAY: Final = "no archiver has come since the node was started"
GONE: Final = "the archiver has gone, and none has come since"


class Pins:
    """Those of one node.  It is told what the keeper applied, and what the archiver has done."""

    def __init__(self, state: State, numbers: Numbers) -> None:
        self._state, self._numbers = state, numbers
        self._safe: dict[int, int] = {}  # by Topic.key
        self.archive = ""  # its id, by which an empty folder is told from it
        self.place = ""  # where it lies, as the archiver told it
        self.trouble = ""  # why it does not get on; empty: it does
        self._archiver: object = None  # whose word counts
        self.on_told: Callable[[], None] = lambda: None  # more may be deleted
        self.on_trouble: Callable[[str], None] = lambda _trouble: None  # it is another one now
        numbers.held = self.held

    def held(self, topic_id: int, partition: int, first: int) -> int:
        """How far the index may forget, if entries below `first` are pruned."""
        topic = self._state.topic_of(topic_id)
        if topic is None or not topic.policy.archive:
            return first
        return min(first, self._safe.get(topic.key(partition), 0) + 1)

    def kept(self, topic: Topic, partition: int) -> int:
        """The first number that can be read here, pinned or not."""
        first = self._state.partition(topic.id, partition).first
        held = self.held(topic.id, partition, first)
        if held == first:
            return first
        row = self._numbers.at_position(topic.id, partition, 0)  # the oldest one known
        return first if row is None else min(first, max(held, row.first))

    def configured(self, topic_id: int) -> None:
        """The policy of the topic may be another one; the index has what the item did."""
        topic = self._state.topic_of(topic_id)
        if topic is None:
            return
        for partition in range(self._state.widths.get(topic_id, 0)):
            key = topic.key(partition)
            if not topic.policy.archive:
                self._safe.pop(key, None)
                first = self._state.partition(topic_id, partition).first
                self._numbers.prune(topic_id, partition, first)
            elif key not in self._safe:
                gone = self._numbers.pruned(topic_id, partition)
                if gone > 1:  # before there was an archive
                    self._safe[key] = gone - 1

    def hear(self, archiver: object, archive: str, place: str, trouble: str) -> None:
        """An archiver says who it is for, and how it gets on.

        Raises:
            Conflict: there is another one.
        """
        if self._archiver is not None and self._archiver is not archiver:
            raise Conflict(
                f"this node has an archiver already, for {self.place}: one node has one archive"
            )
        self._archiver = archiver
        self.archive = archive[:TEXT_MAX] or self.archive
        self.place = place[:TEXT_MAX]
        self._is_in(trouble[:TEXT_MAX])

    def leave(self, who: object) -> None:
        """A client is gone: perhaps it was the archiver."""
        if who is self._archiver:
            self._archiver = None
            self._is_in(GONE)

    def _is_in(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self.on_trouble(trouble)

    def tell(self, topic: str, topic_id: int, partition: int, safe: int) -> None:
        """The archive has everything up to `safe`; that may be less than was told before.

        Raises:
            NotFound, Conflict: there is no such topic, partition, or archive.
            Refused: the topic has not come so far.
        """
        found = self._state.topic(topic)
        if found is None or not 0 <= partition < found.policy.partitions:
            raise NotFound(
                f"there is no topic {topic!r} with a partition {partition}",
                topic=topic,
                partition=partition,
            )
        if found.id != topic_id:
            raise Conflict(
                f"topic {topic!r} has id {found.id} now, not {topic_id}",
                reason=named(Reason.OTHER_TOPIC),
                topic=topic,
                topic_id=found.id,
            )
        if not found.policy.archive:
            text = f"topic {topic!r} has no archive any more: nothing of it is pinned"
            raise Refused(text, topic=topic)
        now = self._state.partition(found.id, partition)
        if not 0 <= safe <= now.last:
            text = f"topic {topic!r} ends at {now.last:,}: {safe:,} cannot be safe"
            raise Refused(text, topic=topic, last=now.last, safe=safe)
        self._safe[found.key(partition)] = safe
        self._numbers.prune(found.id, partition, now.first)
        self.on_told()

    def has_gone(self, topic: Topic, partition: int, upto: int) -> None:
        """What is pruned up to there was deleted, so the archive had it; a later snapshot would say so."""
        first = self._state.partition(topic.id, partition).first
        key = topic.key(partition)
        self._safe[key] = max(self._safe.get(key, 0), min(upto, first - 1))
        self._numbers.prune(topic.id, partition, first)

    def listed(self, after: tuple[str, int], limit: int) -> Iterator[Pin]:
        """Partitions of topics with an archive, by name and number, some of them."""
        state = self._state
        names = sorted(
            topic.name
            for topic in state.topics.rows.values()
            if topic.policy.archive and topic.name >= after[0]
        )
        for name in names:
            topic = state.topics.rows[name]
            for partition in range(topic.policy.partitions):
                if (name, partition) <= after:
                    continue
                if not limit:
                    return
                limit -= 1
                yield self._pin(topic, partition)

    def entries(self) -> int:
        """How many are pinned: here, and not in the archive."""
        return sum(pin.pinned for pin in self.listed(("", -1), -1))

    def told(self) -> dict[str, Any]:
        """For `duckrow status`."""
        return {"place": self.place, "pinned": self.entries(), "trouble": self.trouble}

    # Snapshots and restarts

    def capture(self) -> Iterator[tuple[str, bytes]]:
        """In chunks for a snapshot, one at least; what is told meanwhile may be in it or not."""
        keys = list(self._safe)

        def chunks() -> Iterator[tuple[str, bytes]]:
            yield ARCHIVE, cbor.dumps([self.archive, self.place])
            for at in range(0, max(1, len(keys)), CHUNK_ROWS):
                rows: list[int] = []
                for key in keys[at : at + CHUNK_ROWS]:
                    if self._state.topic_of(key >> PARTITION_BITS) is None:
                        self._safe.pop(key, None)  # it was deleted
                    elif key in self._safe:
                        rows += key, self._safe[key]
                yield CHUNK, cbor.dumps(rows)

        return chunks()

    def restore(self, chunks: Sequence[bytes], archive: Sequence[bytes]) -> None:
        """From the snapshot that the state comes from, before anything is applied to it; where there
        was none, the row is applied from its first item on, and there is nothing to restore.
        """
        for chunk in archive:
            self.archive, self.place = cbor.loads_own(chunk)
            self.trouble = AWAY if self.place else ""
        partitions = self._state.partitions.rows
        found: list[int] = [number for chunk in chunks for number in cbor.loads_own(chunk)]
        self._safe = dict(zip(found[::2], found[1::2], strict=True))
        for key, part in partitions.items():
            if not chunks and self._has_archive(key):
                self._safe[key] = part.first - 1  # no pins were known: what was pruned is gone
            if part.first > 1:
                self._numbers.prune(key >> PARTITION_BITS, key & PARTITION_MASK, part.first)

    # Inside

    def _has_archive(self, key: int) -> bool:
        topic = self._state.topic_of(key >> PARTITION_BITS)
        return topic is not None and topic.policy.archive > 0

    def _pin(self, topic: Topic, partition: int) -> Pin:
        now = self._state.partition(topic.id, partition)
        return Pin(
            topic.name,
            topic.id,
            partition,
            topic.policy.archive,
            self.kept(topic, partition),
            now.first,
            now.last,
            self._safe.get(topic.key(partition), 0),
        )
