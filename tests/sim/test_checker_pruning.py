"""The checker of histories: what may be pruned, what must be, and what does not come back."""

from __future__ import annotations

import pytest

from duckrow.cluster.checker import check
from duckrow.cluster.history import Configured, Content, History, Loss, Policy, Prune, Pull

from .histories import KEY, Plant, configure, pruned, ten_entries


def jumped(history: History) -> None:
    configure(history, Policy(max_age=60))
    history.skew = 50.0


ALLOWED: list[tuple[str, Plant]] = [
    ("a prune command", lambda h: h.prunes.append(Prune(KEY, 4, 15.0, "ok"))),
    ("one with unknown outcome", lambda h: h.prunes.append(Prune(KEY, 4, 15.0))),
    ("a number of entries", lambda h: configure(h, Policy(max_entries=6))),
    ("a number of bytes", lambda h: configure(h, Policy(max_bytes=600))),
    ("an age", lambda h: configure(h, Policy(max_age=15.0))),
    ("an age, clocks having jumped", jumped),
    (
        "a policy that is over",
        lambda h: configure(h, Policy(max_entries=6), until=12.0),
    ),
]


REFUSED: list[tuple[str, Plant]] = [
    ("nothing", lambda h: None),
    ("a shorter prune", lambda h: h.prunes.append(Prune(KEY, 3, 15.0, "ok"))),
    ("a refused prune", lambda h: h.prunes.append(Prune(KEY, 4, 15.0, "fail"))),
    ("a later prune", lambda h: h.prunes.append(Prune(KEY, 4, 50.0, "ok"))),
    ("a prune of another partition", lambda h: h.prunes.append(Prune(("rides", 1), 9, 1.0))),
    ("more entries", lambda h: configure(h, Policy(max_entries=7))),
    ("more bytes", lambda h: configure(h, Policy(max_bytes=700))),
    ("a greater age", lambda h: configure(h, Policy(max_age=18.0))),
    ("full that refuses", lambda h: configure(h, Policy(max_entries=6, when_full="reject"))),
    ("another topic's", lambda h: h.configured.append(Configured("other", Policy(1.0), 0.0))),
    (
        "a policy that was over before",
        lambda h: configure(h, Policy(max_entries=6), until=7.0),
    ),
]


@pytest.mark.parametrize(("what", "allow"), ALLOWED)
def test_what_something_allowed_may_be_gone(what: str, allow: Plant) -> None:
    history = pruned(5)
    allow(history)

    assert check(history).ok, what


@pytest.mark.parametrize(("what", "allow"), REFUSED)
def test_what_nothing_allowed_is_gone_too_early(what: str, allow: Plant) -> None:
    history = pruned(5)
    allow(history)

    assert check(history).kinds == ["early-prune"], what


def test_one_entry_more_than_allowed_is_too_early() -> None:
    history = pruned(6)
    configure(history, Policy(max_entries=6))

    assert check(history).kinds == ["early-prune"]


def test_a_pruned_entry_does_not_come_back_on_the_same_node() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 1.0, "ok"))
    again = Pull("c", KEY, 0, 30.0, 30.1, "ok", "a", range(1, 11), [f"v{n}" for n in range(1, 11)])
    history.pulls.append(again)
    assert check(history).kinds == ["first-went-back"]

    again.node = "b"  # another node may lag
    assert check(history).ok

    again.node, again.began, again.ended = (
        "a",
        21.05,
        21.2,
    )  # nor is anything known of concurrent pulls
    assert check(history).ok


def test_a_prune_that_was_lost_with_the_power_may_come_back() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 1.0, "ok"))
    for contents in history.finals.values():
        contents[KEY] = Content(4, ["v4", *contents[KEY].values])
    history.losses.append(Loss(since=21.0, at=40.0))
    assert check(history).ok

    history.losses = [Loss(since=22.0, at=40.0)]
    assert check(history).kinds == ["first-went-back"]


def test_a_pruned_entry_does_not_come_back_in_the_end() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 1.0, "ok"))
    for contents in history.finals.values():
        contents[KEY] = Content(4, ["v4", *contents[KEY].values])

    assert check(history).kinds == ["first-went-back"]


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [
        (Policy(max_entries=10), []),
        (Policy(max_entries=9), ["overfull"]),
        (Policy(max_entries=9, when_full="reject"), ["overfull"]),
        (Policy(max_bytes=1000), []),
        (Policy(max_bytes=999), ["overfull"]),
    ],
)
def test_a_bound_that_is_not_kept_is_overfull(policy: Policy, kinds: list[str]) -> None:
    history = ten_entries()
    configure(history, policy)

    assert check(history).kinds == kinds


def test_a_bound_that_came_later_makes_nobody_go_where_the_oldest_stay() -> None:
    history = ten_entries()
    configure(history, Policy())
    history.configured.append(Configured("rides", Policy(None, 9, None, "reject"), 50.0, 51.0))

    assert check(history).ok


def test_a_deleted_topic_need_not_be_there_in_the_end() -> None:
    history = ten_entries()
    history.finals = {"a": {}, "b": {}}
    history.deleted.append(KEY)

    assert check(history).ok


@pytest.mark.parametrize(
    ("number", "began", "first", "kinds"),
    [
        (4, 15.0, 5, []),
        (4, 15.0, 4, ["unpruned"]),
        (99, 15.0, 11, []),
        (99, 15.0, 10, ["unpruned"]),
        (99, 4.6, 5, []),  # the fifth came meanwhile
        (99, 4.6, 4, ["unpruned"]),
        (4, 0.5, 1, []),  # nothing was there
    ],
)
def test_what_was_there_when_it_was_pruned_is_gone_in_the_end(
    number: int, began: float, first: int, kinds: list[str]
) -> None:
    """In 5 seeds no prune command did anything, and nothing was met."""
    history = pruned(first)
    history.pulls.clear()
    history.prunes.append(Prune(KEY, number, began, "ok"))

    assert check(history).kinds == kinds


def test_a_prune_that_nobody_answered_or_that_a_loss_took_may_have_done_nothing() -> None:
    history = ten_entries()
    history.prunes.append(Prune(KEY, 4, 15.0))
    assert check(history).ok

    history.prunes[0].outcome = "ok"
    history.losses.append(Loss(14.0, 16.0))
    assert check(history).ok


def test_a_topic_has_the_policy_that_was_answered_last() -> None:
    history = ten_entries()
    configure(history, Policy(max_age=1000.0), until=12.0)
    for contents in history.finals.values():
        contents[KEY].policy = Policy()
    assert check(history).ok

    history.finals["b"][KEY].policy = Policy(max_age=1000.0)
    assert check(history).kinds == ["other-policy"]

    history.configured[-1].ended = float("inf")
    assert check(history).ok, "nobody knows which one is in force"
