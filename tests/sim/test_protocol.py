"""Whole clusters of the protocol's cores: seeds of every kind of fault, and what they must come to."""

from __future__ import annotations

import pytest

from sim.protocol_plan import OF_STORES, PROFILES
from sim.protocol_scenario import run_seed


@pytest.mark.parametrize(
    ("profile", "first"),
    [(each, first) for each in PROFILES for first in range(0, 40 if each in OF_STORES else 60, 10)],
)
def test_nothing_breaks_whatever_fails(profile: str, first: int) -> None:
    for seed in range(first, first + 10):
        outcome = run_seed(seed, profile)

        assert outcome.ok, outcome


@pytest.mark.parametrize(
    ("profile", "seed"),
    [
        ("mixed", 2),  # power was lost between a bundle and the end of its stage: both were sent
        ("power", 54),
        ("tail", 151),  # the record of an ordered bundle was lost, and that of its stage was not
        ("mixed", 34),  # a witness installed a view, and was followed for ever
        ("house", 301328),  # with too few copies one view followed the other, and nobody acted
        ("disaster", 1038),  # a word of the old cluster came when another one had been forced
        ("power", 100142),  # a round carried a bundle over to the next link
    ],
)
def test_a_seed_that_found_something_is_fine(profile: str, seed: int) -> None:
    outcome = run_seed(seed, profile)

    assert outcome.ok, outcome


def test_rows_are_pruned_and_states_lost_and_images_taken() -> None:
    """Nor would the profile be worth its time without the rest."""
    met = {mark for seed in (0, 17) for mark in run_seed(seed, "images").marks}

    assert met >= {"state lost", "image taken", "image passed on", "full", "damaged", "uncounted"}


def test_a_seed_is_the_same_run_every_time() -> None:
    assert run_seed(3, keep_story=True) == run_seed(3, keep_story=True)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_breaks_in_many_more_seeds(profile: str) -> None:
    for seed in range(1000, 2500):
        outcome = run_seed(seed, profile)

        assert outcome.ok, outcome
