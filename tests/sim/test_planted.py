"""The pages of planted bugs fit the lists; their seeds and their tests still find them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duckrow.tools import fuzz
from sim.planted_table import CLUSTERS, ONE_NODE, Found, Page
from sim.planting import ROOT

WITH_BUG = """
import sys
from sim import cluster_planted, planted

(planted.PLANTED | cluster_planted.PLANTED)[sys.argv[1]].plant()
import pytest

# Pytest rewrites what an installed plugin of its belongs to, and so would load the product whole.
sys.exit(pytest.main(["-qx", "--assert=plain", "-p", "no:cacheprovider", sys.argv[2]]))
"""
PAGES = pytest.mark.parametrize("page", [ONE_NODE, CLUSTERS], ids=["one node", "clusters"])
BY_TEST = ONE_NODE.by_test() | CLUSTERS.by_test()
# Each plays a whole cluster; of attaching and of repair these are several files.
SLOW = ("tests/sim/test_attach", "tests/sim/test_cluster.py", "tests/sim/test_repair")
# The others take longer than `make test` should.
QUICK = {"one node": 12, "clusters": 4}
MORE = 8  # seeds: a change of the product makes another run of each


def some(page: Page, quick: int) -> list[object]:
    rows = sorted(page.table(), key=lambda each: each.seeds)
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.long] if number >= quick else [])
        for number, each in enumerate(rows)
    ]


@PAGES
def test_a_page_has_every_planted_bug_once(page: Page) -> None:
    names, by_test = [each.name for each in page.table()], page.by_test()

    assert names == [name for name in page.bugs if name not in by_test]
    assert [*by_test] == [name for name in page.bugs if name not in names]


@PAGES
def test_a_page_says_what_each_breaks(page: Page) -> None:
    told = {each.name: each.breaks for each in page.table()}

    assert told | {name: breaks for name, (breaks, _) in page.by_test().items()} == {
        name: bug.breaks for name, bug in page.bugs.items()
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if test.startswith(SLOW) else [])
        for name, (_, test) in BY_TEST.items()
    ],
)
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


@pytest.mark.parametrize("row", some(ONE_NODE, QUICK["one node"]))
def test_a_planted_bug_is_found_again(row: Found) -> None:
    """By the seed of the table, or by one of the next."""
    arguments = ["--planted", row.name, "--from", str(row.seed), "--limit", str(MORE)]

    assert fuzz.main([*arguments, "--jobs", "1"]) == 0


@pytest.mark.parametrize("row", some(CLUSTERS, QUICK["clusters"]))
def test_a_bug_planted_into_a_cluster_is_found_again(row: Found) -> None:
    arguments = ["--planted", row.name, "--from", str(row.seed), "--limit", str(MORE)]

    assert fuzz.main([*arguments, "--cluster", "--jobs", "1"]) == 0


@pytest.mark.long
@pytest.mark.timeout(7200)
@PAGES
def test_all_planted_bugs_of_a_table_are_found(page: Page, tmp_path: Path) -> None:
    names = [each.name for each in page.table()]
    results = ["--json", str(tmp_path / "found.json")]
    where = ["--cluster"] if page is CLUSTERS else []

    assert fuzz.main(["--planted", *names, "--limit", "200", *results, *where]) == 0
