"""What many times come to: percentiles, averages, histograms, and a line for the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.tools.samples import (
    BLOCKS,
    edges,
    histogram,
    moving_average,
    percentile,
    sparkline,
    stretches,
)

TIMES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("part", "value"), [(0.0, 1), (0.5, 50), (0.9, 90), (0.99, 99), (0.991, 100), (1.0, 100)]
)
def test_a_percentile_of_one_to_a_hundred_is_its_number(part: float, value: int) -> None:
    assert percentile(range(1, 101), part) == value


@given(TIMES, st.floats(0, 1))
def test_a_percentile_is_a_value_that_so_many_are_not_above(times: list[float], p: float) -> None:
    times.sort()
    found = percentile(times, p)

    assert found in times
    assert sum(each <= found for each in times) >= p * len(times) - 1e-6


def test_a_moving_average_begins_with_what_there_is() -> None:
    assert moving_average([4, 2, 6, 8, 10], 3) == [4, 3, 4, 16 / 3, 8]
    assert moving_average([4, 2], 1) == [4, 2]


@given(TIMES, st.integers(1, 30))
def test_every_value_is_in_the_bin_that_says_so(times: list[float], bins: int) -> None:
    found = histogram(times, edges(min(times), max(times), bins))

    assert [each.low for each in found[1:]] == [each.high for each in found[:-1]]
    assert sum(each.times for each in found) == len(times)
    for each in found[:-1]:
        assert each.times == sum(each.low <= value < each.high for value in times)


def test_bins_grow_by_the_same_factor() -> None:
    assert edges(1, 100, 2) == pytest.approx([1, 10, 100])
    assert edges(5, 5, 20) == [5, 5]
    assert histogram([5, 5], edges(5, 5, 20)) == [(5, 5, 2)]


def test_stretches_have_the_medians_of_all_values_in_their_order() -> None:
    assert stretches([1, 9, 2, 3, 3, 99], 2) == [2, 3]
    assert stretches([3, 1, 2], 5) == [3, 1, 2]


def test_a_spark_is_twice_as_high_for_twice_as_much() -> None:
    assert sparkline([0, 1, 2, 4, 8, 16], 16) == "▁▁▂▃▅█"
    assert sparkline([7], 7) == BLOCKS[-1]
