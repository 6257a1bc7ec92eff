"""The pages of docs/reference and the map of node/ say what the code says."""

import re
from pathlib import Path

import pytest

import mistakes
from reference import MARKED, ROOT, RULE, TABLES, marked_pages, renewed, rule_tests, rules_told
from sim import cluster_planted, protocol_planted


@pytest.mark.parametrize("page", marked_pages(), ids=lambda page: str(page.name))
def test_the_tables_of_a_page_are_those_of_the_code(page: Path) -> None:
    text = page.read_text()

    assert text == renewed(text), "run: PYTHONPATH=src:tests python -m reference"


def test_every_table_has_its_page() -> None:
    found = [name for page in marked_pages() for name, _, _ in MARKED.findall(page.read_text())]

    assert sorted(found) == sorted(TABLES)


def test_a_table_that_says_something_else_is_made_anew() -> None:
    stale = "before\n<!-- made from the code: codes -->\n\n| stale |\n\n<!-- end -->\nafter\n"

    assert "| `ORDERED` | 1 |" in renewed(stale)
    assert "stale" not in renewed(stale)
    assert renewed(stale).startswith("before\n")
    assert renewed(stale).endswith("<!-- end -->\nafter\n")


def test_every_rule_that_the_code_names_is_told_once() -> None:
    files = sorted((ROOT / "bridge").glob("*.py"))
    cited = {rule for file in files for rule in RULE.findall(file.read_text())}
    told = rules_told()

    assert sorted(told) == sorted(set(told))
    assert cited <= set(told)


def test_every_rule_is_kept_somewhere_and_has_a_test() -> None:
    files = [*(ROOT / "bridge").glob("*.py"), *(ROOT / "node").glob("*.py")]
    kept = {rule for file in files for rule in RULE.findall(file.read_text())}

    assert set(rules_told()) <= kept
    assert set(rules_told()) <= rule_tests().keys()


def test_every_foreseen_mistake_has_a_test_that_is_there() -> None:
    tests = {
        f"{file.parent.name}/{file.stem}::{name}"
        for file in (ROOT / "tests").glob("*/test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    named = {test for _, each in mistakes.lines() for test in each.tests}
    bugs = {bug for _, each in mistakes.lines() for bug in each.bugs}

    assert len(mistakes.lines()) == 63
    assert all(each.tests for _, each in mistakes.lines())
    assert named <= tests, "their names have changed, or they are gone"
    assert bugs <= protocol_planted.PLANTED.keys() | cluster_planted.PLANTED.keys()


@pytest.mark.parametrize("folder", ["node", "bridge"])
def test_the_map_names_every_file_once(folder: str) -> None:
    """With a sentence each; a file that is new, or gone, has to be told of there."""
    page = (ROOT / "docs" / "explanation" / "where-things-are.md").read_text()
    listed = re.findall(rf"^\| `{folder}/(\w+\.py)` \| \S.*\. \|$", page, re.MULTILINE)

    assert sorted(listed) == sorted(file.name for file in (ROOT / folder).glob("*.py"))
