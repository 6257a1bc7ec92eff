"""Planted bugs: each still has its place in the product; and who finds one is told how to repeat it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from duckrow.tools import fuzz
from sim import cluster_planted
from sim.planted import PLANTED
from sim.planting import ROOT, Change, Planted

PLACE = "node/waiters.py"
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def change(old: str, new: str = "") -> Planted:
    return Planted("bug", "something", (Change(PLACE, old, new),))


@pytest.mark.parametrize("name", [*PLANTED, *cluster_planted.PLANTED])
def test_a_planted_bug_has_its_place_in_the_product(name: str) -> None:
    (PLANTED | cluster_planted.PLANTED)[name].check()


def test_a_text_that_is_not_there_cannot_be_replaced() -> None:
    with pytest.raises(LookupError, match="holds 0 times"):
        change("this is nowhere").check()


def test_a_text_that_is_there_twice_cannot_be_replaced() -> None:
    with pytest.raises(LookupError, match=r"holds \d+ times"):
        change("self.").check()


def test_a_bug_is_a_program() -> None:
    with pytest.raises(SyntaxError):
        change("class Waiters:", "class Waiters").check()


def test_a_bug_is_planted_before_the_product_is_loaded() -> None:
    with pytest.raises(AssertionError, match="too late"):
        PLANTED["lost_wakeup"].plant()


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", text], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def test_a_failing_seed_is_printed_with_a_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--count", "2", "--from", "8", "--jobs", "1", "--with", "lost_wakeup"]

    assert fuzz.main(arguments) == 1

    printed = capsys.readouterr().out
    seed, kinds = re.findall(r"^seed (\d+): (.*)$", printed, re.MULTILINE)[0]
    command = re.findall(r"^repeat it with: (.*)$", printed, re.MULTILINE)[0]
    again = run(command)
    assert again.returncode == 1, again.stderr
    assert again.stdout.splitlines()[0] == f"seed {seed}: {kinds}"


def test_without_the_bug_the_same_command_finds_nothing() -> None:
    again = run(fuzz.command(6))

    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.splitlines()[0] == "seed 6: no anomaly"


def test_a_planted_bug_is_looked_for_until_it_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--planted", "lost_wakeup", "--from", "8", "--limit", "3", "--jobs", "1"]

    assert fuzz.main(arguments) == 0

    printed = capsys.readouterr().out
    assert "found after 1 seeds" in printed
    assert fuzz.command(8, "--planted", "lost_wakeup") in printed


def test_a_bug_that_nobody_planted_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--planted", "no_such_bug"]) == 2
    assert "no planted bug is called no_such_bug" in capsys.readouterr().err
