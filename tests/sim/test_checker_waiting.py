"""The checker: who waits in calm times for what is there, or was there until something let it go."""

from __future__ import annotations

from duckrow.cluster.checker import check
from duckrow.cluster.history import Configured, Policy, Prune, Pull

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
