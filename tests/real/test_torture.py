"""Machines as processes, whose processes, links and disks are hurt under load; nothing that was acknowledged
is lost, doubled or in another order anywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRIES = 100_000
SECONDS = 300


@pytest.mark.long  # with disks of their own, or in namespaces: for root
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "words",
    [
        "--seed 1",
        "--seed 2 --disks",
        "--seed 3 --disks --durability fsync",
        "--seed 4 --disks --namespaces",
        "--seed 5 --disks --nodes 5",
        "--seed 6 --disks --nodes 5 --namespaces",
    ],
)
def test_every_node_has_all_that_was_acknowledged_once_under_the_same_numbers(words: str) -> None:
    command = [sys.executable, "-m", "real.torture", *words.split()]
    command += ["--entries", str(ENTRIES), "--seconds", str(SECONDS)]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "anomalies: none" in run.stdout
