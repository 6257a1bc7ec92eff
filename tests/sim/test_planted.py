"""The table of planted bugs fits the list, and its seeds still find them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from duckrow.tools import fuzz
from sim.planted import PLANTED
from sim.planted_table import PAGE, Found, table

TABLE = table()
# The others take longer than `make test` should.
QUICK = 12
MORE = 8  # seeds: a change of the product makes another run of each
SOME = [
    pytest.param(each, id=each.name, marks=[pytest.mark.long] if number >= QUICK else [])
    for number, each in enumerate(sorted(TABLE, key=lambda each: each.seeds))
]


def test_the_page_has_every_planted_bug() -> None:
    names = [each.name for each in TABLE]
    missing = re.findall(r"^- `(\w+)`: ", PAGE.read_text(), re.MULTILINE)

    assert names == [name for name in PLANTED if name not in missing]
    assert missing == [name for name in PLANTED if name not in names]


def test_the_table_says_what_each_breaks() -> None:
    assert {each.name: each.breaks for each in TABLE} == {
        each.name: PLANTED[each.name].breaks for each in TABLE
    }


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
