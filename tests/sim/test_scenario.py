"""Whole runs: twelve seeds that are the same in every `make test`; in `make test-long` more of them,
and those that failed once.

A seed means another run as soon as the scenario draws one more number, so what a failing seed has
found gets a test of the part that was wrong, too, in every `make test`.  It stays in the list all the
same: what it drew then was something that thirty others had not.
"""

from __future__ import annotations

import json
import random

import pytest

from duckrow.node.storeoptions import MEMORY
from sim.plan import KINDS, Plan, TopicPlan, drawn
from sim.scenario import run_seed

from .test_determinism import fresh_process

QUICK, MORE = (0, 1, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14), (2, 3, 7, *range(15, 40))

FAILED_ONCE = {
    "a_digest_in_a_sector_that_cannot_be_read": 5,
    "what_is_written_again_holds_a_sector_that_cannot_be_read": 31,
    "a_full_disk_on_which_everything_is_pruned": 202,
    "damage_behind_a_sync_during_which_more_was_written": 317,
    "a_pull_behind_which_everything_has_grown_old": 30074,
    "a_sector_that_no_start_can_read": 60025,
    "a_topic_of_two_partitions_that_goes_with_the_power": 70137,
    "a_start_that_takes_longer_than_the_look": 81489,
    "a_way_through_a_lossy_net_longer_than_the_calm": 85009,
    "a_row_that_the_disk_gives_at_one_start_and_not_at_another": 85346,
    "what_a_failed_sync_left_in_doubt_is_cut_and_others_take_its_place": 91047,
    "a_clock_that_is_set_while_something_waits_to_grow_old": 95061,
    "a_topic_of_two_partitions_that_power_losses_in_a_row_would_take": 95442,
    "a_reset_behind_what_a_lossy_net_holds_up": 90228,
    "a_name_of_the_store_in_one_segment_whose_beginning_is_damaged": 90241,
    "a_file_of_the_index_that_a_process_had_just_named_when_it_died": 90153,
    "a_snapshot_where_the_digest_of_the_row_cannot_be_read": 93152,
    "a_commit_that_a_full_disk_refuses_when_it_is_sent_again": 60048,
    "an_end_with_the_index_of_ten_thousand_segments": 81101,
    "a_snapshot_larger_than_the_reserve_of_a_full_disk": 85252,
    "a_first_snapshot_larger_than_the_reserve_of_a_full_disk": 90124,
    "a_prune_that_needs_what_a_file_gave_back": 86047,
    "a_state_with_many_lanes_on_a_full_disk": 85274,
    "a_start_that_syncs_ten_thousand_segments": 550410,
    "a_start_that_counts_back_behind_one_that_is_lost": 561033,
    "a_damaged_snapshot_lies_where_another_one_has_no_room": 561692,
    "an_end_that_begins_in_the_last_moment_and_takes_longer": 581002,
}


@pytest.mark.parametrize(
    "seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.long) for seed in MORE)]
)
def test_a_seed_shows_no_anomaly(seed: int) -> None:
    outcome = run_seed(seed)

    assert outcome.ok, outcome


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, id=name) for name, seed in FAILED_ONCE.items()]
)
def test_a_seed_that_failed_once_shows_no_anomaly(seed: int) -> None:
    outcome = run_seed(seed)

    assert outcome.ok, outcome


@pytest.mark.parametrize("seed", [6, 29])
def test_a_seed_is_the_same_run_in_fresh_processes(seed: int) -> None:
    """With other hash seeds, other addresses, and what pytest has loaded."""
    digests = {
        json.loads(fresh_process(number, "-m", "sim.run", str(seed), "--json"))["digest"]
        for number in (1, 2, 3)
    }

    assert digests == {run_seed(seed).digest}


def test_other_seeds_are_other_runs() -> None:
    assert run_seed(6).digest != run_seed(29).digest


QUIET = Plan(seconds=1.0, calm=1.0, producers=1, consumers=1, gap=0.2)


def test_a_run_without_faults_shows_no_anomaly_and_restarts_once() -> None:
    outcome = run_seed(1, QUIET)

    assert outcome.ok, outcome
    assert outcome.counts["kill"] >= 1
    assert "fault" not in outcome.counts


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_alone_shows_no_anomaly(kind: str) -> None:
    plan = Plan(
        seconds=3.0,
        calm=1.0,
        faults=(kind,),
        tempo=0.3,
        stagers=1,
        segment_bytes=8 * 1024,
        snapshot_items=20,
        topics=(TopicPlan("a", {"max_entries": 30}),),
    )

    outcome = run_seed(3, plan)

    assert outcome.ok, outcome
    assert outcome.counts["fault"] > 1


def test_a_topic_that_may_go_with_the_power_has_one_partition() -> None:
    """The client that had seen more of them would look for its entries where they are not."""
    plans = [drawn(random.Random(seed)) for seed in range(200)]

    assert any(topic.partitions > 1 for plan in plans for topic in plan.topics)
    assert not any(
        topic.partitions > 1 for plan in plans for topic in plan.topics if plan.level == MEMORY
    )
