"""Whole clusters of the protocol's cores: seeds of every kind of fault, and what they must come to."""

from __future__ import annotations

import pytest

from sim.protocol_plan import PROFILES
from sim.protocol_scenario import run_seed


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_nothing_breaks_whatever_fails(profile: str, first: int) -> None:
    for seed in range(first, first + 10):
        outcome = run_seed(seed, profile)

        assert outcome.ok, outcome


def test_a_seed_is_the_same_run_every_time() -> None:
    assert run_seed(3, keep_story=True) == run_seed(3, keep_story=True)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_breaks_in_many_more_seeds(profile: str) -> None:
    for seed in range(1000, 2500):
        outcome = run_seed(seed, profile)

        assert outcome.ok, outcome
