"""A row with a reader: items are applied as a keeper would, their bodies lie on a shelf in memory.

Every entry has a value of its own, so whatever a pull gives can be held against what was produced.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import attrs
import trio

from core.rowkit import Row
from duckrow.node import columns, makers
from duckrow.node.apply import apply
from duckrow.node.cache import Cache
from duckrow.node.commands import Command
from duckrow.node.cursors import After
from duckrow.node.effects import Appended, Created, Deleted, Effect
from duckrow.node.errors import Corrupt, NotFound
from duckrow.node.numberfile import NumberFile
from duckrow.node.numbers import Numbers, older
from duckrow.node.pins import Pins
from duckrow.node.places import command_of, place, record_of, segment_of
from duckrow.node.pulled import Batch, Pulled
from duckrow.node.reading import Pull, Reader
from duckrow.node.row import Bundle, Item, View
from duckrow.node.waiters import Waiters

OPAQUE = 200  # a codec of somebody else


class Fact(NamedTuple):
    """An entry, as it was produced and numbered."""

    partition: int
    number: int
    value: bytes
    time: int
    position: int


class Shelf:
    """Bundles by place, with the faults of a store."""

    def __init__(self) -> None:
        self.bundles: dict[int, Bundle] = {}
        self.damaged: dict[int, None] = {}  # places of bodies
        self.reads = self.bodies_read = 0
        self.before_read: Callable[[], object] | None = None  # something happens meanwhile

    async def read_heads(self, place: int) -> "Stored":
        await self._turn()
        bundle = self._bundle(place)
        return Stored(
            bundle._replace(commands=tuple(c._replace(body=b"") for c in bundle.commands))
        )

    async def read_body(self, place: int, *, is_live: bool = False) -> bytes:
        self.bodies_read += 1
        await self._turn()
        body = self._bundle(place).commands[command_of(place)].body
        if place in self.damaged:
            raise Corrupt(f"the body at {place:x} is damaged")
        return bytes(body)

    def drop(self, segment: int) -> None:
        for key in [key for key in self.bundles if segment_of(key) == segment]:
            del self.bundles[key]

    async def _turn(self) -> None:
        self.reads += 1
        meanwhile, self.before_read = self.before_read, None
        if meanwhile is not None:
            meanwhile()
        await trio.lowlevel.checkpoint()

    def _bundle(self, place: int) -> Bundle:
        bundle = self.bundles.get(record_of(place))
        if bundle is None:
            raise NotFound(f"segment {segment_of(place)} was dropped")
        return bundle


@attrs.frozen
class Stored:
    bundle: Bundle


class Library(Row):
    """Produces, and knows what every pull should give."""

    def __init__(self, *, cached: bool = True, segment: int = 0) -> None:
        self.numbers = Numbers(b"u" * 16)
        self.cache = Cache() if cached else Cache(0)
        self.shelf = Shelf()
        self.waiters = Waiters()
        self.segment, self._offset = segment, 0
        self.places: list[int] = []  # by position, from 1
        self.facts: dict[tuple[str, int], list[Fact]] = {}
        self._values = 0
        self._made: dict[bytes, list[bytes]] = {}  # body: values
        super().__init__()
        self.pins = Pins(self.state, self.numbers)
        self.reader = Reader(
            self.state, self.numbers, self.cache, self.shelf, self.waiters, self.pins
        )

    def put(self, content: Bundle | View) -> list[Effect]:
        at = place(self.segment, self._offset)
        self._offset += 8
        item = Item(self.state.position + 1, at, 0, content)
        self.items.append(item)
        self.places.append(at)
        if isinstance(content, Bundle):
            self.shelf.bundles[at] = content
        effects = apply(self.state, item)
        self.tell(item, effects)
        return effects

    def tell(self, item: Item, effects: Sequence[Effect]) -> None:
        """What the keeper does after applying."""
        places = {each: self.places[each - 1] for each in older(item.position, effects)}
        self.numbers.note(item.position, item.place, effects, places)
        if isinstance(item.content, Bundle):
            self.cache.put(item.place, item.content.commands)
        for effect in effects:
            if isinstance(effect, Appended):
                self._remember(item, effect)
                self.waiters.wake(effect.topic, effect.partition)
            elif isinstance(effect, Deleted):
                for key in [key for key in self.facts if key[0] == effect.topic]:
                    del self.facts[key]
                for lane in [lane for lane in self._seqs if lane[2] == effect.topic]:
                    del self._seqs[lane]  # lanes go with their topic
                self.waiters.wake_all(effect.topic)
            elif isinstance(effect, Created):
                self.waiters.wake_all(effect.topic)

    def _remember(self, item: Item, effect: Appended) -> None:
        source = self.items[effect.position - 1].content
        assert isinstance(source, Bundle)
        values = self._made[bytes(source.commands[effect.index].body)]
        self.facts.setdefault((effect.topic, effect.partition), []).extend(
            Fact(effect.partition, effect.first + i, value, effect.time, item.position)
            for i, value in enumerate(values)
        )

    def body(self, count: int, size: int = 0, codec: int = 0) -> bytes:
        """Entries with values of at least `size` bytes."""
        values = []
        for _ in range(count):
            self._values += 1
            values.append(b"%d " % self._values + b"." * size)
        body = columns.encode(values) if codec == 0 else b"\n".join(values)
        self._made[body] = values
        return body

    def entries(
        self, topic: str = "t", count: int = 1, *, size: int = 0, codec: int = 0, **more: Any
    ) -> Command:
        body = self.body(count, size, codec)
        turn = self.turn(topic=topic, partition=more.get("partition", 0))
        found = self.state.topic(topic)
        partitions = found.policy.partitions if found else 1
        return makers.produce(turn, topic, body, count, codec=codec, partitions=partitions, **more)

    def add(self, topic: str = "t", count: int = 1, **more: Any) -> None:
        self.item(self.entries(topic, count, **more))

    def seal(self) -> None:
        """The next item lies in another segment."""
        self.segment, self._offset = self.segment + 1, 0

    def install(self) -> None:
        while self.numbers.waiting() is not None:
            for _ in self.numbers.install(NumberFile(b"".join(self.numbers.pieces()))):
                pass

    def drop(self) -> list[int]:
        """All segments that are dead."""
        dead = [n for n in range(self.numbers.in_memory) if not self.numbers.usage.holders(n)]
        for segment in dead:
            self.numbers.drop(segment)
            self.shelf.drop(segment)
        return dead

    async def pull(self, topic: str = "t", after: After = 0, **more: Any) -> Pulled:
        return await self.reader.pull(Pull(topic, after, **more))

    def there(self, topic: str = "t", partition: int | None = None) -> list[Fact]:
        """What is retained, in the order of the row."""
        found = self.state.topic(topic)
        count = found.policy.partitions if found else 0
        facts = [
            fact
            for p in range(count)
            if partition in (None, p)
            for fact in self.facts.get((topic, p), [])
            if fact.number >= self.at(topic, p).first
        ]
        return sorted(facts, key=lambda fact: (fact.position, fact.partition, fact.number))


def read(pulled: Pulled) -> list[Fact]:
    """The entries that are wanted of what a pull gave."""
    return [fact for batch in pulled.batches for fact in entries_of(batch)]


def entries_of(batch: Batch) -> list[Fact]:
    if batch.codec == 0:
        opened = columns.decode(batch.body)
        values = opened.value_list(0, len(opened))
    else:
        values = bytes(batch.body).split(b"\n")
    assert len(values) == batch.count
    assert batch.first <= batch.start < batch.stop <= batch.first + batch.count
    return [
        Fact(batch.partition, number, values[number - batch.first], batch.time, batch.position)
        for number in range(batch.start, batch.stop)
    ]
