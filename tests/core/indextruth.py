"""What an index should say, in lists, and the partitions that its tests are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import attrs

from duckrow.node.effects import Appended, Deleted, Pruned
from duckrow.node.numberfile import (
    NumberFile,
    Row,
)
from duckrow.node.numberlife import BATCH_BYTES
from duckrow.node.numbers import Numbers, older
from duckrow.node.places import place, segment_of

STORE = b"one store's uuid"


Effect = Appended | Pruned | Deleted


@attrs.define
class Recorded:
    """An item as the keeper would note it."""

    position: int
    place: int
    effects: list[Effect]
    places: dict[int, int]


@attrs.define
class Truth:
    """What happened, in lists."""

    items: list[Recorded] = attrs.field(factory=list)
    rows: dict[tuple[int, int], list[Row]] = attrs.field(factory=dict)
    sizes: dict[int, int] = attrs.field(factory=dict)  # by place of the body
    firsts: dict[tuple[int, int], int] = attrs.field(factory=dict)
    segment: int = 0
    offset: int = 0
    time: int = 1_000
    waiting: list[int] = attrs.field(factory=list)  # positions whose command 9 has no number yet

    def item(
        self, effects: Sequence[Effect] = (), places: dict[int, int] | None = None
    ) -> Recorded:
        self.offset += 8
        it = Recorded(
            len(self.items) + 1, place(self.segment, self.offset), list(effects), places or {}
        )
        self.items.append(it)
        return it

    def appended(
        self, topic_id: int, partition: int, count: int, *, body: int | None = None, size: int = 100
    ) -> Recorded:
        """An item with one batch, whose body lies in it, or in the item at position `body`."""
        it = self.item()
        rows = self.rows.setdefault((topic_id, partition), [])
        first = rows[-1].last + 1 if rows else 1
        record = it if body is None else self.items[body - 1]
        index = len(it.effects) if body is None else 9
        row = Row(first, record.place | index, self.time, it.position, count)
        rows.append(row)
        self.sizes[row.place] = size
        it.effects.append(
            Appended(
                topic_id, "t", partition, first, count, self.time, size, record.position, index
            )
        )
        it.places = {} if body is None else {body: record.place}
        return it

    def pruned(self, topic_id: int, partition: int, first: int) -> Recorded:
        self.firsts[topic_id, partition] = first
        return self.item([Pruned(topic_id, "t", partition, first)])

    def deleted(self, topic_id: int) -> Recorded:
        for key in [key for key in self.rows if key[0] == topic_id]:
            del self.rows[key]
            self.firsts.pop(key, None)
        return self.item([Deleted(topic_id, "t")])

    def live(self, key: tuple[int, int]) -> list[Row]:
        first = self.firsts.get(key, 1)
        return [row for row in self.rows[key] if row.last >= first]

    def first_of(self, topic_id: int, partition: int) -> int | None:
        if not any(key[0] == topic_id for key in self.rows):
            return None
        return self.firsts.get((topic_id, partition), 1)


def note(numbers: Numbers, it: Recorded) -> None:
    assert older(it.position, it.effects) == list(it.places)
    numbers.note(it.position, it.place, it.effects, it.places)


def file_of(numbers: Numbers) -> NumberFile:
    return NumberFile(b"".join(numbers.pieces()))


def install(numbers: Numbers) -> list[NumberFile]:
    files = []
    while numbers.waiting() is not None:
        files.append(file_of(numbers))
        for _ in numbers.install(files[-1]):
            pass
    return files


def check(numbers: Numbers, truth: Truth) -> None:
    """Every lookup, at every place where the answer changes and beside it."""
    for (topic_id, partition), all_rows in truth.rows.items():
        rows = truth.live((topic_id, partition))
        first, end = truth.firsts.get((topic_id, partition), 1), all_rows[-1].last
        for number in {first, *(r.first for r in rows), *(r.last for r in rows)}:
            if first <= number <= end:
                expected = [row for row in rows if row.last >= number]
                assert numbers.rows(topic_id, partition, number, 1000) == expected
                assert numbers.rows(topic_id, partition, number, 2) == expected[:2]
        assert numbers.rows(topic_id, partition, end + 1, 10) == []
        for row in rows:
            for at in (row.time, row.time + 1):
                # What was pruned may still be found; who asks knows what is pruned.
                found = numbers.at_time(topic_id, partition, at)
                assert _living(found, first) == next((r for r in rows if r.time >= at), None) or (
                    found is not None and found.last < first
                )
            found = numbers.at_position(topic_id, partition, row.position)
            assert found == next(r for r in all_rows if r.position >= row.position)
            found = numbers.at_position(topic_id, partition, row.position + 1)
            assert found == next((r for r in all_rows if r.position > row.position), None)


def _living(row: Row | None, first: int) -> Row | None:
    return row if row is not None and row.last >= first else None


def check_usage(numbers: Numbers, truth: Truth) -> None:
    """Exact for whole batches; the oldest pair of a partition is a guess, of one segment's bytes."""
    places = [row.place for row in all_rows(truth)]
    for segment in range(numbers.in_memory):
        alive = sorted(p for p in places if segment_of(p) == segment)
        numbered = [
            row
            for row in all_rows(truth)
            if segment_of(truth.items[row.position - 1].place) == segment
        ]
        assert bool(numbers.usage.holders(segment)) == bool(alive or numbered)
        assert sorted(p for some in numbers.live_places(segment) for p in some) == alive
        assert numbers.usage.live(segment) >= 0
    if not truth.firsts:
        newest = list(accumulate((segment_of(item.place) for item in truth.items), max))
        rows = Counter(newest[row.position - 1] for row in all_rows(truth))
        for segment in range(numbers.in_memory):
            size = sum(truth.sizes[p] for p in places if segment_of(p) == segment)
            assert numbers.usage.live(segment) == size + BATCH_BYTES * rows[segment]


def all_rows(truth: Truth) -> list[Row]:
    return [row for key in truth.rows for row in truth.live(key)]


def long_partition(
    rows: int, *, files: int = 1, count: int = 3
) -> tuple[Truth, Numbers, list[NumberFile]]:
    """One partition, spread over several files, with a neighbour on each side of it."""
    truth, numbers = Truth(), Numbers(STORE)
    for file in range(files):
        truth.segment, truth.offset = file, 0
        for at in range(rows // files):
            if at % 500 == 0:
                note(numbers, truth.appended(5, 0, 1))
                note(numbers, truth.appended(9, 0, 1))
            truth.time += at % 2
            note(numbers, truth.appended(7, 1, count))
    truth.segment, truth.offset = files, 0
    note(numbers, truth.item())
    return truth, numbers, install(numbers)


def bytes_of(file: NumberFile) -> bytes:
    """The whole file."""
    return b"".join(file.raw())
