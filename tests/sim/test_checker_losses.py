"""The checker of histories at levels that may lose: what became known shortly before a loss."""

from __future__ import annotations

from duckrow.cluster.checker import check
from duckrow.cluster.history import Loss, Policy, Produce, Prune, Pull

from .histories import KEY, configure, pruned, read_and_lost, ten_entries, values


def test_what_became_known_shortly_before_a_loss_may_vanish_and_its_numbers_be_used_again() -> None:
    history = ten_entries()
    history.pulls.clear()
    for node in history.finals:
        kept = values(history, node)
        kept[8:] = ["w9", "w10"]
    for number in (9, 10):
        history.produces.append(
            Produce("p", KEY, [f"w{number}"], 20.0, 20.5, "ok", number, "p", 90 + number)
        )
    assert {"lost", "divergent"} <= set(check(history).kinds)

    history.losses.append(Loss(since=9.2, at=12.0))
    assert check(history).ok

    history.losses = [Loss(since=9.7, at=12.0)]  # the ninth was acknowledged at 9.5
    assert check(history).kinds == ["divergent", "lost"]


def test_numbers_that_a_loss_set_free_belong_to_whoever_was_acknowledged_after_it() -> None:
    history = pruned(11)  # in the end nothing is left that would say who had the numbers
    history.prunes.append(Prune(KEY, 10, 1.0, "ok"))
    for number in (9, 10):
        history.produces.append(
            Produce("p", KEY, [f"w{number}"], 24.0, 24.5, "ok", number, "p", 90 + number)
        )
    assert "divergent" in check(history).kinds

    history.losses.append(Loss(since=8.9, at=23.5))
    assert check(history).ok


def test_what_was_gone_before_a_loss_says_nothing_of_the_entries_with_its_number_now() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 22.0, "ok"))
    assert check(history).kinds == ["early-prune"]  # seen at 21

    history.losses.append(Loss(since=20.0, at=21.9))
    assert check(history).ok


def test_where_pruning_stood_before_a_loss_binds_nobody_after_it() -> None:
    history = pruned(3)
    configure(history, Policy(max_entries=8))
    told = ["v9", "v10"]  # by a prune that the loss took
    history.pulls.append(Pull("d", KEY, 0, 10.6, 10.7, "ok", "a", range(9, 11), told, 8))
    assert check(history).kinds == ["early-prune", "first-went-back"]

    history.losses.append(Loss(since=9.0, at=11.0))
    assert check(history).ok


def test_a_policy_that_was_lost_with_the_power_need_not_be_kept() -> None:
    history = ten_entries()
    configure(history, Policy(max_entries=9))
    assert check(history).kinds == ["overfull"]

    history.losses.append(Loss(since=0.0, at=0.9))
    assert check(history).ok


def test_a_refusal_that_was_lost_with_the_power_says_nothing() -> None:
    """A batch that waited was withdrawn; with the power the withdrawal went, and it got numbers."""
    history = ten_entries()
    history.produces[9].outcome, history.produces[9].ended = "fail", 10.5
    assert check(history).kinds == ["refused-yet-read"]

    history.losses.append(Loss(since=10.0, at=11.0))
    assert check(history).ok

    history.losses = [Loss(since=10.6, at=11.0)]
    assert check(history).kinds == ["refused-yet-read"]


def test_what_a_loss_took_has_no_bytes_in_the_end() -> None:
    """Its numbers were used again, by others who count for themselves."""
    history = ten_entries()
    history.pulls.clear()
    configure(history, Policy(max_bytes=1000))
    for number in (9, 10):
        history.produces.append(
            Produce("p", KEY, [f"w{number}"], 20.0, 20.5, "ok", number, "p", 90 + number)
        )
        for node in history.finals:
            values(history, node)[number - 1] = f"w{number}"
    for produce in history.produces:
        produce.size = 100
    history.losses.append(Loss(since=9.2, at=12.0))
    assert check(history).ok

    history.produces[0].size = 101
    assert check(history).kinds == ["overfull"]


def test_a_read_before_the_loss_window_must_hold() -> None:
    history = ten_entries()
    read_and_lost(history)
    history.losses.append(Loss(since=10.0, at=50.0))
    assert check(history).ok

    history.losses = [Loss(since=30.0, at=50.0)]  # read at 20
    assert check(history).kinds == ["lost-observed"]


def test_nobody_waits_for_an_entry_that_may_have_vanished() -> None:
    history = ten_entries()
    pull = Pull("d", KEY, 10, 30.0, 32.0, "ok", "a")
    history.pulls.append(pull)
    history.produces.append(Produce("p", KEY, ["gone"], 23.0, 23.5, "ok", 11, "p", 9))
    assert "stuck-pull" in check(history).kinds

    history.losses.append(Loss(since=23.0, at=29.0))
    assert check(history).ok
