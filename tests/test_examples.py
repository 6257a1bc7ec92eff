"""What hypothesis draws: the same each time, unless fresh examples are asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CONSTANT = 123_456_789_123  # of a file that this test writes


def test_what_is_drawn_depends_on_the_modules_that_are_loaded_only_where_it_is_to_be_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a parallel run those are others each time; constants of theirs were among the examples."""
    loaded = ModuleType("loaded")
    loaded.__file__ = str(tmp_path / "loaded.py")
    Path(loaded.__file__).write_text(f"NUMBERS = {CONSTANT}, {CONSTANT + 1}\n")
    monkeypatch.setitem(sys.modules, "loaded", loaded)
    drawn: set[int] = set()

    @settings(max_examples=500, derandomize=True, database=None)
    @given(st.integers(CONSTANT - 1_000_000_000, 1 << 40))
    def draw(number: int) -> None:
        drawn.add(number)

    draw()
    assert len(drawn) > 100
    assert (CONSTANT in drawn) == (os.environ.get("DUCKROW_EXAMPLES") == "fresh")
