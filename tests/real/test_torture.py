"""Three machines as processes, killed, paused and cut off under load; nothing that was acknowledged is
lost, doubled or in another order anywhere.
"""

from __future__ import annotations

import pytest

from real.torture import torture

ENTRIES = 100_000
SECONDS = 300.0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_node_has_all_that_was_acknowledged_once_under_the_same_numbers(seed: int) -> None:
    result = torture(seed, ENTRIES, SECONDS)

    assert result.report.ok, str(result)
    assert result.acknowledged >= ENTRIES, str(result)
    assert len(result.faults) >= 4, str(result)
