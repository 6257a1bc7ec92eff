"""The page of planted bugs fits the list; its seeds and its tests still find them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duckrow.tools import fuzz
from sim.planted import PLANTED
from sim.planted_table import Found, by_test, table
from sim.planting import ROOT

TABLE, BY_TEST = table(), by_test()
WITH_BUG = """
import sys
from sim.planted import PLANTED

PLANTED[sys.argv[1]].plant()
import pytest

# Pytest rewrites what an installed plugin of its belongs to, and so would load the product whole.
sys.exit(pytest.main(["-qx", "--assert=plain", "-p", "no:cacheprovider", sys.argv[2]]))
"""
# The others take longer than `make test` should.
QUICK = 12
MORE = 8  # seeds: a change of the product makes another run of each
SOME = [
    pytest.param(each, id=each.name, marks=[pytest.mark.long] if number >= QUICK else [])
    for number, each in enumerate(sorted(TABLE, key=lambda each: each.seeds))
]


def test_the_page_has_every_planted_bug_once() -> None:
    names = [each.name for each in TABLE]

    assert names == [name for name in PLANTED if name not in BY_TEST]
    assert [*BY_TEST] == [name for name in PLANTED if name not in names]


def test_the_page_says_what_each_breaks() -> None:
    told = {each.name: each.breaks for each in TABLE}

    assert told | {name: breaks for name, (breaks, _) in BY_TEST.items()} == {
        name: bug.breaks for name, bug in PLANTED.items()
    }


@pytest.mark.parametrize("name", BY_TEST)
def test_the_test_of_a_bug_fails_with_it(name: str) -> None:
    _, test = BY_TEST[name]
    done = subprocess.run(
        [sys.executable, "-c", WITH_BUG, name, str(ROOT / test)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src:tests"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "failed" in done.stdout and "error" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("row", SOME)
def test_a_planted_bug_is_found_again(row: Found) -> None:
    """By the seed of the table, or by one of the next."""
    arguments = ["--planted", row.name, "--from", str(row.seed), "--limit", str(MORE)]

    assert fuzz.main([*arguments, "--jobs", "1"]) == 0


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_all_planted_bugs_of_the_table_are_found(tmp_path: Path) -> None:
    names = [each.name for each in TABLE]
    results = ["--json", str(tmp_path / "found.json")]

    assert fuzz.main(["--planted", *names, "--limit", "100", *results]) == 0
