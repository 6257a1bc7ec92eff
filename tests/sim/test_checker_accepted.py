"""The checker, on entries that were accepted, and that nobody but one node was to have ordered."""

from __future__ import annotations

from duckrow.cluster.checker import check
from duckrow.cluster.history import History, Produce, Prune

from .histories import KEY, pruned, ten_entries


def accept(history: History, outcome: str = "info") -> Produce:
    """One more entry, of which nothing was ever seen again."""
    made = Produce("g", KEY, ["w"], 30.0, 31.0, outcome, accepted_at="a")
    history.produces.append(made)
    return made


def pruned_up_to_three() -> History:
    history = pruned(4)
    history.prunes.append(Prune(KEY, 3, 0.0, "ok"))
    return history


def test_what_was_accepted_and_is_nowhere_is_lost() -> None:
    history = ten_entries()
    accept(history)

    assert check(history).kinds == ["accepted-lost"]


def test_what_was_accepted_and_is_there_is_right() -> None:
    history = ten_entries()
    accept(history)
    for contents in history.finals.values():
        contents[KEY].values = [*contents[KEY].values, "w"]

    assert str(check(history)) == ""


def test_what_was_accepted_and_then_refused_or_may_still_wait_for_room_is_right() -> None:
    history = ten_entries()
    accept(history, "fail")
    accept(history).values = ["x"]
    history.produces[-1].may_wait = True

    assert str(check(history)) == ""


def test_what_was_accepted_is_lost_with_the_disk_of_its_node_only() -> None:
    history = ten_entries()
    accept(history)
    history.forgetful = ["b"]
    assert check(history).kinds == ["accepted-lost"]

    history.forgetful = ["a", "b"]
    assert str(check(history)) == ""


def test_what_was_accepted_may_be_among_what_was_pruned_before_anybody_saw_it() -> None:
    history = pruned_up_to_three()
    accept(history)
    history.produces[1].outcome, history.produces[1].first = "info", 0
    history.pulls.clear()

    assert str(check(history)) == ""


def test_what_was_accepted_is_not_among_what_was_pruned_where_all_of_that_was_seen() -> None:
    history = pruned_up_to_three()
    accept(history)

    assert check(history).kinds == ["accepted-lost"]
