"""Entries that come late from far away get numbers that no reader has passed."""

from __future__ import annotations

import pytest

from real.late_arrivals import NAMES, experiment


@pytest.mark.parametrize("entries", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
def test_no_reader_ever_skips_or_sees_a_number_twice(entries: int) -> None:
    seen = experiment(entries)

    assert [(each.node, each.entries) for each in seen] == [(name, entries) for name in NAMES]
    assert [each.wrong for each in seen] == [[], [], []]
    assert len({each.digest for each in seen}) == 1
    assert all(each.late for each in seen), "nothing came late, so nothing was tried"
