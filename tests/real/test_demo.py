"""The demonstration: each of its acts claims something, and fails where it is not so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duckrow.tools import demo

ROOT = Path(__file__).resolve().parents[2]
IN_SIMULATION = demo.simulate  # seeds, which tests/sim/test_scenario.py runs, too


@pytest.mark.timeout(600)  # Spark begins in it, and a machine may be busy
def test_what_the_demonstration_claims_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]))

    for _, act in demo.ACTS:
        if act is not IN_SIMULATION:
            act(str(tmp_path))

    said = capsys.readouterr().out
    assert "the next process was ready" in said
    assert said.splitlines()[-1].endswith("0 gaps, 0 duplicates, 0 changed")
