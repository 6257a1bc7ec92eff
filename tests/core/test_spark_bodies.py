"""Rows of Arrow as bodies of batches, compared with the rows one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import columns
from duckrow.node.commands import COMMON_FIELDS
from duckrow.node.errors import Refused
from pyspark_duckrow import bodies
from pyspark_duckrow.bodies import Piece, pieces
from pyspark_duckrow.sink import chunks

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
TEXT = st.text("abcdé", max_size=5)
ROWS = st.lists(
    st.tuples(
        TEXT,
        st.none() | TEXT,
        st.sampled_from(["rides", "stops"]),
        st.none() | st.integers(0, 2),
        st.none() | st.lists(st.tuples(TEXT, TEXT), max_size=2),
    ),
    min_size=1,
    max_size=30,
)
Row = dict[str, Any]


def unpacked(piece: Piece) -> list[Row]:
    found = columns.decode(piece.body)
    assert len(found) == piece.count
    keys = found.key_list(0, piece.count)
    if piece.key_hashes is not None:
        assert piece.key_hashes == columns.key_hashes(keys)
    return [
        {
            "key": key,
            "value": value,
            "headers": headers,
            "topic": piece.topic,
            "at": piece.partition,
        }
        for key, value, headers in zip(
            keys,
            found.value_list(0, piece.count),
            found.header_list(0, piece.count),
            strict=True,
        )
    ]


def raw(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def by_place(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["at"]), []).append(row)
    return found


@given(ROWS, TYPES, TYPES, st.integers(1, 3), st.integers(1, 60), st.data())
def test_every_row_is_an_entry_of_its_topic_and_partition_in_its_order(
    rows: list[tuple[Any, ...]],
    value_type: pa.DataType,
    key_type: pa.DataType,
    count: int,
    most: int,
    data: st.DataObject,
) -> None:
    values, keys, topics, places, headers = map(list, zip(*rows, strict=True))
    given_headers = [
        None if each is None else [{"key": k, "value": v.encode()} for k, v in each]
        for each in headers
    ]
    batch = pa.record_batch(
        [
            pa.array(values, value_type),
            pa.array(keys, key_type),
            pa.array(topics),
            pa.array(places, pa.int32()),
            pa.array(given_headers, HEADERS),
        ],
        names=["value", "key", "topic", "partition", "headers"],
    )
    lo = data.draw(st.integers(0, len(rows) - 1))
    hi = data.draw(st.integers(lo + 1, len(rows)))

    cuts = data.draw(st.sets(st.integers(lo, hi), max_size=3))
    bounds = [*pairwise(sorted({lo, hi} | cuts))]
    batches = [batch.slice(begin, end - begin) for begin, end in bounds]

    made = [*pieces(batches, "", lambda _: count, 7, most)]

    expected = [
        {
            "key": raw(key),
            "value": raw(value),
            "headers": tuple((k, v.encode()) for k, v in row_headers or ()),
            "topic": topic,
            "at": place
            if place is not None
            else turn % count
            if count == 1 or key is None
            else int.from_bytes(columns.key_hashes([raw(key)]), "little") % count,
        }
        for turn, (begin, end) in enumerate(bounds, 7)
        for value, key, topic, place, row_headers in rows[begin:end]
    ]
    assert by_place([row for piece in made for row in unpacked(piece)]) == by_place(expected)


def test_the_topic_that_is_told_goes_before_the_column() -> None:
    batch = pa.record_batch({"value": ["a", "b"], "topic": ["x", None]})

    (made,) = pieces([batch], "rides", lambda _: 1, 0, 1000)

    assert (made.topic, made.count) == ("rides", 2)


@pytest.mark.parametrize("column", ["value", "topic"])
def test_a_row_without_a_value_or_a_topic_is_told(column: str) -> None:
    rows: dict[str, list[str | None]] = {"value": ["a", "b", "c"], "topic": ["x", "y", "z"]}
    rows[column] = ["a", None, None]

    with pytest.raises(Refused, match=f"2 of 3 rows have no {column}, the first of them row 1"):
        [*pieces([pa.record_batch(rows)], "", lambda _: 1, 0, 1000)]


def test_a_header_that_is_null_is_told() -> None:
    headers = pa.array([[{"key": "kind", "value": b"bus"}], [None]], HEADERS)
    batch = pa.record_batch({"value": ["a", "b"], "headers": headers})

    with pytest.raises(Refused, match="a header in the column headers is null"):
        [*pieces([batch], "rides", lambda _: 1, 0, 1000)]


def test_pieces_are_as_large_as_was_said() -> None:
    batch = pa.record_batch({"value": [b"x" * 92] * 1000})

    made = [*pieces([batch], "rides", lambda _: 1, 0, 10_000)]

    assert [piece.count for piece in made] == [100] * 10


def test_rows_of_several_record_batches_become_one_piece_for_each_partition() -> None:
    """A commit names every piece, and has room for so many names only."""
    batch = pa.record_batch({"value": [b"v"] * 100, "key": [b"%d" % n for n in range(100)]})

    made = [*pieces([batch] * 20, "rides", lambda _: 4, 0, 1 << 20)]

    assert sorted(piece.partition for piece in made) == [0, 1, 2, 3]
    assert sum(piece.count for piece in made) == 2_000


def test_what_is_gathered_goes_when_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GATHERED_BYTES", 3_000)
    batch = pa.record_batch({"value": [b"x" * 92] * 10})

    counts = [piece.count for piece in pieces([batch] * 7, "rides", lambda _: 1, 0, 1 << 20)]

    assert counts == [30, 30, 10]


def test_headers_count_as_well() -> None:
    """Else they make a piece too large for a batch."""
    headers = pa.array([[{"key": "trace", "value": b"x" * 600}]] * 10_000, HEADERS)
    batch = pa.record_batch({"value": [b"v"] * 10_000, "headers": headers})

    made = [*pieces([batch], "rides", lambda _: 1, 0, 1 << 20)]

    assert sum(piece.count for piece in made) == 10_000
    assert max(len(piece.body) for piece in made) < 1 << 20


def test_pieces_with_keys_fit_their_heads() -> None:
    batch = pa.record_batch({"value": [b""] * 40_000, "key": [b"k"] * 40_000})

    made = [*pieces([batch], "rides", lambda _: 1, 0, 1 << 20)]

    assert sum(piece.count for piece in made) == 40_000
    assert all(len(piece.key_hashes or b"") + 100 * COMMON_FIELDS < 65_535 for piece in made)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 7))
def test_chunks_do_not_depend_on_how_the_rows_came(sizes: list[int], size: int) -> None:
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    batches = [
        pa.record_batch({"n": [*range(end - count, end)]})
        for end, count in zip(ends, sizes, strict=True)
    ]

    found = [
        [n for part in chunk for n in part.column("n").to_pylist()]
        for chunk in chunks(iter(batches), size)
    ]

    total = sum(sizes)
    assert found == [[*range(at, min(at + size, total))] for at in range(0, total, size)]
