"""The table in docs/reference/planted-bugs.md: written from what a hunt found, and read by tests.

    python -m duckrow.tools.fuzz --planted --limit 100 --json found.json
    PYTHONPATH=src:tests python -m sim.planted_table found.json

Rows of bugs that the hunt did not look for stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

from .planted import PLANTED
from .planting import ROOT

PAGE = ROOT / "docs" / "reference" / "planted-bugs.md"
HEAD = "| bug | what it breaks | seeds | first seed | what said so |\n|---|---|---|---|---|\n"
ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (\d+) \| (\d+) \| (.*) \|$", re.MULTILINE)
TABLE = re.compile(r"^\| bug \|.*?(?=^$|\Z)", re.MULTILINE | re.DOTALL)
BY_TEST = re.compile(r"^\| `(\w+)` \| (.*) \| `(tests/[\w/.]+::\w+)` \|$", re.MULTILINE)


class Found(NamedTuple):
    name: str
    breaks: str
    seeds: int  # that it took, from seed 0 on
    seed: int  # that found it
    kinds: str

    def __str__(self) -> str:
        return f"| `{self.name}` | {self.breaks} | {self.seeds} | {self.seed} | {self.kinds} |\n"


def table() -> list[Found]:
    rows = ROW.findall(PAGE.read_text())
    return [Found(name, breaks, int(n), int(seed), kinds) for name, breaks, n, seed, kinds in rows]


def by_test() -> dict[str, tuple[str, str]]:
    """What each of the bugs breaks that seeds meet too rarely, and the test that fails with it."""
    return {name: (breaks, test) for name, breaks, test in BY_TEST.findall(PAGE.read_text())}


def renewed(page: str, results: dict[str, dict[str, object]]) -> str:
    """The page with a row for each bug, in the order of the list."""
    rows = {each.name: each for each in table()}
    for name, found in results.items():
        if found["seeds"]:
            kinds = found["kinds"]
            assert isinstance(kinds, list)
            seeds, seed = int(str(found["seeds"])), int(str(found["seed"]))
            rows[name] = Found(name, PLANTED[name].breaks, seeds, seed, ", ".join(kinds))
    lines = [
        str(rows[name]._replace(breaks=PLANTED[name].breaks)) for name in PLANTED if name in rows
    ]
    return TABLE.sub(lambda _: HEAD + "".join(lines), page, count=1)


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[1]).read_text())
    PAGE.write_text(renewed(PAGE.read_text(), found))
