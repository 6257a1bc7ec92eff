"""How ranges are cut into the tasks of Spark, and how much of them a batch of a stream takes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, LessThanOrEqual
from pyspark.sql.types import StructType

from pyspark_duckrow import options, ranges
from pyspark_duckrow.batch import FilteringReader
from pyspark_duckrow.filters import Wanted
from pyspark_duckrow.ranges import Range
from pyspark_duckrow.stream import StreamReader
from pyspark_duckrow.topics import Extent

RIDES = Range("rides", 9, 0, 1, 9_001)
STOPS = Range("stops", 8, 0, 40, 1_040)
SIZES = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), st.integers(0, 500))


def numbers(pieces: list[Range]) -> list[tuple[str, int]]:
    return [(each.topic, n) for each in pieces for n in range(each.first, each.next)]


def test_a_range_is_one_task_if_nobody_wants_more() -> None:
    assert ranges.split([RIDES, STOPS], None, None) == [RIDES, STOPS]


def test_large_ranges_are_cut_so_that_there_are_as_many_tasks_as_wanted() -> None:
    assert [each[3:] for each in ranges.split([RIDES, STOPS], 4, None)] == [
        (1, 2251),
        (2251, 4501),
        (4501, 6751),
        (6751, 9001),
        (40, 1040),
    ]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 200)), max_size=5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 40),
)
def test_every_entry_is_in_one_task_and_in_its_place(
    spans: list[tuple[int, int]], least: int | None, most: int | None
) -> None:
    given_ = [
        Range("t", 1, partition, first, first + n) for partition, (first, n) in enumerate(spans)
    ]

    pieces = ranges.split(given_, least, most)

    assert numbers(pieces) == numbers(given_)
    assert all(each.rows for each in pieces)
    assert most is None or all(each.rows <= most for each in pieces)
    assert least is None or len(pieces) >= min(least, len(numbers(given_)))


@given(SIZES, st.integers(1, 1000))
def test_a_batch_takes_what_it_may_and_everybody_gets_a_share(
    behind: dict[tuple[str, int], int], rows: int
) -> None:
    start = dict.fromkeys(behind, 10)
    end = {place: 10 + count for place, count in behind.items()}

    taken = ranges.admitted(start, end, rows)

    total = sum(behind.values())
    assert sum(taken.values()) - 10 * len(taken) == min(rows, total)
    for place, count in behind.items():
        share = taken[place] - 10
        assert 0 <= share <= count
        assert total <= rows or abs(share - count * rows / total) < 1


def test_a_partition_that_is_new_has_no_start_and_waits_for_nobody() -> None:
    assert ranges.admitted({("a", 0): 5}, {("a", 0): 9, ("a", 1): 3}, 2) == {
        ("a", 0): 7,
        ("a", 1): 3,
    }


def test_bytes_are_rows_of_the_usual_size() -> None:
    start, end = {("a", 0): 1, ("b", 0): 1}, {("a", 0): 101, ("b", 0): 101}
    sizes = {("a", 0): 100.0, ("b", 0): 300.0}

    assert ranges.rows_of(start, end, 40_000, sizes) == 200
    assert ranges.rows_of(start, end, 4_000, sizes) == 20
    assert ranges.rows_of(start, end, 1, sizes) == 1


def test_conditions_on_numbers_and_places_decide_what_is_read() -> None:
    wanted = Wanted()

    left = [
        each
        for each in (
            GreaterThan(("offset",), 100),
            LessThanOrEqual(("offset",), 500),
            In(("topic",), ("rides", "other")),
            EqualTo(("partition",), 0),
            IsNotNull(("offset",)),
            LessThan(("value",), b"x"),
        )
        if not wanted.take(each)
    ]

    assert left == [IsNotNull(("offset",)), LessThan(("value",), b"x")]
    assert wanted.of([RIDES, STOPS, RIDES._replace(partition=1)]) == [
        RIDES._replace(first=101, next=501)
    ]


def test_whoever_pushes_conditions_is_told_that_other_queries_of_the_table_meet_them_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told, _ = options.read({"nodes": "m1:3825", "subscribe": "rides"}, options.BATCH)
    reader = FilteringReader(told, StructType())

    assert [*reader.pushFilters([IsNotNull(("offset",))])] == [IsNotNull(("offset",))]
    assert not caplog.messages
    assert [*reader.pushFilters([EqualTo(("offset",), 4)])] == []
    assert "load it anew for each query" in caplog.text


def test_a_condition_that_nothing_meets_leaves_nothing() -> None:
    wanted = Wanted()
    wanted.take(EqualTo(("offset",), 20_000))

    assert wanted.of([RIDES, STOPS]) == []


def test_entries_that_were_pruned_before_a_partition_was_known_do_not_wait_to_be_read() -> None:
    """Ten are there, of a million that were; the query wants a hundred at once."""
    told, _ = options.read(
        {"nodes": "m1:3825", "subscribe": "rides", "minOffsetsPerTrigger": "100"}, options.STREAM
    )
    reader = StreamReader(told, StructType())
    reader._known = {("rides", 0): Extent(7, 1_000_001, 1_000_010, 100.0)}
    reader._grew_at = time.monotonic()

    assert reader._is_too_little({}, reader._ends())
    assert not reader._is_too_little({("rides", 0): 999_000}, reader._ends())
