"""Experiments: their cases, and that nothing which anybody saw wrongly is called right."""

from __future__ import annotations

import pytest

from duckrow.tools.matrix import Case, Outcome, Seen, cases, is_right

CASE = Case(producers=2, consumers=2, topics=1, entries=2, rate=0, think=0)
ROW = [Seen(0, 0, 1, 0.1), Seen(1, 0, 2, 0.1), Seen(1, 1, 3, 0.1), Seen(0, 1, 4, 0.1)]


def outcome(*rows: list[Seen], errors: tuple[Exception, ...] = ()) -> Outcome:
    return Outcome(1.0, [list(rows)], [len(ROW)], errors)


def test_all_combinations_are_tried() -> None:
    found = list(cases([1, 2], [1, 7], [3], 5, [0.0, 10.0], [0.0]))

    assert len(found) == len(set(found)) == 8
    assert {(c.producers, c.consumers, c.topics, c.entries) for c in found} == (
        {(1, 1, 3, 5), (1, 7, 3, 5), (2, 1, 3, 5), (2, 7, 3, 5)}
    )


def test_everybody_who_saw_the_same_whole_row_is_right() -> None:
    assert is_right(CASE, outcome(ROW, ROW))
    later = [seen._replace(seconds=9.0) for seen in ROW]
    assert is_right(CASE, outcome(ROW, later))


@pytest.mark.parametrize(
    "row",
    [
        ROW[:-1],
        [],
        [*ROW, ROW[-1]],
        [ROW[1], ROW[0], *ROW[2:]],
        [ROW[0]._replace(entry=1), *ROW[1:3], ROW[3]._replace(entry=0)],
        [ROW[0], ROW[1], ROW[2], ROW[3]._replace(number=3)],
        [*ROW[:3], ROW[3]._replace(producer=2)],
        [*ROW[:3], ROW[3]._replace(number=5)],
    ],
    ids=["lost", "nothing", "twice", "numbers", "order", "same-number", "stranger", "gap"],
)
def test_a_row_that_is_not_whole_and_in_order_is_wrong(row: list[Seen]) -> None:
    assert not is_right(CASE, outcome(row, row))
    assert not is_right(CASE, outcome(ROW, row))


def test_consumers_who_saw_different_rows_are_wrong() -> None:
    other = [
        seen._replace(number=number)
        for number, seen in enumerate((ROW[1], ROW[0], ROW[2], ROW[3]), 1)
    ]

    assert is_right(CASE, outcome(other, other))
    assert not is_right(CASE, outcome(ROW, other))


def test_each_of_three_producers_is_looked_at_alone() -> None:
    case = CASE._replace(producers=3)
    row = [Seen(p, e, 1 + p + 3 * e, 0.1) for e in range(2) for p in range(3)]

    assert is_right(case, outcome(row, row)._replace(stored=[6]))
    assert not is_right(CASE, outcome(row, row)._replace(stored=[6]))


@pytest.mark.parametrize("stored", [[5], [3], [], [4, 4]])
def test_an_entry_that_is_there_once_more_behind_all_others_is_wrong(stored: list[int]) -> None:
    assert not is_right(CASE, outcome(ROW, ROW)._replace(stored=stored))


def test_an_error_is_wrong_whatever_was_seen() -> None:
    assert not is_right(CASE, outcome(ROW, ROW, errors=(OSError("x"),)))
