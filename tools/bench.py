"""Benchmarks: what a node reaches, next to what it should reach.

    python -m duckrow.tools.bench                      all of it: about a quarter of an hour
    python -m duckrow.tools.bench --quick              smaller ones: about two minutes
    python -m duckrow.tools.bench append apply         these cases
    python -m duckrow.tools.bench volume-singles --entries 1000000 --dir /mnt/disk
    python -m duckrow.tools.bench --json figures.json  with the facts of the machine

Real files go to a temporary folder, by default where temporary files go, and are removed.  A target
that is missed is told, and is no error.  docs/reference/performance.md says how to read the table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import bench_append, bench_apply, bench_pauses, bench_simulation, bench_volume
from .bench_figures import Case, Figure, Settings, machine, number

CASES = (
    Case("append", "what the row leaves of what the kernel can write", bench_append.append),
    Case("apply", "CPU time of a command", bench_apply.apply_commands),
    Case("columns", "opening batches", bench_apply.open_columns),
    Case("volume-batches", "many entries as batches of 100", bench_volume.batches),
    Case("volume-singles", "many entries as single produces", bench_volume.singles),
    Case("topics", "many topics", bench_volume.topics),
    Case("pauses", "the longest step of the loop while it prunes", bench_pauses.pauses),
    Case("fsync", "how many produces share a sync", bench_simulation.grouping),
    Case("simulation", "steps of the simulation", bench_simulation.speed),
)
ENTRIES = 10_000_000
ENTRIES_QUICK = 300_000


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names = [case.name for case in CASES]
    for name in options.case:
        if name not in names:
            parser.error(f"there is no case {name!r}; there are: {', '.join(names)}")
    wanted = [case for case in CASES if not options.case or case.name in options.case]
    entries = options.entries or (ENTRIES_QUICK if options.quick else ENTRIES)
    facts, began = machine(), time.monotonic()
    print("  ".join(f"{name}: {value}" for name, value in facts.items()))
    results: list[dict[str, object]] = []
    short: list[str] = []
    table = _Table()
    with tempfile.TemporaryDirectory(prefix="duckrow-bench-", dir=options.dir) as folder:
        for case in wanted:
            place = Path(folder) / case.name
            place.mkdir()
            settings = Settings(
                folder=place, quick=options.quick, entries=entries, tell=table.progress
            )
            try:
                for figure in case.run(settings):
                    table.row(case.name, figure)
                    results.append({"case": case.name, **figure.as_json()})
                    if figure.verdict == "short":
                        short.append(f"{case.name}: {figure.name}")
            except bench_volume.NoRoomError as error:
                table.say(f"{case.name}: left out: {error}")
                results.append({"case": case.name, "left_out": str(error)})
            shutil.rmtree(place)
    table.say(f"{len(results)} figures in {time.monotonic() - began:.0f} s")
    if short:
        table.say("short of their target:", *short)
    if options.json is not None:
        run = {"quick": options.quick, "entries": entries, "machine": facts, "figures": results}
        options.json.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    about, examples, notes = (__doc__ or "").split("\n\n", 2)
    parser = argparse.ArgumentParser(
        prog="python -m duckrow.tools.bench",
        description=f"{about}\n\n" + "\n".join(f"  {case.name:15} {case.what}" for case in CASES),
        epilog=f"examples:\n{examples}\n\n{notes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="*", metavar="CASE", help="default: all")
    parser.add_argument("--quick", action="store_true", help="smaller, and less exact")
    parser.add_argument("--entries", type=int, help=f"of the volume cases (default {ENTRIES:,})")
    parser.add_argument("--dir", type=Path, help="where the files go: the disk that is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    return parser


class _Table:
    """Rows as they come; below them, on a terminal, what is being done."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._headed = False

    def row(self, case: str, figure: Figure) -> None:
        if not self._headed:
            self._headed = True
            self.say(_LINE.format("case", "figure", "measured", "limit", "ratio", "target", ""))
        limit = "" if figure.limit is None else f"{number(figure.limit)} {figure.limit_name}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        goal = "" if figure.goal is None else str(figure.goal)
        measured = f"{number(figure.measured)} {figure.unit}"
        self.say(
            _LINE.format(case, figure.name, measured, limit, ratio, goal, figure.verdict).rstrip()
        )
        if figure.note:
            self.say(f"{'':15} {figure.note}")

    def progress(self, text: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def say(self, *lines: str) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        print(*lines, sep="\n  ", flush=True)


_LINE = "{:15} {:76} {:>20}  {:28} {:>6}  {:14} {}"

if __name__ == "__main__":
    sys.exit(main())
