"""Entries as record batches, compared with the entries one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import columns
from duckrow.node.entries import Batch
from pyspark_duckrow.arrow import LARGE_ENTRIES, record_batches

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        (
            "headers",
            pa.list_(
                pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        ),
        ("producer", pa.string()),
        ("position", pa.int64()),
    ]
)
ENTRIES = st.lists(
    st.tuples(
        st.binary(max_size=9),
        st.none() | st.binary(max_size=5),
        st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def batch_of(
    first: int, made: list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]], *, created: bool
) -> Batch:
    values, keys, headers = zip(*made, strict=True)
    times = range(len(values)) if created else None
    body = columns.encode(values, keys, headers, times)
    return Batch("rides", 3, first, 1_000 + first, bytes([first % 256]) * 16, columns.decode(body))


def rows(batches: list[Batch], most: int, schema: pa.Schema = SCHEMA) -> list[dict[str, object]]:
    made = [*record_batches(batches, schema, most)]
    assert all(each.num_rows <= most for each in made)
    for each in made:
        each.validate(full=True)
    return [row for each in made for row in each.to_pylist()]


@given(st.lists(st.tuples(ENTRIES, st.booleans(), st.integers(0, 5)), max_size=4), st.data())
def test_every_entry_is_a_row_with_all_it_has(
    made: list[tuple[list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]], bool, int]],
    data: st.DataObject,
) -> None:
    batches, first = [], 5
    for entries, created, hole in made:
        first += hole
        batch = batch_of(first, entries, created=created)
        first += len(batch)
        lo = data.draw(st.integers(0, len(batch) - 1))
        batches.append(batch.part(lo, data.draw(st.integers(lo + 1, len(batch)))))

    found = rows(batches, data.draw(st.integers(1, 30)))

    expected = [
        {
            "key": entry.key,
            "value": entry.value,
            "topic": "rides",
            "partition": 3,
            "offset": entry.number,
            "timestamp": entry.time,
            "timestampType": 1,
            "headers": [{"key": k, "value": v} for k, v in entry.headers] or None,
            "producer": entry.producer.hex(),
            "position": 0,
        }
        for batch in batches
        for entry in batch
    ]
    for row in found:
        stamp = row["timestamp"]
        row["timestamp"] = round(stamp.timestamp() * 1e6)  # type: ignore[attr-defined]
    assert found == expected


@pytest.mark.parametrize("count", [LARGE_ENTRIES - 1, LARGE_ENTRIES, 3 * LARGE_ENTRIES])
def test_large_and_small_batches_follow_each_other(count: int) -> None:
    small = [batch_of(n, [(b"s%d" % n, None, [])], created=False) for n in range(1, 4)]
    large = batch_of(4, [(b"l%d" % n, b"k", []) for n in range(count)], created=True)
    after = batch_of(4 + count, [(b"end", None, [])], created=False)

    found = rows(
        [*small, large, after], 700, pa.schema([SCHEMA.field("offset"), SCHEMA.field("value")])
    )

    assert [row["offset"] for row in found] == [*range(1, 5 + count)]
    assert found[0]["value"] == b"s1"
    assert found[3]["value"] == b"l0"
    assert found[-1]["value"] == b"end"


def test_only_the_columns_that_are_wanted_are_made_and_nothing_is_copied() -> None:
    batch = batch_of(1, [(bytes(100), None, [])] * LARGE_ENTRIES, created=False)

    (made,) = record_batches([batch], pa.schema([SCHEMA.field("value")]), 2 * LARGE_ENTRIES)

    assert made.schema.names == ["value"]
    body = pa.py_buffer(batch.columns.body)
    values = made.column(0).buffers()[2]
    assert body.address <= values.address < body.address + body.size
