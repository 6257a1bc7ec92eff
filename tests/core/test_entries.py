"""Entries: a lazy sequence that behaves as the tuple of all its entries would."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import codec
from duckrow.node.columns import decode, encode
from duckrow.node.cursors import Cursor
from duckrow.node.entries import Batch, Entries, Entry, entries_of
from duckrow.node.errors import Corrupt, Damaged, Refused
from duckrow.node.layout import Column, write
from duckrow.node.pulled import Batch as PulledBatch
from duckrow.node.pulled import Pulled

PID = b"p" * 16
SIZES = st.lists(st.integers(1, 7), max_size=6)
HEADERS = (("trace", b"7"),)


def batch(count: int, first: int = 1, *, keyed: bool = False) -> Batch:
    values = [b"value %d" % (first + i) for i in range(count)]
    keys = [b"key %d" % (first + i) if i % 2 else None for i in range(count)]
    body = encode(values, keys, [HEADERS] * count) if keyed else encode(values)
    return Batch("rides", 2, first, 1_000 + first, PID, decode(body))


def plain(first: int, time: int) -> Entry:
    return Entry("rides", 2, first, time, PID, None, (), b"value %d" % first)


def rows(sizes: list[int]) -> tuple[Entries, tuple[Entry, ...]]:
    """Entries, and what they should be."""
    batches, expected, first = [], [], 1
    for size in sizes:
        batches.append(batch(size, first))
        expected += [plain(first + i, 1_000 + first) for i in range(size)]
        first += size
    return Entries(batches, last=first - 1), tuple(expected)


@given(SIZES)
def test_entries_are_the_sequence_of_all_entries(sizes: list[int]) -> None:
    entries, expected = rows(sizes)

    assert tuple(entries) == expected
    assert len(entries) == len(expected)
    assert bool(entries) == bool(expected)
    assert tuple(reversed(entries)) == expected[::-1]
    assert [entries[i] for i in range(len(expected))] == [*expected]
    assert all(entries[i - len(expected)] == entry for i, entry in enumerate(expected))
    assert all(entry in entries for entry in expected)


@given(SIZES, st.slices(40))
def test_a_slice_is_the_list_of_those_entries(sizes: list[int], part: slice) -> None:
    entries, expected = rows(sizes)

    assert entries[part] == [*expected[part]]


@given(SIZES, st.integers(0, 50))
def test_an_index_beyond_the_end_is_an_error(sizes: list[int], beyond: int) -> None:
    entries, expected = rows(sizes)

    for index in (len(expected) + beyond, -len(expected) - 1 - beyond):
        with pytest.raises(IndexError):
            entries[index]


@given(st.integers(1, 20), st.data())
def test_a_part_of_a_batch_keeps_its_numbers(count: int, data: st.DataObject) -> None:
    whole = batch(count, first=100, keyed=True)
    lo = data.draw(st.integers(0, count - 1))
    hi = data.draw(st.integers(lo + 1, count))
    part = whole.part(lo, hi)
    inner = part.part(0, data.draw(st.integers(1, hi - lo)))

    assert part.entries() == whole.entries()[lo:hi]
    assert (part.first, part.last, len(part)) == (100 + lo, 99 + hi, hi - lo)
    assert inner.entries() == part.entries()[: len(inner)]


def test_an_entry_has_all_that_its_producer_gave() -> None:
    first, second = batch(2, keyed=True).entries()

    assert second == Entry("rides", 2, 2, 1_001, PID, b"key 2", HEADERS, b"value 2")
    assert first.key is None
    assert first != second


def test_an_entry_is_a_value() -> None:
    entry = batch(1, keyed=True).entries()[0]

    assert {entry: 1}[pickle.loads(pickle.dumps(entry))] == 1
    with pytest.raises(AttributeError):
        entry.value = b""  # type: ignore[misc]


def test_what_is_printed_holds_no_payload() -> None:
    whole = batch(3, keyed=True)
    entries = Entries([whole], missing=4, first=5, last=7)

    for shown in (repr(entries), repr(whole), repr(entries[0]), repr(whole.columns)):
        assert "value" not in shown
        assert "key" not in shown
        assert len(shown) < 200
    assert repr(entries[0]) == "<Entry rides/2 1: 7 bytes>"
    assert repr(entries) == "<Entries: 3, 4 missing before; the partition has 5 to 7>"


def test_an_empty_pull_is_empty_and_says_what_the_partition_holds() -> None:
    nothing = Entries(missing=2, first=3, last=2)

    assert not nothing
    assert [*nothing] == nothing[:] == []
    assert (nothing.missing, nothing.first, nothing.last) == (2, 3, 2)


def test_entries_are_equal_if_their_entries_are_however_they_came() -> None:
    whole = Entries([batch(4)])
    split = Entries([batch(4).part(0, 1), batch(4).part(1, 4)])

    assert whole == split
    assert whole != Entries([batch(4).part(0, 3)])
    assert whole != [*whole]


def test_headers_that_are_none_harm_only_who_touches_them() -> None:
    end = b"\1\0\0\0"
    body = write(
        [
            Column(0, 70, [end]),
            Column(1, None, [b"v"]),
            Column(6, 70, [end]),
            Column(7, None, [b"?"]),
        ]
    )
    entries = Entries([Batch("t", 0, 1, 0, PID, decode(body))])

    assert entries.batches[0].columns.value_list(0, 1) == [b"v"]
    with pytest.raises(Corrupt):
        list(entries)


def packed(first: int, count: int, *, partition: int = 0, told: int | None = None) -> PulledBatch:
    """As a node gives it, which has not looked into it; `told` is what its producer says it holds."""
    body = codec.pack(codec.ZSTD, encode([b"value %d" % (first + i) for i in range(count)]))
    held = count if told is None else told
    stop = first + held
    return PulledBatch(partition, first, held, first, stop, 1, 7, PID, codec.ZSTD, body)


def pulled(*batches: PulledBatch) -> Pulled:
    done = {batch.partition: batch.stop - 1 for batch in batches}
    return Pulled(1, list(batches), 0, Cursor(done, since=3), {0: (1, 99), 1: (1, 99)})


@pytest.mark.parametrize("told", [1, 3])
def test_a_packed_batch_with_another_number_of_entries_than_was_told_names_its_place(
    told: int,
) -> None:
    with pytest.raises(Damaged, match="holds 2 entries, and its head says") as caught:
        entries_of("rides", pulled(packed(5, 2, told=told)))
    assert (caught.value.partition, caught.value.first, caught.value.last) == (0, 5, 4 + told)


def test_what_comes_before_a_batch_that_cannot_be_opened_is_read_and_the_reader_stands_there() -> (
    None
):
    bad = packed(3, 2)._replace(body=b"no frame")
    found = entries_of("rides", pulled(packed(1, 2), bad, packed(1, 1, partition=1), packed(5, 1)))
    assert [entry.number for entry in found] == [1, 2]
    assert found.after == Cursor({0: 2, 1: 0}, since=3)
    with pytest.raises(Damaged, match=r"3 to 4 of partition 0.*pull after 4"):
        entries_of("rides", pulled(bad, packed(5, 1)))


def test_a_codec_that_is_not_known_here_is_told_as_such() -> None:
    with pytest.raises(Refused, match="codec 9"):
        entries_of("rides", pulled(packed(1, 1)._replace(codec=9)))
