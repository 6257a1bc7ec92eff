"""What clients are told in a town where machines die, links break and disks are slow is so."""

from __future__ import annotations

from collections import Counter

import pytest

from duckrow.node import ids
from duckrow.node.errors import Timeout

from .applied import applied
from .told import Told
from .townstorm import play


def seeds(first: int, count: int) -> list[Told]:
    told: list[Told] = []
    for seed in range(first, first + count):
        with applied() as row:
            try:
                told.append(play(seed, row))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
    return told


def test_whatever_clients_do_and_whatever_dies_all_that_they_are_told_is_so() -> None:
    told = seeds(0, 12)
    calls = [asked for each in told for asked in each.calls]
    kinds = Counter(asked.kind for asked in calls if asked.told is not None)
    jobs = [attempts for each in told for attempts in each.jobs.values()]
    assert all(kinds[kind] > 10 for kind in ("one", "many", "none", "id", "append")), kinds
    assert sum(isinstance(asked.error, Timeout) for asked in calls) > 5
    assert sum(any(attempt.is_done for attempt in attempts) for attempts in jobs) > 10
    assert any(len(attempts) > 2 for attempts in jobs), "done again"


def test_a_row_that_remembers_no_ids_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "look", lambda *_: None)
    with pytest.raises(AssertionError, match="there twice"):
        seeds(4, 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_that_clients_are_told_is_so_in_many_towns() -> None:
    seeds(100, 300)
