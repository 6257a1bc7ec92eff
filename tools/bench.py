"""Benchmarks: what a node reaches, with the target beside it.

    make bench                                         all of it: about a quarter of an hour
    make bench ONLY=append                             one group
    python -m duckrow.tools.bench append apply         these groups
    python -m duckrow.tools.bench --size 0.05          all of it, smaller, in two
    python -m duckrow.tools.bench singles --entries 1000000 --dir /mnt/disk
    python -m duckrow.tools.bench --json figures.json  with the facts of the machine

Real files go to a temporary folder, by default where temporary files go, and are removed.  A target
that is missed is told, and is no error: the exit is 0.  docs/reference/performance.md explains
every figure.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from . import (
    bench_append,
    bench_apply,
    bench_archive,
    bench_chain,
    bench_clients,
    bench_cluster,
    bench_commands,
    bench_launch,
    bench_pauses,
    bench_sessions,
    bench_simulation,
    bench_spark,
    bench_trips,
    bench_volume,
    bench_waking,
)
from .bench_figures import Figure, Group, NoRoomError, Settings, machine, number, pace

GROUPS = (
    Group("append", "batches of 1,000 x 100 B, level write", bench_append.append),
    Group("apply", "a command of one entry becomes state and effects", bench_apply.apply_commands),
    Group("columns", "bodies of 1,000 entries are checked and opened", bench_apply.open_columns),
    Group("fsync", "how many produces share a sync", bench_simulation.grouping),
    Group("simulation", "task steps of simulated clusters", bench_simulation.speed),
    Group("latency", "one acknowledged produce at a time", bench_clients.latency),
    Group("produce", "many entries from one client", bench_clients.produce),
    Group("pull", "a backlog, read by a client", bench_clients.pull),
    Group("archive", "a backlog of pruned entries becomes files", bench_archive.archive),
    Group("wake", "a reader that waits has what was answered", bench_waking.wake),
    Group("producers", "many at once, each with one entry", bench_sessions.producers),
    Group("idle", "connections that do nothing", bench_sessions.idle),
    Group("fan-out", "one producer, many followers", bench_sessions.fan_out),
    Group("help", "the command line says what there is", bench_commands.first_help),
    Group("pauses", "the longest step of the loop while it prunes", bench_pauses.pauses),
    Group("ordered", "three machines, one acknowledged produce at a time", bench_cluster.ordered),
    Group("replicated", "three machines, many entries from one client", bench_cluster.replicated),
    Group("chain", "a reader at the far end of a chain", bench_chain.chain),
    Group("distance", "the same over links of 5 ms", bench_chain.distance),
    Group("trips", "round trips of two and three machines", bench_trips.trips),
    Group("far", "round trips over links of 20 ms", bench_trips.far),
    Group("resting", "machines that have nothing to do", bench_cluster.resting),
    Group("deaths", "a bridge is killed and starts again", bench_cluster.deaths),
    Group("launch", "ten machines in a chain are started", bench_launch.launch),
    Group("spark", "batch reads by Spark", bench_spark.batch),
    Group("spark-stream", "from a topic through Spark into a topic", bench_spark.stream),
    Group("topics", "many topics", bench_volume.topics),
    Group("batches", "many entries, in batches of 100", bench_volume.batches),
    Group("singles", "many entries, each produced by itself", bench_volume.singles),
)
ENTRIES = 10_000_000


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names = [group.name for group in GROUPS]
    for name in options.group:
        if name not in names:
            parser.error(f"there is no group {name!r}; there are: {', '.join(names)}")
    if not 0 < options.size <= 1:
        parser.error(f"--size is more than 0 and at most 1, not {options.size}")
    wanted = [group for group in GROUPS if not options.group or group.name in options.group]
    facts, began = machine(), time.monotonic()
    print("  ".join(f"{name}: {value}" for name, value in facts.items()))
    table = _Table()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="duckrow-bench-", dir=options.dir) as folder:
        for number_, group in enumerate(wanted, 1):
            table.begin(group, f"{number_} of {len(wanted)}")
            try:
                at = pace()
                table.say(f"  a turn of a plain loop takes {at:.0f} ns")
                for figure in run(group, Path(folder), options.entries, options.size, table):
                    table.row(figure)
                    about = {"group": group.name, "loop_ns": round(at, 1)}
                    results.append({**about, **figure.as_json()})
            except NoRoomError as error:
                table.say(f"{group.name}: left out: {error}")
                results.append({"group": group.name, "left_out": str(error)})
    missed = [f"{each['group']}: {each['name']}" for each in results if each.get("met") is False]
    met = sum(each.get("met") is True for each in results)
    table.say(
        "",
        f"{len(results)} figures in {time.monotonic() - began:.0f} s; {met} of "
        f"{met + len(missed)} targets are met",
    )
    if missed:
        table.say("missed:", *(f"  {each}" for each in missed))
    if options.json is not None:
        run_ = {"entries": options.entries, "size": options.size, "machine": facts}
        text = json.dumps({**run_, "figures": results}, indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n")
    return 0


def run(
    group: Group, folder: Path, entries: int, size: float, table: _Table | None = None
) -> Iterator[Figure]:
    """The figures of one group; its files are gone afterwards.

    Raises:
        NoRoomError: it cannot be run here.
    """
    place = folder / group.name
    place.mkdir()
    tell = (lambda _text: None) if table is None else table.progress
    scaled = max(1, int(entries * size))
    try:
        yield from group.run(Settings(folder=place, entries=scaled, size=size, tell=tell))
    finally:
        shutil.rmtree(place)


def _parser() -> argparse.ArgumentParser:
    about, examples, notes = (__doc__ or "").split("\n\n", 2)
    groups = "\n".join(f"  {group.name:12} {group.what}" for group in GROUPS)
    parser = argparse.ArgumentParser(
        prog="python -m duckrow.tools.bench",
        description=f"{about}\n\ngroups:\n{groups}",
        epilog=f"examples:\n{examples}\n\n{notes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("group", nargs="*", metavar="GROUP", help="default: all")
    parser.add_argument(
        "--size", type=float, default=1.0, help="of everything; less is quicker and less exact"
    )
    parser.add_argument(
        "--entries",
        type=int,
        default=ENTRIES,
        help=f"of batches and singles (default {ENTRIES:,})",
    )
    parser.add_argument("--dir", type=Path, help="where the files go: the disk that is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    return parser


class _Table:
    """Rows as they come; meanwhile, on stderr, what is being done."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._headed = False

    def begin(self, group: Group, which: str) -> None:
        if not self._headed:
            self._headed = True
            self.say("", _line("figure", "measured", "eight of ten", "unit", "target", ""))
        self.say("", f"{group.name}: {group.what}")
        self._tell(f"{group.name} ({which}) ...")

    def row(self, figure: Figure) -> None:
        rounds = figure.rounds
        self.say(
            _line(
                f"  {figure.name}",
                number(figure.measured),
                "" if rounds is None else f"{number(rounds.low)} - {number(rounds.high)}",
                figure.unit,
                "" if figure.target is None else str(figure.target),
                {None: "", True: "met", False: "MISSED"}[figure.met],
            )
        )
        self.say(*(f"    {line}" for line in textwrap.wrap(figure.note, _WIDTH)))

    def progress(self, text: str) -> None:
        if self._terminal:
            self._tell(text)

    def say(self, *lines: str) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        for line in lines:
            print(line, flush=True)

    def _tell(self, text: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


_WIDTH = 108


def _line(*fields: str) -> str:
    return "{:54} {:>8} {:>16} {:14} {:>9} {}".format(*fields).rstrip()


if __name__ == "__main__":
    sys.exit(main())
