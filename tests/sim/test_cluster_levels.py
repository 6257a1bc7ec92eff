"""A durability that an operator changes while machines lose their power, and copies that have to be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import attrs
import pytest

from duckrow.bridge import exactness, standing
from duckrow.bridge.standing import Standing
from duckrow.bridge.syncing import Syncing
from duckrow.node.forms import Start
from duckrow.node.row import Member, View
from duckrow.node.storeoptions import FSYNC, MEMORY, WRITE
from sim.cluster_faults import ClusterFate
from sim.cluster_levels import Levels
from sim.cluster_machine import Machine
from sim.cluster_plan import SETTINGS, ClusterPlan, drawn
from sim.cluster_scenario import run_seed
from sim.cluster_watch import ClusterWatch
from sim.workload import Observed

SET = ClusterPlan(
    seconds=8.0,
    calm=1.0,
    level=WRITE,
    consumers=1,
    gap=0.1,
    tempo=0.3,
    faults=(SETTINGS, SETTINGS, "power", "power-all", "kill-all"),
)


@pytest.mark.parametrize("level", [WRITE, MEMORY])
def test_what_an_operator_has_raised_survives_the_loss_of_all_power(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    power, counts = ClusterFate.power, Counter[str]()

    def counted(fate: ClusterFate, machine: Machine) -> None:
        counts[fate._operator.level] += 1
        power(fate, machine)

    monkeypatch.setattr(ClusterFate, "power", counted)

    outcome = run_seed(1, attrs.evolve(SET, level=level))

    assert outcome.ok, outcome
    assert counts[FSYNC] > 3
    assert counts[WRITE]


def test_acks_that_do_not_wait_for_a_durability_that_was_raised_are_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if each bridge went on as its cluster file says."""
    monkeypatch.setattr(Standing, "waits_for_disk", False)
    monkeypatch.setattr(Syncing, "wrote", lambda syncing: syncing._written.wake())

    assert "lost" in run_seed(4, attrs.evolve(SET, gap=0.03)).kinds


def test_a_cluster_that_stands_still_after_what_was_raised_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asked what the start says, and not what the view says, trusted nobody's memory."""
    is_exact = exactness.is_exact

    def of_its_start(view: View, id_: int, *, starts: Mapping[int, Start], **about: object) -> bool:
        return is_exact(attrs.evolve(view, durability=WRITE), id_, starts=starts, **about)  # type: ignore[arg-type]

    monkeypatch.setattr(standing, "is_exact", of_its_start)

    assert "slow-heal" in run_seed(1, SET).kinds


def test_what_is_ordered_with_fewer_copies_than_an_operator_wanted_is_met() -> None:
    seen = Observed(SET)
    voters = tuple((id_, 1, b"", id_ != 3) for id_ in (1, 2, 3))
    members = (Member(1, 1, 1), Member(3, 1, 1))
    view = View(7, members, b"", 0, FSYNC, voters=voters)
    watch = ClusterWatch(seen)

    watch.check_copies(view)
    assert not seen.problems

    watch.check_copies(attrs.evolve(view, min_copies=2))
    assert seen.problems[0].startswith("few-copies: 1 members of view 7")


def test_less_holds_as_soon_as_somebody_wishes_it_and_more_not_before_all_have_it() -> None:
    marks = {7: 70}
    levels, view = Levels(FSYNC, {}, marks), View(7, (), b"", 0, FSYNC)
    assert levels.now(view) == FSYNC

    levels.wish(WRITE)
    assert levels.now(view) == WRITE, "the next view may be so"
    levels.ended(view)
    assert levels.now(view) == WRITE, "it still may"
    view = attrs.evolve(view, id=8)
    assert levels.now(view) == WRITE, "nobody has come to its mark"
    marks[8] = 80
    assert levels.now(view) == FSYNC
    assert levels.lowest == WRITE


def test_some_seeds_change_what_the_cluster_promises() -> None:
    plans = [drawn(random.Random(seed)) for seed in range(200)]
    changed = [plan for plan in plans if SETTINGS in plan.faults]

    assert 15 < len(changed) < 60
    assert {plan.level for plan in changed} == {FSYNC, WRITE, MEMORY}
    assert not any(plan.victim or plan.stays_dead for plan in changed)
