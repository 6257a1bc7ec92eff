"""The table of features says what the tests say: it can neither forget a row nor claim one."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "seeds.md"
ROWS = {"0": 41, "1": 27, "2": 18, "3": 21, "4": 36}  # of each system
NAMED = re.compile(r"test_s(\d)_([1-9]\d*)_\w")


class Row(NamedTuple):
    row: str
    feature: str
    state: str
    tests: list[str]
    to_come: str


def table() -> list[Row]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d", line)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [
        Row(row, feature, state, re.findall(r"`(\w+)`", tests), to_come)
        for row, feature, state, tests, to_come in cells
    ]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """What pytest collects of a file: there are no classes in these."""
    return [
        each
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test")
    ]


FILES = sorted(HERE.glob("test_s[0-9]*.py"))


def test_every_row_of_every_system_is_there_once_and_in_order() -> None:
    assert [each.row for each in table()] == [
        f"{system}.{number}" for system, count in ROWS.items() for number in range(1, count + 1)
    ]
    assert all(each.feature for each in table())


def test_the_rows_that_are_done_are_those_that_have_tests() -> None:
    """Mends itself by hand: the left side is what the page says, the right side what is true."""
    found: dict[str, list[str]] = {}
    for path in FILES:
        for each in functions(path):
            named = NAMED.match(each.name)
            assert named, f"{each.name}: after `test_` comes the row, as in `s0_19`, and a sentence"
            found.setdefault(f"{named[1]}.{named[2]}", []).append(each.name)

    assert {each.row: each.tests for each in table() if each.tests} == found
    assert {each.row for each in table() if each.state == "done"} == set(found)
    assert {each.state for each in table()} == {"done", "later"}
    assert not any(each.to_come for each in table() if each.state == "later")
    assert f"\nDone are {len(found)} of {sum(ROWS.values())}.\n" in PAGE.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_a_feature_is_tested_in_the_file_of_its_system_and_always(path: Path) -> None:
    """No mark lets a test of a feature be left out, and no two have the same name."""
    names = [each.name for each in functions(path)]
    marks = {
        ast.unparse(mark).split("(")[0] for each in functions(path) for mark in each.decorator_list
    }

    assert all(name.startswith(f"{path.stem[:7]}_") for name in names)
    assert len(set(names)) == len(names)
    assert marks <= {"pytest.mark.parametrize"}
