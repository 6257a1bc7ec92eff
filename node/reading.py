"""Pulls: the entries of a topic from a number on, waiting for them where there are none.

    ask ──► cursor ──► plan ──► bodies: cache, else store ──► batches, and where to go on
              ▲                                                  │ nothing there, and time left
              └────────────── woken ◄── parked ◄─────────────────┘

Between finding nothing and parking there is no checkpoint, so nothing is missed.  Between planning
and reading there is one: pruned meanwhile, a place may be gone, and then it is planned again.  What
was read by then is given first; what was pruned and what is damaged shows in the next pull, at its
beginning, so that the reader always knows where.

Nothing is kept of a reader between its pulls, and what a pull costs does not depend on how much
there is before, after or around what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn, Protocol

import attrs
import trio

from . import columns, cursors
from .cache import Cache
from .columns import Columns
from .commands import Command, Head, Kind, decode_head
from .cursors import After, Cursor, Spans
from .effects import Reason, named
from .env import Buffer
from .errors import Conflict, Corrupt, Damaged, LimitExceeded, NotFound, Refused
from .limits import KIB, MIB, PARTITIONS_MAX, PULL_BYTES_MAX
from .numbers import Numbers
from .pins import Pins
from .places import NOWHERE, command_of, record_of, segment_of
from .plans import Want, plan
from .pulled import Basket, Pulled
from .state import State
from .values import Topic, position_of
from .waiters import ALL, Waiters

PULL_ENTRIES: Final = 1_000
PULL_BYTES: Final = 1 * MIB
_ENTRIES, _CODEC = 1, 2  # in `extra` of PRODUCE and STAGE alike
_WORTH_KEEPING: Final = 64 * KIB  # open; smaller ones are quickly read again
_BATCHES_A_TURN: Final = 64  # then other tasks get one


class StoredBundle(Protocol):
    @property
    def commands(self) -> Sequence[Command]: ...


class StoredHeads(Protocol):
    @property
    def bundle(self) -> StoredBundle: ...


class Bodies(Protocol):
    """What a reader needs of the row store."""

    async def read_heads(self, place: int) -> StoredHeads:
        """
        Raises:
            NotFound: the segment was dropped.
            Corrupt: it is damaged there.
        """
        ...

    async def read_body(self, place: int, *, is_live: bool = False) -> Buffer:
        """`is_live`: something of it is not pruned, so every machine should have it.

        Raises:
            NotFound: the segment was dropped, or rewritten without this body.
            Corrupt: it is damaged there.
        """
        ...


@attrs.frozen
class Pull:
    """What is asked for."""

    topic: str
    after: After = 0
    partition: int | None = None  # None: all, in the order of the row
    topic_id: int = 0  # of the topic that is meant; 0: any
    limit: int = PULL_ENTRIES
    max_bytes: int = PULL_BYTES  # of bodies; a first batch that is larger and compressed is given
    wait: float = 0.0  # seconds, if there is nothing
    kept: bool = False  # also what is pruned, and pinned for the archive

    def __attrs_post_init__(self) -> None:
        if self.limit < 1 or self.max_bytes < 1:
            text = f"a pull of {self.limit} entries in {self.max_bytes} bytes gets nothing"
            raise Refused(text, limit=self.limit, max_bytes=self.max_bytes)
        if self.max_bytes > PULL_BYTES_MAX:
            raise LimitExceeded("max_bytes of a pull", self.max_bytes, PULL_BYTES_MAX)
        if self.partition is not None and self.partition < 0:
            text = f"partition {self.partition}: they are counted from 0"
            raise Refused(text, partition=self.partition)
        cursors.check(self.after)


class Reader:
    """Serves the pulls of a node."""

    def __init__(
        self,
        state: State,
        numbers: Numbers,
        cache: Cache,
        store: Bodies,
        waiters: Waiters,
        pins: Pins,
    ) -> None:
        self._state, self._numbers, self._cache = state, numbers, cache
        self._store, self._waiters, self._pins = store, waiters, pins
        self._opened: tuple[int, Columns] | None = None  # a large batch, by its place

    @property
    def position(self) -> int:
        """Up to here everything is shown: while an older body is looked for, the state is further."""
        return min(self._state.position, self._numbers.covered)

    async def pull(self, ask: Pull) -> Pulled:
        """
        Raises:
            Conflict: the topic is not, or no longer, the one that was meant.
            NotFound: it has no such partition.
            Refused: `after` cannot mean anything in this topic.
            Damaged: the next entries cannot be read; names them.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        deadline = trio.current_time() + ask.wait
        after, topic_id = ask.after, ask.topic_id
        while True:
            topic = self._topic(ask.topic, topic_id)
            if topic is None or _is_to_come(topic, ask):
                after = cursors.without_topic(after)
                pulled = Pulled(0, [], 0, after, {})
            else:
                topic_id = topic.id
                spans = self._spans(topic, ask.partition, kept=ask.kept)
                after = cursors.resolve(after, self._numbers, topic_id, spans)
                try:
                    pulled = await self._gather(ask, topic_id, after)
                except _PrunedError:
                    continue
            if pulled.batches or trio.current_time() >= deadline:
                return pulled
            with trio.move_on_at(deadline):
                await self._waiters.wait(ask.topic, ALL if ask.partition is None else ask.partition)

    def _topic(self, name: str, meant: int) -> Topic | None:
        """None: it is still to come."""
        topic = self._state.topic(name)
        if not meant or (topic is not None and topic.id == meant):
            return topic
        if position_of(meant) > self._state.position:
            return None  # this node has not come so far yet
        now = "there is none now" if topic is None else f"the topic of that name is {topic.id} now"
        raise Conflict(
            f"topic {name!r} of id {meant} was deleted, and {now}: look again at what is there",
            reason=named(Reason.OTHER_TOPIC),
            topic=name,
            topic_id=0 if topic is None else topic.id,
        )

    def _spans(self, topic: Topic, partition: int | None, *, kept: bool) -> Spans:
        count = topic.policy.partitions
        if partition is not None and partition >= count:
            raise NotFound(
                f"topic {topic.name!r} has partitions 0 to {count - 1}, not {partition}",
                topic=topic.name,
                partition=partition,
                partitions=count,
            )
        wanted = range(count) if partition is None else (partition,)
        if kept:
            state, pins = self._state, self._pins
            return {p: (pins.kept(topic, p), state.partition(topic.id, p).last) for p in wanted}
        return {p: self._state.partition(topic.id, p)[:2] for p in wanted}

    async def _gather(self, ask: Pull, topic_id: int, cursor: Cursor) -> Pulled:
        """Comes to no checkpoint if it finds nothing."""
        basket = Basket(ask.limit, ask.max_bytes, cursor, self._open)
        missing, spans, wants = self._next(ask, topic_id, basket)
        archive = self._archive(topic_id) if missing else ""
        pulled = Pulled(topic_id, basket.batches, missing, basket.cursor, spans, archive)
        while wants:
            for want in wants:
                try:
                    if basket.batches and await self._is_too_large(want, basket):
                        return pulled
                    head, body = await self._fetch(ask.topic, topic_id, want)
                except (NotFound, Corrupt) as error:
                    if not basket.batches:
                        self._explain(ask, topic_id, want, error)
                    return pulled
                basket.put(want, head.pid, head.extra[_CODEC], body)
                if basket.full:
                    return pulled
                if not len(basket.batches) % _BATCHES_A_TURN:
                    await trio.lowlevel.checkpoint()
            skipped, _, wants = self._next(ask, topic_id, basket)
            if skipped:
                break
        return pulled

    def _archive(self, topic_id: int) -> str:
        topic = self._state.topic_of(topic_id)
        return self._pins.place if topic is not None and topic.policy.archive else ""

    def _next(self, ask: Pull, topic_id: int, basket: Basket) -> tuple[int, Spans, list[Want]]:
        """Entries that were pruned before the next ones, what there is, and the next batches."""
        topic = self._state.topic_of(topic_id)
        if topic is None:
            return 0, {}, []
        numbers = self._numbers
        spans = self._spans(topic, ask.partition, kept=ask.kept)
        starts, missing = cursors.starts(basket.cursor, numbers, topic_id, spans)
        if missing and basket.batches:
            return missing, spans, []
        wants, hole = plan(numbers, topic_id, spans, starts, basket.entries_left)
        # While an item is being applied, the index may not know yet what the state does.
        if not wants and not basket.batches and hole and numbers.covered >= self._state.position:
            numbers.on_lost()
            raise Damaged(ask.topic, *hole, "the index has lost them")
        basket.done.update((partition, start - 1) for partition, start in starts.items())
        return missing, spans, wants

    async def _fetch(self, topic: str, topic_id: int, want: Want) -> tuple[Head, Buffer]:
        place = want.row.place
        found = self._cache.get(place)
        if found is None:
            live = self._state.partition(topic_id, want.partition).first
            found = await self._fetch_stored(place, is_live=want.row.last >= live)
        head, body = found
        # Wrong entries would be worse than none.
        if (
            head.kind not in (Kind.PRODUCE, Kind.STAGE)
            or (head.topic, head.partition) != (topic, want.partition)
            or head.extra[_ENTRIES] != want.row.count
        ):
            raise Corrupt(f"place {place:x} holds another batch than the index says")
        return head, body

    async def _is_too_large(self, want: Want, basket: Basket) -> bool:
        """Whether there is no room for the batch.  A guess is enough: one that is read for nothing
        costs as much as one that is given.
        """
        left, row = basket.bytes_left, want.row
        if len(basket.batches[-1].body) <= left or want.stop - want.start < row.count:
            return False
        return not self._cache.holds(row.place) and (await self._head(row.place)).length > left

    async def _fetch_stored(self, place: int, *, is_live: bool) -> tuple[Head, Buffer]:
        if self._opened is not None and self._opened[0] == place:
            return await self._head(place), self._opened[1].body
        # The body first: to find it, the store reads the heads, and has them for the second call.
        body = await self._store.read_body(place, is_live=is_live)
        return await self._head(place), body

    def _open(self, place: int, body: Buffer) -> Columns:
        """To cut a part out of it.  Who reads a large batch bit by bit will ask for the next one.

        Raises:
            Corrupt, LimitExceeded: there are no columns in it.
        """
        if self._opened is not None and self._opened[0] == place:
            return self._opened[1]
        opened = columns.decode(body)
        if len(body) >= _WORTH_KEEPING:
            self._opened = place, opened
        return opened

    async def _head(self, place: int) -> Head:
        head = self._cache.head(place)
        if head is None:
            commands = (await self._store.read_heads(place)).bundle.commands
            self._cache.put_heads(record_of(place), commands)
            head = decode_head(commands[command_of(place)].head)
        return head

    def _explain(self, ask: Pull, topic_id: int, want: Want, error: Exception) -> NoReturn:
        """
        Raises:
            _PrunedError: it is no wonder that it cannot be read.
            Damaged: it should be there.
        """
        topic = self._state.topic_of(topic_id)
        if topic is not None:
            first = self._spans(topic, want.partition, kept=ask.kept)[want.partition][0]
            live = self._state.partition(topic_id, want.partition).first
            if isinstance(error, NotFound) and want.stop <= live:
                # It was let go before the node died, and the word of the archiver with it.
                self._pins.has_gone(topic, want.partition, want.row.last)
                raise _PrunedError from error
            if first < want.stop:
                if segment_of(want.row.place) == segment_of(NOWHERE):
                    self._numbers.on_lost()  # where it lies was damaged when it got its numbers
                place = want.partition, want.start, want.row.last
                raise Damaged(ask.topic, *place, str(error)) from error
        raise _PrunedError from error


def _is_to_come(topic: Topic, ask: Pull) -> bool:
    """The partition: whoever names the topic's id may have been told of it by a node that is further."""
    few, partition = topic.policy.partitions, ask.partition
    return ask.topic_id == topic.id and partition is not None and few <= partition < PARTITIONS_MAX


class _PrunedError(Exception):
    """Raised when a batch went away between planning and reading."""
