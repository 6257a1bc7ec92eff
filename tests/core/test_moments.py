"""Moments: times as RFC 3339 has them, and the ways to say where a reader begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.cursors import FIRST, LAST, Back, Cursor
from duckrow.node.errors import Refused
from duckrow.tools.moments import read_after, read_time, show_time

NOON = 1_795_003_200_000_000  # 2026-11-18T12:00:00Z


@given(st.integers(0, 250_000_000_000_000_000))
def test_a_time_is_read_as_it_is_shown(us: int) -> None:
    assert read_time(show_time(us)) == us


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_times_that_are_shown_sort_as_they_are(a: int, b: int) -> None:
    assert (show_time(a) <= show_time(b)) or a > b


def test_a_time_is_shown_in_utc_with_microseconds() -> None:
    assert show_time(NOON) == "2026-11-18T12:00:00.000000Z"
    assert show_time(0) == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-18T12:00:00Z",
        "2026-11-18T12:00",
        "2026-11-18 12:00:00",
        "2026-11-18T13:00:00+01:00",
    ],
)
def test_a_time_may_be_shorter_and_elsewhere(text: str) -> None:
    assert read_time(text) == NOON


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "1969-12-31", "2026-11-18T12:00:00ZZ"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read_time(text)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("first", FIRST),
        ("last", LAST),
        ("-10", Back(10)),
        ("0", 0),
        ("1234", 1234),
        ("2026-11-18T12:00:00Z", Cursor(since=NOON)),
        ("2026-11-18", Cursor(since=NOON - 43_200_000_000)),
        ("10m", Cursor(since=NOON - 600_000_000)),
        ("1h30m", Cursor(since=NOON - 5_400_000_000)),
        ("3000w", Cursor(since=0)),
    ],
)
def test_where_a_reader_begins_is_read(text: str, after: object) -> None:
    assert read_after(text, NOON) == after


@pytest.mark.parametrize(
    "text", ["", "-0", "--1", "newest", "1.5", str(1 << 63), "2026-99-99", "٣"]
)
def test_what_is_no_place_to_begin_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read_after(text, NOON)
