"""A state made again from the row and the index of numbers, where no snapshot is left (N4).

    dropped, or thinned out         floor                                    end
    [ what the index says of it ]   | items, whole, but for damage             |
      topics, numbers, times          applied again; but what the index says was
                                      numbered is believed, and not decided anew

The rules decide by what came before, and what came before the floor is known in part only: not the
policies of topics, nor who had produced what.  So where the index speaks of an item, its batches
get the numbers that they had.  Behind the index the rules go on: a producer that is not known is
taken to have been in order.

An item that is damaged is passed over; the numbers that the index gives to it stay taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from . import keptplaces, lanes, runs
from .apply import apply
from .commands import Command, Head, Kind, Produce, Stage, decode_head
from .effects import Appended, Deleted, Effect, Pruned
from .errors import Corrupt, LimitExceeded, NotFound
from .limits import KIB
from .numberfile import Row, split_key
from .numbering import append, widen
from .numbers import Numbers, older
from .places import command_of, place, record_of, segment_of
from .policies import DEFAULT, Policy
from .remains import Numbered, Remains
from .row import Bundle, Item
from .rowstore import RowStore
from .state import State
from .values import Partition, Topic, position_of, ticket_of

READ_BYTES: Final = 256 * KIB
# They depend on what the index knows better: what was refused, waited, or was staged.
_NUMBERING: Final = (Kind.PRODUCE, Kind.STAGE, Kind.COMMIT)
_NO_HEAD: Final = Command(b"", b"")  # it belongs to no lane, so applying passes it over


@attrs.define
class Findings:
    """What could not be made again as it was."""

    passed: list[int] = attrs.field(factory=list)  # positions of items that are damaged
    assumed: set[str] = attrs.field(factory=set)  # topics whose policy may have been another one
    unnamed: set[int] = attrs.field(factory=set)  # ids of topics of which no head is left
    guessed: int = 0  # batches whose numbers were counted, and are in no index file


class Remaking:
    """Makes `state` and `numbers`: call `all` once.

    `numbers` has loaded what files there are, of which `remains` tells.
    """

    def __init__(self, store: RowStore, remains: Remains, numbers: Numbers) -> None:
        self.state, self.numbers, self.findings = State(), numbers, Findings()
        self._indexed = False  # a file that is in use has the item
        self._store, self._remains = store, remains
        self._place = place(store.segments()[0].number, 0)  # of the last item that has one

    async def all(self) -> None:
        """
        Raises:
            Corrupt: the row and the index contradict each other.
        """
        state, store = self.state, self._store
        state.position, state.view = store.floor - 1, store.view
        await self._find_topics()
        await self._begin()
        while state.position < store.position:
            try:
                items = await store.read_items(state.position + 1, READ_BYTES)
            except (Corrupt, NotFound):
                await self._pass(state.position + 1)
                continue
            for item in items:
                self._place = item.place
                await self._take(item)

    # -- before the floor ---------------------------------------------------------------------

    async def _find_topics(self) -> None:
        """Those that are older than the floor, by whoever speaks of them behind it."""
        position, floor = self._store.floor, self._store.floor
        while position <= self._store.position:
            try:
                items = await self._store.read_items(position, READ_BYTES)
            except (Corrupt, NotFound):
                position += 1
                continue
            for item in items:
                for head in _heads(item):
                    if head is not None and head.topic_id and position_of(head.topic_id) < floor:
                        self._know(head.topic_id, head)
                for key, row in self._remains.at(item.position) or ():
                    if position_of(split_key(key)[0]) < floor:
                        await self._topic_of(key, row)
            position = items[-1].position + 1

    async def _begin(self) -> None:
        """Topics and partitions as they were at the floor, as far as the index goes back."""
        state, gone = self.state, set[int]()
        found: dict[int, list[bytes]] = {}  # by key: runs, the newest first
        there = {segment.number: segment.rewritten for segment in self._store.segments()}
        for key, rows, size in self._remains.before(self._store.floor):
            state.row_time = max(state.row_time, rows[-1].time)
            if key in gone:
                continue  # something newer cannot be read, so nobody reads on from here
            whole = len(rows)
            while whole and await self._is_there(rows[whole - 1], there):
                whole -= 1
            if whole:
                gone.add(key)
            topic = await self._topic_of(key, rows[-1])
            if topic is None:
                continue
            now = state.partitions.rows.get(key)
            if now is None:
                last = rows[-1].last
                now = Partition(last + 1, last, rows[-1].time)
                widen(state, key)
            if whole < len(rows):
                first = rows[whole].first
                now = now._replace(first=first, size=now.size + size)
                run = runs.pack(first, size, rows[-1].time)
                found.setdefault(key, []).append(run)
            state.partitions.put(key, now)
        for key, newest_first in found.items():
            packed = b"".join(reversed(newest_first))
            ends = range(runs.CHUNK_BYTES, len(packed) + 1, runs.CHUNK_BYTES)
            chunks = tuple(packed[end - runs.CHUNK_BYTES : end] for end in ends)
            tail = packed[len(chunks) * runs.CHUNK_BYTES :]
            now = state.partitions.rows[key]
            state.partitions.put(key, now._replace(chunks=chunks, tail=tail))

    async def _is_there(self, row: Row, there: dict[int, bool]) -> bool:
        """Whether the body was not dropped; it may be damaged."""
        rewritten = there.get(segment_of(row.place))
        if rewritten:
            try:
                await self._store.read_heads(row.place)
            except NotFound:
                return False
            except Corrupt:
                return True
        return rewritten is not None

    async def _topic_of(self, key: int, row: Row) -> Topic | None:
        """By the head of the batch, if nobody has spoken of it yet."""
        topic_id, _ = split_key(key)
        if (topic := self.state.topic_of(topic_id)) is not None:
            return topic
        try:
            stored = await self._store.read_heads(row.place)
            head = decode_head(stored.bundle.commands[command_of(row.place)].head)
        except (Corrupt, NotFound, LimitExceeded, IndexError):
            self.findings.unnamed.add(topic_id)
            return None
        self._know(topic_id, head)
        return self.state.topic_of(topic_id)

    def _know(self, topic_id: int, head: Head) -> None:
        """A head says what the topic is called, and how many partitions it had at least."""
        state = self.state
        if head.kind not in (Kind.PRODUCE, Kind.STAGE):
            return
        kind = Produce if head.kind == Kind.PRODUCE else Stage
        partitions = max(kind.of(head).partitions, head.partition + 1)
        topic = state.topic_of(topic_id)
        if topic is None:
            other = state.topic(head.topic)
            if other is not None:
                if other.id > topic_id:
                    return  # it was deleted, and made anew
                del state.names[other.id]
            topic = Topic(topic_id, head.topic, DEFAULT)
            state.names[topic_id] = head.topic
            self.findings.assumed.add(head.topic)
            self.findings.unnamed.discard(topic_id)
        if partitions > topic.policy.partitions:
            topic = topic._replace(policy=Policy(partitions=partitions))
        state.topics.put(head.topic, topic)

    # -- item by item -------------------------------------------------------------------------

    async def _take(self, item: Item) -> None:
        numbered = self._remains.at(item.position)
        if numbered is None:
            await self._apply(item)
        else:
            await self._believe(item, numbered)
        keptplaces.note(self.numbers.kept, self.state, item)

    async def _apply(self, item: Item) -> None:
        """By the rules: no file of the index speaks of it."""
        for head in _heads(item):
            if head is not None:
                lane = self.state.lanes.rows.get(head.lane)
                # What lacks may be in the part that is gone, or in an item that is damaged.
                lacks = bool(self.findings.passed) and lane is not None and head.seq > lane.last
                if lane is None or lane.epoch < head.epoch or lacks:
                    lanes.assume(self.state, head, head.seq - 1)
        effects = apply(self.state, item)
        places = dict.fromkeys(older(item.position, effects), 0)
        for position in places:
            try:
                places[position] = await self._store.place_of(position)
            except (Corrupt, NotFound):
                pass  # whoever reads it is told
        self.findings.guessed += sum(isinstance(effect, Appended) for effect in effects)
        self.numbers.note(item.position, item.place, effects, places)

    async def _believe(self, item: Item, numbered: list[Numbered]) -> None:
        """What it numbered is known; all else goes by the rules."""
        for key, row in numbered:
            if position_of(split_key(key)[0]) < item.position:
                await self._topic_of(key, row)
        self._begin_in_index(item.position, item.place)
        heads, content = _heads(item), item.content
        if isinstance(content, Bundle):
            commands = tuple(
                _NO_HEAD if head is None or head.kind in _NUMBERING else command
                for command, head in zip(content.commands, heads, strict=True)
            )
            item = item._replace(content=content._replace(commands=commands))
        for head in heads:
            if head is not None:
                self._count(head)
        effects = apply(self.state, item)
        deleted = {effect.topic_id for effect in effects if isinstance(effect, Deleted)}
        self._note(effects)
        for key, row in numbered:
            if split_key(key)[0] not in deleted:
                await self._number(key, row, item.position)

    async def _pass(self, position: int) -> None:
        """The item there is damaged."""
        self.findings.passed.append(position)
        self.state.position = position
        try:
            self._place = await self._store.place_of(position)
        except (Corrupt, NotFound):
            pass  # as if it lay where the one before it does
        self._begin_in_index(position, record_of(self._place))
        for key, row in self._remains.at(position) or ():
            await self._number(key, row, position)

    def _begin_in_index(self, position: int, where: int) -> None:
        self._indexed = position <= self.numbers.covered
        self.numbers.begin(position, where)

    def _count(self, head: Head) -> None:
        """The lane has come so far; for what the rules are to decide, up to the one before."""
        upto = head.seq if head.kind in _NUMBERING else head.seq - 1
        lane = self.state.lanes.rows.get(head.lane)
        if upto and (lane is None or (lane.epoch, lane.last) < (head.epoch, upto)):
            lanes.assume(self.state, head, upto)

    async def _number(self, key: int, row: Row, position: int) -> None:
        """The batch gets the numbers that it had."""
        state = self.state
        topic_id, partition = split_key(key)
        topic = await self._topic_of(key, row)
        if topic is None:
            return
        now = state.partition(topic_id, partition)
        lacks = row.first - 1 - now.last
        if lacks < 0 or (lacks and now.last and not self._indexed):
            raise Corrupt(
                f"position {position} brings entry {row.first:,} of partition {partition} of topic "
                f"{topic.name!r}, as the index of numbers says, and what is before it in the row "
                f"comes to {now.last:,}: an index file is missing in between, so nobody can count"
            )
        if lacks:
            first = row.first if now.first > now.last else now.first
            state.partitions.put(key, now._replace(first=first, last=row.first - 1))
            widen(state, key)
        effects: list[Effect] = []
        size = await self._size(row)
        ticket = ticket_of(position, command_of(row.place))
        append(state, topic, partition, row.count, size, row.time, ticket, effects)
        self.numbers.append(topic_id, partition, row.first, row.count, row.time, size, row.place)
        self._note(effects)

    async def _size(self, row: Row) -> int:
        try:
            stored = await self._store.read_heads(row.place)
            return stored.bodies[command_of(row.place)].length
        except (Corrupt, NotFound, IndexError):
            return 0  # it cannot be read, either

    def _note(self, effects: Iterable[Effect]) -> None:
        """In the index, what is no numbering."""
        for effect in effects:
            if isinstance(effect, Pruned):
                self.numbers.prune(effect.topic_id, effect.partition, effect.first)
            elif isinstance(effect, Deleted):
                self.numbers.forget(effect.topic_id)


def _heads(item: Item) -> list[Head | None]:
    """Of its commands; None: it cannot be read as one."""
    found: list[Head | None] = []
    if isinstance(item.content, Bundle):
        for command in item.content.commands:
            try:
                found.append(decode_head(command.head))
            except (Corrupt, LimitExceeded):
                found.append(None)
    return found
