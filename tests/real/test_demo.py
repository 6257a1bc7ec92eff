"""The demonstration: each of its acts claims something, and fails where it is not so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duckrow.tools import demo

ROOT = Path(__file__).resolve().parents[2]
IN_SIMULATION = 1  # the last act: seeds, which tests/sim/test_scenario.py runs, too


def test_what_the_demonstration_claims_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]))

    for _, act in demo.ACTS[:-IN_SIMULATION]:
        act(str(tmp_path))

    assert "the next process was ready" in capsys.readouterr().out
