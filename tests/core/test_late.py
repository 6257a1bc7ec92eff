"""Late arrivals: what two ways of numbering make of them, and that no wrong reading passes for right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.tools.late import Read, Verdict, Write, differing, judged, late

A1, A2, B1, C1 = Write(10, 1, 0), Write(20, 1, 1), Write(15, 2, 0), Write(18, 3, 0)
WRITES = [A1, A2, B1, C1]
ROW = [Read(number, write) for number, write in enumerate((A1, B1, A2, C1), 1)]


def test_what_comes_behind_a_later_clock_is_late() -> None:
    assert late([A1, B1, C1, A2]) == 0
    assert late([A2, A1, B1, C1]) == 3
    assert late([A1, A2, B1, C1]) == 2
    assert late([]) == 0


def test_sites_that_number_what_arrives_differ_where_their_orders_do() -> None:
    assert differing([[A1, B1, C1], [A1, B1, C1]]) == 0
    assert differing([[A1, B1, C1], [A1, C1, B1]]) == 2
    assert differing([[A1, B1], [A1, B1], [B1, A1]]) == 2


@given(st.permutations(WRITES))
def test_only_who_reads_by_the_clock_in_its_order_misses_nothing(order: list[Write]) -> None:
    assert (late(order) == 0) == (order == sorted(order))


def test_readers_who_all_have_the_whole_row_are_right() -> None:
    verdict = judged({"m1": ROW, "m2": ROW}, WRITES)

    assert verdict == Verdict(0, 0, 0, 0)
    assert verdict.ok


@pytest.mark.parametrize(
    ("reads", "wrong"),
    [
        ([ROW[0], *ROW[2:]], Verdict(skipped=1, twice=0, reordered=0, different=0)),
        (ROW[:-1], Verdict(skipped=1, twice=0, reordered=0, different=0)),
        ([], Verdict(skipped=4, twice=0, reordered=0, different=0)),
        ([*ROW, Read(5, C1)], Verdict(skipped=0, twice=1, reordered=0, different=0)),
        ([*ROW[:2], *ROW[1:]], Verdict(skipped=0, twice=1, reordered=0, different=0)),
        ([ROW[1], ROW[0], *ROW[2:]], Verdict(skipped=0, twice=0, reordered=1, different=0)),
        (
            [Read(1, A2), Read(2, B1), Read(3, A1), ROW[3]],
            Verdict(skipped=0, twice=0, reordered=1, different=2),
        ),
        (
            [ROW[0], Read(2, C1), ROW[2], Read(4, B1)],
            Verdict(skipped=0, twice=0, reordered=0, different=2),
        ),
        ([*ROW[:3], Read(9, C1)], Verdict(skipped=5, twice=0, reordered=0, different=0)),
    ],
    ids=[
        "a-number",
        "the-last",
        "everything",
        "entry-again",
        "number-again",
        "numbers-go-back",
        "a-writers-entries-swapped",
        "another-order",
        "numbers-jump",
    ],
)
def test_a_reader_who_saw_something_else_is_told(reads: list[Read], wrong: Verdict) -> None:
    """Beside one who saw what he should have."""
    found = judged({"m1": ROW, "m2": reads}, WRITES)

    assert found == wrong
    assert not found.ok


def test_what_nobody_was_shown_is_skipped_by_each() -> None:
    assert judged({"m1": ROW, "m2": ROW}, [*WRITES, Write(30, 2, 1)]).skipped == 2
