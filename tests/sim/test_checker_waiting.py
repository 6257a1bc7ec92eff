"""The checker: who waits in calm times for what is there, or was there until something let it go."""

from __future__ import annotations

import pytest

from duckrow.cluster.checker import check
from duckrow.cluster.history import Configured, Policy, Produce, Prune, Pull

from .histories import KEY, ten_entries

NEVER = float("inf")


def stuck(pull: Pull, policy: Policy | None = None, prune: Prune | None = None) -> list[str]:
    """What is said of a pull that nobody answered; all ten entries are gone in the end."""
    history = ten_entries()
    history.pulls = [pull]
    history.finals.clear()
    if policy is not None:
        history.configured.append(Configured(KEY[0], policy, 0.0, 0.5))
    if prune is not None:
        history.prunes.append(prune)
    return check(history).kinds


def waits(began: float, after: int = 9) -> Pull:
    return Pull("c", KEY, after, began, NEVER, wait=50.0)


def test_whoever_comes_when_all_that_was_there_has_gone_by_age_waits() -> None:
    assert stuck(waits(25.0), Policy(max_age=10.0)) == []


def test_whoever_comes_when_all_that_was_there_was_pruned_waits() -> None:
    assert stuck(waits(25.0), prune=Prune(KEY, 10, 24.0, "ok")) == []


def test_whoever_waits_while_something_is_young_enough_is_stuck() -> None:
    assert stuck(waits(15.0), Policy(max_age=10.0)) == ["stuck-pull"]


def test_whoever_waited_already_when_it_came_is_stuck_although_it_has_gone_since() -> None:
    assert stuck(waits(5.0), Policy(max_age=1.5)) == ["stuck-pull"]
    assert stuck(waits(5.0), prune=Prune(KEY, 10, 24.0, "ok")) == ["stuck-pull"]


def test_whoever_waits_for_what_stays_is_stuck() -> None:
    assert stuck(waits(25.0), prune=Prune(KEY, 9, 24.0, "ok")) == ["stuck-pull"]
    assert stuck(waits(25.0), Policy(max_entries=1)) == ["stuck-pull"]


@pytest.mark.parametrize(
    ("ended", "kinds"),
    [(30.0, []), (29.9995, []), (30.5, []), (25.0, ["short-wait"]), (30.6, ["long-wait"])],
)
def test_who_finds_nothing_waits_as_long_as_he_wanted_to(ended: float, kinds: list[str]) -> None:
    """In 10 seeds of which no pull ever waited, and in 5 of which all did for too long, nothing was met."""
    history = ten_entries()
    history.pulls.append(Pull("c", KEY, 10, 25.0, ended, "ok", wait=5.0))

    assert check(history).kinds == kinds


def test_whoever_cannot_wait_or_finds_something_comes_back_at_once() -> None:
    history = ten_entries()
    history.pulls.append(Pull("c", KEY, 10, 25.0, 25.1, "ok"))
    history.pulls.append(Pull("c", KEY, 9, 25.0, 25.1, "ok", "a", [10], ["v10"], wait=5.0))

    assert str(check(history)) == ""


def test_nobody_waits_for_sure_while_it_is_not_calm() -> None:
    history = ten_entries()
    history.pulls.append(Pull("c", KEY, 10, 61.0, 61.1, "ok", wait=5.0))
    history.pulls.append(Pull("c", KEY, 10, 58.0, 70.0, "ok", wait=5.0))

    assert str(check(history)) == ""


@pytest.mark.parametrize(
    ("ended", "kinds"), [(30.9, []), (NEVER, ["stuck-produce"]), (40.0, ["stuck-produce"])]
)
def test_who_waits_for_room_is_told_when_others_read_what_was_his(
    ended: float, kinds: list[str]
) -> None:
    """In 5 seeds nobody who had waited for room was ever told of his number, and nothing was met."""
    history = ten_entries()
    waits = Produce("p", KEY, ["late"], 10.0, ended, may_wait=True)
    history.produces.append(waits)
    history.pulls.append(Pull("c", KEY, 10, 25.0, 30.0, "ok", "a", [11], ["late"]))
    for contents in history.finals.values():
        contents[KEY].values = [*contents[KEY].values, "late"]
    assert check(history).kinds == kinds

    waits.may_repeat = True
    assert check(history).kinds == []

    waits.may_repeat, waits.in_part = False, True
    assert check(history).kinds == [], "another part of the call may wait (seed 4315)"


def test_who_waited_for_room_in_worse_times_is_told_when_it_is_calm() -> None:
    history = ten_entries()
    history.calm = [(15.0, 60.0)]
    waits = Produce("p", KEY, ["late"], 11.0, 16.5, may_wait=True)
    history.produces.append(waits)
    history.pulls.append(Pull("c", KEY, 10, 11.5, 12.0, "ok", "a", [11], ["late"]))
    for contents in history.finals.values():
        contents[KEY].values = [*contents[KEY].values, "late"]
    assert check(history).kinds == ["stuck-produce"]

    waits.ended = 15.9
    assert check(history).kinds == []


def test_who_waits_for_room_and_was_read_by_nobody_may_still_wait() -> None:
    history = ten_entries()
    history.produces.append(Produce("p", KEY, ["late"], 10.0, may_wait=True))

    assert str(check(history)) == ""
