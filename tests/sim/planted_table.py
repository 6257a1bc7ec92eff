"""The tables in docs/reference/planted-bugs*.md: written from what a hunt found, and read by tests.

    python -m duckrow.tools.fuzz --planted --limit 100 --json found.json
    PYTHONPATH=src:tests python -m sim.planted_table found.json

With `--cluster` for both it is the page of clusters.  Rows of bugs that the hunt did not look for stay as
they are, and those of the second table, which tests find, are written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import attrs

from . import cluster_planted, planted
from .planting import ROOT, Planted

HEAD = "| bug | what it breaks | seeds | first seed | what said so |\n|---|---|---|---|---|\n"
ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (\d+) \| (\d+) \| (.*) \|$", re.MULTILINE)
TABLE = re.compile(r"^\| bug \| what it breaks \| seeds .*?(?=^$|\Z)", re.MULTILINE | re.DOTALL)
BY_TEST = re.compile(r"^\| `(\w+)` \| (.*) \| `(tests/[\w/.]+::\w+)` \|$", re.MULTILINE)


class Found(NamedTuple):
    name: str
    breaks: str
    seeds: int  # that it took, from seed 0 on
    seed: int  # that found it
    kinds: str

    def __str__(self) -> str:
        return f"| `{self.name}` | {self.breaks} | {self.seeds} | {self.seed} | {self.kinds} |\n"


@attrs.frozen
class Page:
    path: Path
    bugs: Mapping[str, Planted]

    def table(self) -> list[Found]:
        rows = ROW.findall(self.path.read_text())
        return [
            Found(name, breaks, int(n), int(seed), kinds) for name, breaks, n, seed, kinds in rows
        ]

    def by_test(self) -> dict[str, tuple[str, str]]:
        """What each of the bugs breaks that seeds meet too rarely, and the test that fails with it."""
        rows = BY_TEST.findall(self.path.read_text())
        return {name: (breaks, test) for name, breaks, test in rows}

    def renewed(self, results: dict[str, dict[str, object]]) -> str:
        """The page with a row for each bug, in the order of the list."""
        rows = {each.name: each for each in self.table()}
        for name, found in results.items():
            if found["seeds"]:
                kinds = found["kinds"]
                assert isinstance(kinds, list)
                seeds, seed = int(str(found["seeds"])), int(str(found["seed"]))
                rows[name] = Found(name, self.bugs[name].breaks, seeds, seed, ", ".join(kinds))
        told = self.by_test()
        lines = [
            str(rows[name]._replace(breaks=self.bugs[name].breaks))
            for name in self.bugs
            if name in rows and name not in told
        ]
        return TABLE.sub(lambda _: HEAD + "".join(lines), self.path.read_text(), count=1)


FOLDER = ROOT / "docs" / "reference"
ONE_NODE = Page(FOLDER / "planted-bugs.md", planted.PLANTED)
CLUSTERS = Page(FOLDER / "planted-bugs-clusters.md", cluster_planted.PLANTED)


def main() -> None:
    parser = argparse.ArgumentParser(prog="sim.planted_table")
    parser.add_argument("results", type=Path, help="what fuzz --planted --json wrote")
    parser.add_argument("--cluster", action="store_true", help="the page of clusters")
    options = parser.parse_args()
    page = CLUSTERS if options.cluster else ONE_NODE
    page.path.write_text(page.renewed(json.loads(options.results.read_text())))


if __name__ == "__main__":
    main()
