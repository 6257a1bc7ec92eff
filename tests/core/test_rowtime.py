"""The time of the row: a majority's clock, and the times of entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.rowkit import BOB, NOW, SECOND, Row
from duckrow.node.state import State


def test_alone_the_time_of_the_row_is_the_clock_of_the_node() -> None:
    row = Row()
    row.tick(5)

    assert row.state.row_time == NOW + 5 * SECOND


def test_the_time_of_the_row_never_goes_back() -> None:
    row = Row()
    row.tick(5)
    row.tick(-60)

    assert row.state.row_time == NOW + 5 * SECOND
    assert row.state.member_stamps() == {1: NOW - 55 * SECOND}, "but the last stamp is the last"


def test_more_than_half_of_the_weight_has_to_have_come_so_far() -> None:
    row = Row((1, 1), (2, 1), (3, 1))
    row.item(origin=1, stamp=NOW + 90)
    assert row.state.row_time == 0, "one of three says nothing"
    row.item(origin=2, stamp=NOW + 50)
    assert row.state.row_time == NOW + 50
    row.item(origin=3, stamp=NOW + 70)
    assert row.state.row_time == NOW + 70


def test_one_clock_that_is_years_ahead_moves_nothing() -> None:
    row = Row((1, 1), (2, 1), (3, 1))
    for origin in (1, 2, 3):
        row.item(origin=origin, stamp=NOW + origin)
    row.item(origin=3, stamp=NOW * 2)

    assert row.state.row_time == NOW + 2


def test_half_of_the_weight_is_not_more_than_half() -> None:
    row = Row((1, 1), (2, 1))
    row.item(origin=1, stamp=NOW + 9)
    assert row.state.row_time == 0
    row.item(origin=2, stamp=NOW + 3)
    assert row.state.row_time == NOW + 3


def test_weights_count() -> None:
    row = Row((1, 2), (2, 1))
    row.item(origin=2, stamp=NOW + 9)
    assert row.state.row_time == 0
    row.item(origin=1, stamp=NOW + 5)
    assert row.state.row_time == NOW + 5


def test_a_member_without_a_stamp_counts_as_the_time_of_the_row() -> None:
    row = Row((1, 1))
    row.tick()
    row.mark((1, 1), (2, 1), (3, 1))
    row.item(origin=1, stamp=NOW + 99)
    assert row.state.row_time == NOW
    row.item(origin=2, stamp=NOW - 5)
    assert row.state.row_time == NOW
    row.item(origin=3, stamp=NOW + 40)
    assert row.state.row_time == NOW + 40


def test_stamps_are_kept_for_members_of_the_last_mark_alone() -> None:
    row = Row((1, 1), (2, 1), (3, 1))
    for origin in (1, 2, 3):
        row.item(origin=origin, stamp=NOW + origin)
    row.mark((1, 1), (3, 1), (4, 1))
    assert row.state.member_stamps() == {1: NOW + 1, 3: NOW + 3, 4: None}
    row.mark((1, 1), (2, 1), (3, 1))

    assert row.state.member_stamps() == {1: NOW + 1, 2: None, 3: NOW + 3}


def test_a_mark_that_leaves_out_the_slow_moves_the_time() -> None:
    row = Row((1, 1), (2, 1), (3, 1))
    row.item(origin=1, stamp=NOW + 50)
    row.mark((1, 1))

    assert row.state.row_time == NOW + 50


def test_a_stamp_of_a_stranger_counts_for_nothing() -> None:
    row = Row((1, 1), (2, 1), (3, 1))
    for _ in range(3):
        row.item(origin=9, stamp=NOW)

    assert row.state.row_time == 0
    assert row.state.stamps == {}


def test_members_without_any_weight_move_nothing() -> None:
    row = Row((1, 0), (2, 0))
    row.item(origin=1, stamp=NOW)
    row.item(origin=2, stamp=NOW)

    assert row.state.row_time == 0


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=30),
)
def test_the_time_of_the_row_is_what_its_definition_says(
    weights: list[int], stamps: list[tuple[int, int]]
) -> None:
    row = Row(*enumerate(weights))
    last: dict[int, int] = {}
    time = 0
    for origin, stamp in stamps:
        row.item(origin=origin, stamp=stamp)
        if origin < len(weights):
            last[origin] = stamp
        reached = [
            t
            for t in range(60)
            if 2 * sum(w for i, w in enumerate(weights) if last.get(i, time) >= t) > sum(weights)
        ]
        time = max([time, *reached])

        assert row.state.row_time == time


def test_an_entry_has_the_time_of_the_clock_of_its_node() -> None:
    row = Row()
    row.tick()

    assert row.produce(time=NOW - 3 * SECOND).time == NOW - 3 * SECOND


def test_an_entry_is_not_older_than_the_one_before_it() -> None:
    row = Row()
    row.produce(time=NOW)
    result = row.produce(time=NOW - SECOND)

    assert result.time == NOW
    assert row.produce("u", time=NOW - SECOND).time == NOW - SECOND, "of its partition"


def test_an_entry_is_at_most_30_seconds_past_the_time_of_the_row() -> None:
    row = Row()
    row.tick()

    assert row.produce(time=NOW + 30 * SECOND).time == NOW + 30 * SECOND
    assert row.produce("u", time=NOW * 2).time == NOW + 30 * SECOND


def test_until_a_majority_told_its_time_entries_have_the_time_of_their_node() -> None:
    """Or the first entries of a new cluster would be of 1970, and age would take them at once."""
    row = Row((1, 1), (2, 1), (3, 1))
    result = row.produce(time=NOW, pid=BOB)

    assert row.state.row_time == 0
    assert result.time == NOW


@pytest.mark.parametrize("count", [1, 50])
def test_times_are_kept_when_everything_was_pruned(count: int) -> None:
    row = Row()
    row.produce(count=count, time=NOW + 5 * SECOND)
    row.prune(count)

    assert row.produce(time=NOW).time == NOW + 5 * SECOND


def test_a_fresh_state_has_no_time_and_no_members() -> None:
    assert (State().row_time, State().member_stamps()) == (0, {})
