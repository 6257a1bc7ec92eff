"""The page of the protocol's planted bugs fits the list; its seeds and its tests still find them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sim.planting import ROOT
from sim.protocol_planted import PLANTED
from sim.protocol_table import Found, by_test, hunt, table

TABLE, BY_TEST = table(), by_test()
WITH_BUG = """
import sys
from sim.protocol_planted import PLANTED

PLANTED[sys.argv[1]].plant()
import pytest

# Pytest rewrites what an installed plugin of its belongs to, and so would load the product whole.
sys.exit(pytest.main(["-qx", "--assert=plain", "-p", "no:cacheprovider", sys.argv[2]]))
"""
QUICK = 8  # the others take longer than `make test` should
MORE = 40  # seeds, and thrice those of the table: a change of the product makes another run of each
SOME = [
    pytest.param(each, id=each.name, marks=[pytest.mark.long] if number >= QUICK else [])
    for number, each in enumerate(sorted(TABLE, key=lambda each: each.seeds))
]


@pytest.mark.parametrize("name", PLANTED)
def test_every_bug_can_be_planted(name: str) -> None:
    PLANTED[name].check()


def test_the_page_has_every_planted_bug_once() -> None:
    names = [each.name for each in TABLE]

    assert names == [name for name in PLANTED if name not in BY_TEST]
    assert [*BY_TEST] == [name for name in PLANTED if name not in names]


def test_the_page_says_which_rule_each_breaks() -> None:
    told = {each.name: (each.rule, each.breaks) for each in TABLE}

    assert told | {name: (rule, breaks) for name, (rule, breaks, _) in BY_TEST.items()} == {
        name: (bug.rule, bug.breaks) for name, bug in PLANTED.items()
    }


@pytest.mark.parametrize("name", BY_TEST)
def test_the_test_of_a_bug_fails_with_it(name: str) -> None:
    _, _, test = BY_TEST[name]
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
@pytest.mark.timeout(1200)
def test_a_planted_bug_is_found_again(row: Found) -> None:
    """By the seed of the table, or by one of the next."""
    assert hunt(PLANTED[row.name], row.seeds - 1, MORE + 3 * row.seeds) is not None
