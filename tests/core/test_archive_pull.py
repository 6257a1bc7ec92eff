"""What comes from files and what is live become one pull, in the order of the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import asks, cursors
from duckrow.node.archivenames import Span
from duckrow.node.archivepull import Through, Where, lacks, merge
from duckrow.node.archivereading import Run
from duckrow.node.columns import decode, encode
from duckrow.node.cursors import Cursor
from duckrow.node.entries import Batch, Entries
from duckrow.node.errors import NotFound
from duckrow.node.requests import Ask

Place = tuple[int, int, int]  # position, partition, number


def batch(partition: int, first: int, count: int, position: int) -> Batch:
    values = [b"%d/%d" % (partition, first + at) for at in range(count)]
    return Batch("t", partition, first, 0, bytes(16), decode(encode(values)), position=position)


def places(batches: tuple[Batch, ...] | list[Batch]) -> list[Place]:
    return [(b.position, b.partition, n) for b in batches for n in range(b.first, b.last + 1)]


class Row(NamedTuple):
    """All batches there ever were; what of each partition the node keeps; numbers that no file has."""

    batches: list[Batch]
    kept: dict[int, int]
    lost: frozenset[tuple[int, int]]

    def spans(self) -> dict[int, tuple[int, int]]:
        return {
            p: (first, max((b.last for b in self.batches if b.partition == p), default=0))
            for p, first in self.kept.items()
        }

    def pull(self, after: Cursor, limit: int) -> Entries:
        """As a node answers."""
        spans, given, missing = self.spans(), list[Batch](), 0
        done = {p: max(after.done[p], first - 1) for p, (first, _) in spans.items()}
        missing = sum(done[p] - after.done[p] for p in spans)
        for each in sorted(self.batches, key=lambda b: (b.position, b.partition, b.first)):
            lo = max(0, done[each.partition] + 1 - each.first)
            if lo >= len(each) or limit <= 0:
                continue
            part = each.part(lo, min(len(each), lo + limit))
            given.append(part)
            limit -= len(part)
            done[each.partition] = part.last
        return Entries(given, missing=missing, after=Cursor(done), topic_id=1, spans=spans)

    def run(self, partition: int, numbers: Span, limit: int) -> Run:
        """As an archive answers."""
        given: list[Batch] = []
        count = 0
        for each in self.batches:
            for n in range(each.first, each.last + 1):
                if each.partition != partition or not numbers.first <= n <= numbers.last:
                    continue
                if (partition, n) in self.lost:
                    if given:
                        return Run(given, True)
                    continue
                at = n - each.first
                given.append(each.part(at, at + 1))
                count += 1
                if count == limit and n < numbers.last:
                    return Run(given, False)
        return Run(given, True)


@st.composite
def row(draw: st.DrawFn) -> Row:
    last = dict.fromkeys(range(draw(st.integers(1, 3))), 0)
    batches, position = [], 0
    for _ in range(draw(st.integers(0, 12))):
        partition = draw(st.sampled_from(sorted(last)))
        position += draw(st.integers(0, 1))
        count = draw(st.integers(1, 4))
        batches.append(batch(partition, last[partition] + 1, count, position))
        last[partition] += count
    kept = {p: draw(st.integers(1, number + 1)) for p, number in last.items()}
    pruned = [(p, n) for p, first in kept.items() for n in range(1, first)]
    lost = draw(st.frozensets(st.sampled_from(pruned), max_size=4)) if pruned else frozenset()
    return Row(batches, kept, lost)


@given(row(), st.integers(1, 6))
def test_pull_after_pull_brings_every_entry_once_in_row_order_and_counts_the_rest(
    found: Row, limit: int
) -> None:
    after = Cursor(dict.fromkeys(found.kept, 0))
    told: list[Place] = []
    missing = 0
    while True:
        live = found.pull(after, limit)
        if live.missing:
            lacking = lacks(after, live.spans)
            runs = {p: found.run(p, numbers, limit) for p, numbers in lacking.items()}
            live, _ = merge(after, lacking, runs, live, limit)
        assert len(live) <= limit
        told += places(live.batches)
        missing += live.missing
        assert isinstance(live.after, Cursor)
        if live.after == after:
            break
        after = live.after

    wanted = [place for place in places(found.batches) if place[1:] not in found.lost]
    assert told == sorted(wanted)
    assert missing == len(found.lost)


def test_where_an_archive_is_deep_the_node_is_asked_for_next_to_nothing() -> None:
    found = Row([batch(0, 1, 40, 1)], {0: 31}, frozenset())
    through, where = Through(), Where("t", 0, None, 5, 1_000, 3.0, 0, None, "/archive")
    limits: list[int] = []

    def pulled(after: int | Cursor) -> Entries:
        steps = through.pull(where._replace(after=after))
        step = next(steps)
        try:
            while True:
                if isinstance(step, asks.Wish):
                    asked = _asked(step)
                    limits.append(asked.limit)
                    cursor = after if isinstance(after, Cursor) else Cursor({0: after})
                    step = steps.send(found.pull(cursor, asked.limit))
                else:
                    assert isinstance(after, int | Cursor)
                    numbers = lacks(after, found.spans())
                    step = steps.send({p: found.run(p, each, 5) for p, each in numbers.items()})
        except StopIteration as done:
            entries: Entries = done.value
            return entries

    after: int | Cursor = 0
    numbers: list[int] = []
    while entries := pulled(after):
        numbers += [entry.number for entry in entries]
        assert isinstance(entries.after, Cursor)
        after = entries.after

    assert numbers == list(range(1, 41))
    assert limits == [5, *[1] * 6, 5, 5, 5]


def _asked(wish: asks.Wish[Entries]) -> Ask:
    """What it would send."""

    class Core:
        def pull(self, ask: Ask, *, kept: bool) -> Ask:
            assert kept
            return ask

    found = wish.make(Core())  # type: ignore[arg-type]
    assert isinstance(found, Ask)
    return found


def test_something_missing_and_no_archive_known_is_told() -> None:
    steps = Through().pull(Where("t", 0, None, 5, 1_000, 0, 0, None))
    next(steps)
    live = Entries(missing=7, topic_id=1, spans={0: (8, 9)}, after=Cursor({0: 7}))

    with pytest.raises(NotFound, match=r"7 entries of topic 't' were pruned"):
        steps.send(live)


def test_without_an_archive_a_pull_is_what_the_node_says() -> None:
    steps = Through().pull(Where("t", cursors.FIRST, None, 5, 1_000, 0, 0, None))
    next(steps)
    live = Entries([batch(0, 1, 2, 1)], topic_id=1, spans={0: (1, 2)}, after=Cursor({0: 2}))

    with pytest.raises(StopIteration) as done:
        steps.send(live)
    assert done.value.value is live


def lacking(after: int | Cursor, spans: Mapping[int, tuple[int, int]]) -> dict[int, Span]:
    return lacks(after, spans)


def test_what_the_node_lacks_lies_between_the_cursor_and_what_it_keeps() -> None:
    spans = {0: (11, 20), 1: (5, 9)}

    assert lacking(0, spans) == {0: Span(1, 10), 1: Span(1, 4)}
    assert lacking(Cursor({0: 10, 1: 2}), spans) == {1: Span(3, 4)}
    assert lacking(Cursor({1: 7}), spans) == {0: Span(1, 10)}, "it came later: nothing is done"
    assert lacking(Cursor({1: 7}, since=5), spans) == {}, "it begins where the time is"
