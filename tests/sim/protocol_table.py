"""The tables in docs/reference/planted-bugs-protocol.md: written from a hunt, and read by tests.

    PYTHONPATH=src:tests python -m sim.protocol_table                     hunts all planted bugs
    PYTHONPATH=src:tests python -m sim.protocol_table --limit 400 NAME    or some, longer

A row of a bug that the hunt did not look for, or did not find, stays as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from typing import NamedTuple

from .planting import ROOT
from .protocol_planted import PLANTED, Bug

PAGE = ROOT / "docs" / "reference" / "planted-bugs-protocol.md"
HEAD = (
    "| bug | rule | what it breaks | faults | seeds | what said so |\n|---|---|---|---|---|---|\n"
)
ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (.*) \| (\w+) \| (\d+) \| (.*) \|$", re.MULTILINE)
TABLE = re.compile(
    r"^\| bug \| rule \| what it breaks \| faults .*?(?=^$|\Z)", re.MULTILINE | re.DOTALL
)
BY_TEST = re.compile(r"^\| `(\w+)` \| (.*) \| (.*) \| `(tests/[\w/.]+::\w+)` \|$", re.MULTILINE)


class Found(NamedTuple):
    name: str
    rule: str
    breaks: str
    profile: str
    seeds: int  # that it took, from seed 0 on
    kind: str

    def __str__(self) -> str:
        return f"| `{self.name}` | {' | '.join(map(str, self[1:]))} |\n"


def table() -> list[Found]:
    rows = ROW.findall(PAGE.read_text())
    return [
        Found(name, rule, breaks, profile, int(seeds), kind)
        for name, rule, breaks, profile, seeds, kind in rows
    ]


def by_test() -> dict[str, tuple[str, str, str]]:
    """Rule, what it breaks, and the test that fails with a bug that seeds meet too rarely."""
    return {
        name: (rule, breaks, test) for name, rule, breaks, test in BY_TEST.findall(PAGE.read_text())
    }


def hunt(bug: Bug, first: int, limit: int) -> tuple[int, str] | None:
    """The seed that finds it, and what the ledger says; in a process of its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sim.protocol_run", str(first), "--count", str(limit)),
            *("--mutant", bug.name, "--profile", bug.profile, "--until-found"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src:tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    found = re.search(rf"^{bug.profile} (\d+): ([A-Z]+): ", done.stdout, re.MULTILINE)
    return (int(found[1]), found[2]) if found else None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sim.protocol_table")
    parser.add_argument("names", nargs="*", metavar="NAME", help="planted bugs (default: all)")
    parser.add_argument("--limit", type=int, default=400, help="seeds for each")
    options = parser.parse_args(arguments)
    rows = {each.name: each for each in table()}
    missed = 0
    for name in options.names or PLANTED:
        bug = PLANTED[name]
        found = hunt(bug, 0, options.limit)
        print(f"{name}: {found or 'not found'}", flush=True)
        if found is not None:
            seed, kind = found
            rows[name] = Found(name, bug.rule, bug.breaks, bug.profile, seed + 1, kind)
        missed += found is None
    told = by_test()
    lines = [str(rows[name]) for name in PLANTED if name in rows and name not in told]
    PAGE.write_text(TABLE.sub(lambda _: HEAD + "".join(lines), PAGE.read_text(), count=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
