"""The checker, on commits, on batches that may follow one number only, and on damage that was told."""

from __future__ import annotations

import pytest

from duckrow.cluster.checker import check
from duckrow.cluster.history import Content, History, Produce, Pull

from .histories import KEY, ten_entries, values

OTHER = ("rides", 1)


def committed(outcome: str = "ok", *, here: bool = True, there: bool = True) -> History:
    """Two batches of one commit, in two partitions, which nobody has read before the end."""
    history = ten_entries()
    for key, value in ((KEY, "x"), (OTHER, "y")):
        batch = Produce("w", key, [value], 30.0, 31.0, outcome, together="w/1")
        history.produces.append(batch)
    for contents in history.finals.values():
        contents[KEY].values = [*contents[KEY].values, *(["x"] if here else [])]
        contents[OTHER] = Content(1, ["y"] if there else [])
    return history


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_a_commit_that_is_there_as_a_whole_is_right(outcome: str) -> None:
    assert check(committed(outcome)).ok


def test_a_commit_of_unknown_outcome_may_be_nowhere() -> None:
    assert check(committed("info", here=False, there=False)).ok


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_half_a_commit_is_torn(outcome: str) -> None:
    assert check(committed(outcome, there=False)).kinds == ["torn-commit"]


def test_a_commit_that_was_answered_has_to_be_there() -> None:
    assert check(committed(here=False, there=False)).kinds == ["torn-commit"]


def test_a_batch_that_was_never_committed_must_not_be_seen() -> None:
    assert check(committed("fail")).kinds == ["refused-yet-read"]


def test_a_staged_batch_must_not_be_seen_before_its_commit() -> None:
    history = committed()
    history.pulls.append(Pull("c", OTHER, 0, 28.0, 29.0, "ok", "a", [1], ["y"]))

    assert check(history).kinds == ["future-read"]


def test_what_was_pruned_may_have_been_committed() -> None:
    history = committed(there=False)
    for contents in history.finals.values():
        contents[OTHER] = Content(2, [])

    assert "torn-commit" not in check(history).kinds


def test_a_batch_behind_the_number_that_it_named_is_right() -> None:
    history = ten_entries()
    history.produces[4].expected = 4

    assert check(history).ok


def test_a_batch_behind_another_number_than_it_named_is_in_another_place() -> None:
    history = ten_entries()
    history.produces[4].expected = 3

    assert check(history).kinds == ["other-place"]


@pytest.mark.parametrize(
    ("last", "kinds"), [(4, ["false-conflict"]), (2, ["false-conflict"]), (6, [])]
)
def test_a_batch_is_refused_only_when_another_number_is_the_last(
    last: int, kinds: list[str]
) -> None:
    history = ten_entries()
    batch = Produce("r", KEY, ["x"], 4.6, 5.5, "fail", expected=4, conflict=last)
    history.produces.append(batch)

    assert check(history).kinds == kinds


def damaged(number: int) -> History:
    history = ten_entries()
    for node in history.finals:
        values(history, node)[number - 1] = None
    return history


def test_an_entry_that_is_told_to_be_damaged_is_not_lost() -> None:
    assert check(damaged(5)).ok


def test_an_entry_that_nobody_told_of_is_lost() -> None:
    history = ten_entries()
    for contents in history.finals.values():
        contents[KEY] = Content(1, contents[KEY].values[:9])

    assert check(history).kinds == ["lost", "lost-observed"]


def test_where_the_row_is_said_to_end_what_lies_behind_is_told() -> None:
    history = ten_entries()
    history.broken = 50.0
    for contents in history.finals.values():
        contents[KEY] = Content(1, contents[KEY].values[:9])

    assert check(history).ok


def test_also_of_a_row_that_ends_no_entry_may_be_another_one() -> None:
    history = ten_entries()
    history.broken = 50.0
    for node in history.finals:
        values(history, node)[4] = "v9"

    assert "divergent" in check(history).kinds
