"""The documentation: its Python blocks run, its links lead somewhere, its make targets exist.

A text block behind a Python block, with "It prints:" between them, is what it prints.  A block that
imports the simulation finds the tests, as its page tells the reader to.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md"))),
]
# Their blocks run together, or on servers: tests/real/test_two_programs.py, tests/spark/test_page.py, test_cluster_page.py
ELSEWHERE = {"two-programs.md", "use-spark.md", "use-a-spark-cluster.md"}
BLOCK = re.compile(
    r"^```python\n(.*?)^```$(?:\n+It prints:\n+^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
BLOCKS = [
    pytest.param(block, printed, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    if page.name not in ELSEWHERE
    for number, (block, printed) in enumerate(BLOCK.findall(page.read_text()), 1)
]


@pytest.mark.parametrize(("block", "printed"), BLOCKS)
def test_a_python_block_runs(block: str, printed: str, tmp_path: Path) -> None:
    """In a folder of its own, as a reader would run it, and prints what the page says."""
    path = [ROOT / "src", *([ROOT / "tests"] if "\nfrom sim." in block else [])]
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(map(str, path)), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not printed or done.stdout == printed


def test_the_readme_shows_what_its_program_prints(tmp_path: Path) -> None:
    ((block, _),) = BLOCK.findall((ROOT / "README.md").read_text())
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.splitlines() == ["1 2", "1 b'one'", "2 b'two'"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]

    assert broken == []


def test_the_index_leads_to_every_page() -> None:
    docs = ROOT / "docs"
    linked = re.findall(r"\]\(([^)#]+)", (docs / "README.md").read_text())
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    decisions = {page for page in pages if page.startswith("decisions/0")}  # by their own index

    assert pages - decisions - set(linked) == set()


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target for page in PAGES for target in re.findall(r"\bmake ([a-z-]+)`", page.read_text())
    } | set(re.findall(r"^ +make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))

    assert named - targets == set()
