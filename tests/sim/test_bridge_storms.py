"""What a node says of what it was given holds, whatever happens between it and its bridge."""

from __future__ import annotations

from collections import Counter

import pytest

from duckrow.node.effects import Code, Result
from duckrow.node.unsettled import Unsettled

from .applied import applied
from .bridgestorm import NOT_WRITTEN, Order, storm


def seeds(first: int, count: int) -> list[Order]:
    orders: list[Order] = []
    for seed in range(first, first + count):
        with applied() as row:
            try:
                orders += storm(seed, row).orders.values()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
    return orders


def test_what_a_node_says_holds_whatever_is_cut_or_dies_between_it_and_its_bridge() -> None:
    told: Counter[object] = Counter()
    for order in seeds(0, 12):
        for outcome in order.outcomes:
            told[outcome.code if isinstance(outcome, Result) else type(outcome)] += 1
    assert told[Code.ORDERED] > 500
    assert told[Code.WAITING] > 100, "accepted"
    assert all(told[kind] > 10 for kind in NOT_WRITTEN), told


def test_who_believes_a_refusal_of_what_a_bridge_was_given_twice_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Unsettled, "is_doubted", lambda _unsettled, _head: False)
    with pytest.raises(AssertionError, match="never written"):
        seeds(2, 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_what_a_node_says_holds_in_many_storms() -> None:
    seeds(100, 300)
