"""What a user may ask for: what cannot be is refused before it goes out, and says why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from duckrow.node import asks
from duckrow.node.errors import Refused
from duckrow.node.limits import NUMBER_LIMIT


def pull(**asked: Any) -> None:
    usual = {"after": 0, "partition": None, "limit": 1, "max_bytes": 1, "wait": 0, "topic_id": 0}
    asks.pull("t", timeout=None, **{**usual, **asked})


@pytest.mark.parametrize(
    "asked",
    [
        {"after": NUMBER_LIMIT},
        {"after": -NUMBER_LIMIT},
        {"after": 1 << 70},
        {"after": {0: NUMBER_LIMIT}},
        {"after": {-1: 3}},
        {"limit": 0},
        {"limit": NUMBER_LIMIT},
        {"max_bytes": 1 << 23},
        {"partition": -1},
        {"partition": 1 << 70},
        {"topic_id": 1 << 70},
        {"wait": -1},
        {"wait": math.nan},
    ],
)
def test_a_pull_that_no_head_can_hold_does_not_go_out(asked: dict[str, Any]) -> None:
    """The node would hang up, and so would every node after it, until there is no more time."""
    with pytest.raises(Refused):
        pull(**asked)


@pytest.mark.parametrize("asked", [{"limit": 1.5}, {"limit": True}, {"partition": "0"}])
def test_what_is_no_whole_number_is_called_so(asked: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="is a whole number, and not"):
        pull(**asked)


def test_the_largest_numbers_go_out_and_who_waits_for_ever_waits_for_long() -> None:
    pull(after=NUMBER_LIMIT - 1, limit=NUMBER_LIMIT - 1, partition=NUMBER_LIMIT - 1)
    pull(after=1 - NUMBER_LIMIT)
    wish = asks.pull("t", 0, None, 1, 1, math.inf, 0, None)

    assert wish.wait == asks.WAIT_SECONDS_MAX


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"max_age": "1h"}, "max_age is '1h', and it has to be a number of seconds"),
        ({"max_age": math.inf}, "max_age is inf"),
        ({"max_age": -1}, "max_age is -1"),
        ({"max_entries": 1 << 70}, "max_entries is 1180591620717411303424, and it has to be"),
        ({"when_full": "no"}, "when_full is 'no', and it has to be one of drop-oldest, reject"),
        ({"entries": 1}, "there is no policy 'entries'; there are max_age, max_entries"),
    ],
)
def test_a_policy_that_cannot_be_is_told_with_what_can(policy: dict[str, Any], why: str) -> None:
    for ask in (asks.create_topic, asks.set_topic):
        with pytest.raises(Refused, match=why) as refused:
            ask("t", policy)

        assert type(refused.value) is Refused
        assert refused.value.values()
