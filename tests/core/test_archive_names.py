"""Which numbers make a file of the archive, and what it is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.archivenames import Named, Span, due, gaps, named, span_in, temporary, tidy
from duckrow.node.errors import Refused

NUMBERS = st.integers(1, 200)
SPANS = st.builds(lambda first, more: Span(first, first + more), NUMBERS, st.integers(0, 40))


def spans(kept: int, first: int, size: int, there: tuple[Span, ...] = ()) -> list[tuple[int, int]]:
    """Those that are to be written."""
    return [
        (each.span.first, each.span.last)
        for each in due(kept, first, size, there)
        if not each.there
    ]


def test_files_end_at_multiples_of_the_span() -> None:
    assert spans(1, 31, 10) == [(1, 10), (11, 20), (21, 30)]


def test_the_first_file_begins_where_the_topic_got_its_archive() -> None:
    assert spans(78, 101, 10) == [(78, 80), (81, 90), (91, 100)]


def test_a_span_that_is_not_wholly_pruned_waits() -> None:
    """After the span was changed, `first` may stand inside of one for a while."""
    assert spans(21, 31, 20) == []
    assert spans(21, 41, 20) == [(21, 40)]


def test_nothing_is_due_where_nothing_is_pinned() -> None:
    assert spans(31, 31, 10) == []


def test_a_file_that_is_there_is_taken_as_it_is_wherever_it_was_cut() -> None:
    found = list(due(11, 61, 20, [Span(11, 20), Span(21, 30), Span(51, 60)]))

    assert [(tuple(each.span), each.there) for each in found] == [
        ((11, 20), True),
        ((21, 30), True),
        ((31, 40), False),
        ((41, 50), False),
        ((51, 60), True),
    ]


@given(NUMBERS, NUMBERS, st.integers(1, 30), st.lists(SPANS, max_size=6))
def test_no_number_is_written_twice_and_none_is_left_out(
    kept: int, more: int, size: int, there: list[Span]
) -> None:
    first = kept + more
    found = list(due(kept, first, size, there))
    written = [
        n for each in found if not each.there for n in range(each.span.first, each.span.last + 1)
    ]
    held = {n for span in there for n in range(span.first, span.last + 1)}

    assert len(written) == len(set(written))
    assert not held & set(written)
    assert all(kept <= n < first for n in written)
    reached = found[-1].span.last if found else kept - 1
    assert {n for n in range(kept, reached + 1) if n < first} <= held | set(written)
    assert first - 1 - reached < size


@given(NUMBERS, st.integers(1, 30), st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_files_are_the_same_whenever_the_archiver_comes(
    kept: int, size: int, steps: list[int]
) -> None:
    """Also if it is away while a lot is pruned: `first` moves by whole spans alone."""
    firsts, first = [], kept
    for step in steps:
        first = max(kept, (first + step - 1) // size * size + 1)
        firsts.append(first)
    often: list[tuple[int, int]] = []
    at = kept
    for first in firsts:
        often += spans(at, first, size)
        at = often[-1][1] + 1 if often else kept

    assert often == spans(kept, firsts[-1], size)


@given(st.text("abcXYZ019._-", min_size=1), st.integers(0, 1023), SPANS)
def test_a_path_says_topic_partition_and_numbers(topic: str, partition: int, span: Span) -> None:
    name = Named(topic, partition, span)

    assert named(name.path) == name


def test_names_are_as_the_page_says() -> None:
    name = Named("rides", 0, Span(1, 65_536))

    assert name.path == (
        "topic=rides/partition=0/00000000000000000001-00000000000000065536.parquet"
    )
    assert temporary(name.path, "m 1") == (
        "topic=rides/partition=0/.00000000000000000001-00000000000000065536.parquet.m%201.tmp"
    )


@pytest.mark.parametrize(
    "name",
    [
        ".00000000000000000001-00000000000000000010.parquet.m1.tmp",
        "00000000000000000001-00000000000000000010.parquet.tmp",
        "1-10.parquet",
        "00000000000000000010-00000000000000000001.parquet",
        "00000000000000000000-00000000000000000001.parquet",
        "_SUCCESS",
    ],
)
def test_other_files_are_no_part_of_the_archive(name: str) -> None:
    assert span_in(name) is None
    assert named(f"topic=t/partition=0/{name}") is None


def test_gaps_are_what_no_file_has() -> None:
    files = [Span(41, 50), Span(1, 10), Span(11, 20), Span(31, 50)]

    assert gaps(files) == [Span(21, 30)]
    assert tidy(files) == [Span(1, 10), Span(11, 20), Span(31, 50)]


def test_a_span_of_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="a span of 0 entries"):
        list(due(1, 10, 0))
