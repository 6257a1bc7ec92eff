"""Pace: how many bytes of its own a member has under way (B1)."""

from __future__ import annotations

from duckrow.bridge.pace import FIRST, LEAST, Pace
from duckrow.node.limits import ORIGIN_BYTES_MAX


def test_what_is_used_and_delivered_soon_is_doubled_up_to_the_limit() -> None:
    pace = Pace(0.4)
    pace.delivered(FIRST, 0.1)
    assert pace.bytes == 2 * FIRST
    for _ in range(9):
        pace.delivered(pace.bytes, 0.1)

    assert pace.bytes == ORIGIN_BYTES_MAX


def test_who_has_little_under_way_learns_nothing_of_the_links() -> None:
    pace = Pace(0.4)
    pace.delivered(1000, 0.001)

    assert pace.bytes == FIRST


def test_what_is_delivered_late_is_as_much_as_the_links_carry() -> None:
    pace = Pace(0.4)
    pace.delivered(FIRST, 0.5)

    assert pace.bytes == FIRST


def test_a_view_that_ends_with_some_under_way_leaves_a_quarter_of_that() -> None:
    pace = Pace(0.4)
    pace.dropped(400_000)
    assert pace.bytes == 100_000
    pace.dropped(4_000_000)
    assert pace.bytes == 100_000, "no more than before"
    pace.dropped(1)
    assert pace.bytes == LEAST
    pace.dropped(0)
    assert pace.bytes == LEAST
