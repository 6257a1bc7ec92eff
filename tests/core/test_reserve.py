"""When a disk is full, and when it is not any more."""

from __future__ import annotations

import pytest

from duckrow.node.reserve import HARD, OK, SOFT, judge


@pytest.mark.parametrize(
    ("state", "free", "then"),
    [
        (OK, 100, OK),
        (OK, 99, SOFT),
        (SOFT, 199, SOFT),
        (SOFT, 200, OK),
        (OK, 150, OK),
        (HARD, 10_000, HARD),  # until the file is there again
        (HARD, 0, HARD),
    ],
)
def test_the_reserve_is_left_at_once_and_entered_again_late(
    state: str, free: int, then: str
) -> None:
    assert judge(state, free, 100) == then
