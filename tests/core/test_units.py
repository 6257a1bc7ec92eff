"""Units: sizes, durations and shares, as they are written and as they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.errors import Refused
from duckrow.node.limits import NUMBER_LIMIT
from duckrow.node.units import (
    read_duration,
    read_share,
    read_size,
    show_duration,
    show_share,
    show_size,
)

NUMBERS = st.one_of(
    st.integers(0, NUMBER_LIMIT - 1),
    st.integers(0, 5_000).map(lambda n: n << 20),
    st.integers(0, 5_000).map(lambda n: n * 60_000_000),
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("1.5GiB", 3 << 29),
        ("10MB", 10_000_000),
        ("3kB", 3_000),
        ("3KB", 3_000),
        ("2TiB", 2 << 40),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("3", 3),
        ("0.5", 0.5),
        ("3s", 3),
        ("500ms", 0.5),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("10m", 600),
        ("10min", 600),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("2H", 7200),
    ],
)
def test_a_duration_is_read_in_microseconds(text: str, seconds: float) -> None:
    assert read_duration(text) == round(seconds * 1_000_000)


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.02", 0.02), ("100%", 1), ("0", 0)])
def test_a_share_is_read(text: str, share: float) -> None:
    assert read_share(text) == share


@pytest.mark.parametrize(
    "text", ["", " ", "MiB", "-1", "1e3", "64MiBs", "1MiB 2", "1MiB2KiB", "0.5", "1,000", "٣MiB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a size, such as 64MiB"):
        read_size(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "-3s",
        "3 years",
        "1h30",
        "30 1h",
        "0.1us",
        "9" * 30,
        f"{NUMBER_LIMIT}us",
        "inf",
        "nan",
        "3s\n",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a duration, such as"):
        read_duration(text)


@pytest.mark.parametrize("text", ["", "%", "2", "101%", "-1%", "a%", "0.1.2"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="no share of a whole"):
        read_share(text)


@given(NUMBERS)
def test_what_is_shown_is_read_as_the_same(number: int) -> None:
    assert read_size(show_size(number)) == number
    assert read_duration(show_duration(number)) == number


@given(st.integers(0, 10_000))
def test_a_share_that_is_shown_is_read_as_the_same(points: int) -> None:
    assert read_share(show_share(points / 10_000)) == points / 10_000


def test_what_is_shown_is_as_short_as_can_be() -> None:
    assert [show_size(size) for size in (0, 1000, 1 << 10, 64 << 20, 5 << 50)] == (
        ["0", "1000", "1KiB", "64MiB", "5PiB"]
    )
    assert [show_duration(round(s * 1e6)) for s in (0, 0.05, 3, 60, 90, 86_400, 604_800)] == (
        ["0s", "50ms", "3s", "1m", "90s", "1d", "7d"]
    )
    assert [show_share(share) for share in (0, 0.02, 0.005, 1)] == ["0%", "2%", "0.5%", "100%"]
