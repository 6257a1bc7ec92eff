"""What the seeds of clusters draw: every shape, level and fault, and never what takes too much."""

from __future__ import annotations

import random

import pytest

from sim.cluster_plan import (
    DAMAGE,
    FORGOTTEN,
    HOUSE,
    KINDS,
    SETTINGS,
    SHAPES,
    ClusterPlan,
    drawn,
    links,
)


def test_the_seeds_draw_every_shape_level_and_fault() -> None:
    plans = [drawn(random.Random(seed)) for seed in range(300)]

    assert {plan.shape for plan in plans} == {*SHAPES}
    assert {plan.machines for plan in plans} == {3, 4, 5}
    kinds = {kind for plan in plans for kind in plan.faults}
    assert kinds == {*KINDS, *DAMAGE, *HOUSE, SETTINGS}
    assert {plan.level for plan in plans} == {"fsync", "write", "memory"}
    assert any(plan.stays_dead for plan in plans)
    assert any(plan.witnesses for plan in plans)
    assert any(plan.weights for plan in plans)
    assert any(plan.observers for plan in plans)
    assert any(plan.standby for plan in plans)


def test_where_somebody_may_need_an_image_the_others_keep_little_of_the_row() -> None:
    """Of 30 seeds one had an image: a run is short, and mostly all of it was kept."""
    plans = [drawn(random.Random(seed)) for seed in range(300)]
    forgotten = [plan for plan in plans if {*plan.faults} & {*FORGOTTEN}]

    assert len(forgotten) > 30
    assert {(plan.segment_bytes, plan.followable_bytes) for plan in forgotten} == {(16384, 16384)}
    assert len({plan.segment_bytes for plan in plans}) == 3


def test_what_a_seed_takes_from_a_cluster_leaves_a_majority_that_has_everything() -> None:
    """Damage, dead machines and changes of the votes come one at a time: each takes what has to be left."""
    for seed in range(1000):
        plan = drawn(random.Random(seed))
        takes = [plan.victim > 0, plan.stays_dead, bool({*plan.faults} & {*HOUSE})]
        assert sum(takes) <= 1
        assert plan.victim or not {*plan.faults} & {*DAMAGE}
        if plan.victim:
            others = [i for i in plan.ids if i != plan.victim]
            assert 2 * sum(map(plan.weight, others)) > sum(map(plan.weight, plan.ids))
            assert {*others} - {*plan.witnesses}
            assert plan.victim not in plan.witnesses


def test_whose_disk_may_be_hurt_is_never_the_only_one_that_has_what_was_ordered() -> None:
    """With a witness it had been a majority, went on alone, and was wiped (seed 900935)."""
    seeds = range(2000)
    plans = [plan for seed in seeds if (plan := drawn(random.Random(seed))).victim]
    assert any(plan.witnesses and plan.machines == 3 for plan in plans)
    for plan in plans:
        alone = [plan.victim, *plan.witnesses]  # keep no other copy
        assert 2 * sum(map(plan.weight, alone)) <= sum(map(plan.weight, plan.ids))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_links_of_every_shape_connect_all_machines(shape: str) -> None:
    for machines in (3, 4, 5):
        edges = links(shape, machines, (), random.Random(1))
        plan = ClusterPlan(machines=machines, edges=edges)
        assert plan.connected(list(plan.ids))
