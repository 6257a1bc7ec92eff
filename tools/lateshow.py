"""`duckrow bench late`: what readers at three sites see of what is written at all of them, uneven ways apart."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .command import DONE, FAILED, Args, Command, option, whole
from .console import Console
from .loads import per_second
from .output import output_of
from .rows import Row
from .samples import percentile

if TYPE_CHECKING:
    from duckrow.cluster.local import LocalCluster

    from .lateruns import Outcome

FIELDS: Final = (
    "case",
    "nodes",
    "writers",
    "readers",
    "entries",
    "delays_ms",
    "by_clock_missed",
    "by_site_differing",
    "skipped",
    "twice",
    "reordered",
    "different",
    "arrived_p50_ms",
    "arrived_max_ms",
    "read_p50_ms",
    "read_max_ms",
    "ok",
)
DELAYS_MS: Final = [5.0, 80.0, 40.0]


def run(args: Args, console: Console) -> int:
    from . import lateruns
    from .clusters import ended_like_ctrl_c

    ended_like_ctrl_c()
    with _cluster(args, console) as cluster:
        count = args.messages
        with console.progress("written", count * len(cluster.machines)) as progress:
            outcome = lateruns.run(cluster, count, args.rate, args.readers, progress.add)
        delays = [lateruns.delay_between(cluster, link) for link in cluster.plan.links]
    verdict = outcome.verdict
    output = output_of(console, args.output, FIELDS, one=True)
    output.put([_row(outcome, delays)])
    output.close()
    if not outcome.late:
        console.say("nothing arrived late: the delays are too even, or the writers too slow")
    if not verdict.ok:
        console.say(
            f"duckrow: readers saw the row wrongly: {verdict.skipped} skipped, {verdict.twice} "
            f"twice, {verdict.reordered} out of order, {verdict.different} differ"
        )
    return DONE if verdict.ok else FAILED


def _row(outcome: Outcome, delays: Sequence[float]) -> Row:
    arrived, read = sorted(outcome.arrived_ms) or [0.0], sorted(outcome.read_ms) or [0.0]
    return {
        "case": "late",
        "nodes": len(outcome.sites),
        "writers": len({write.writer for write in outcome.writes}),
        "readers": len(outcome.readers),
        "entries": len(outcome.writes),
        "delays_ms": [round(1e3 * delay, 3) for delay in delays],
        "by_clock_missed": outcome.late,
        "by_site_differing": outcome.differing,
        **outcome.verdict._asdict(),
        "arrived_p50_ms": round(percentile(arrived, 0.5), 3),
        "arrived_max_ms": round(arrived[-1], 3),
        "read_p50_ms": round(percentile(read, 0.5), 3),
        "read_max_ms": round(read[-1], 3),
        "ok": outcome.verdict.ok,
    }


@contextmanager
def _cluster(args: Args, console: Console) -> Iterator[LocalCluster]:
    """The one that runs, or a new one of three machines, each linked with each."""
    from duckrow.cluster.local import LocalCluster
    from duckrow.cluster.plan import Plan, Wires

    if args.dir:
        yield LocalCluster.at(Path(args.dir))
        return
    plan = Plan(nodes=3, topology="mesh", durability="write", wires=Wires())
    delays = dict(zip(plan.links, args.delays, strict=True))
    said = ", ".join(f"m{low}-m{high} {ms:g} ms" for (low, high), ms in delays.items())
    console.say(f"3 machines, links {said}: starting")
    with LocalCluster.launch(plan) as cluster:
        for (low, high), ms in delays.items():
            cluster.link_is(f"m{low}", f"m{high}", Wires(delay=ms / 1e3))
        yield cluster


def three_delays(text: str) -> list[float]:
    """Milliseconds."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.replace(".", "", 1).isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers, as in 5,80,40")
    return [float(part) for part in parts]


def above_zero(text: str) -> float:
    value = per_second(text)
    if not value:
        raise argparse.ArgumentTypeError("writers have to rest: write entries a second, above 0")
    return value


COMMANDS: Final = (
    Command(
        "bench late",
        "Write at three sites with uneven delays, and check what readers at all of them see",
        run,
        (
            option(
                "--delays",
                kind=three_delays,
                default=DELAYS_MS,
                metavar="MS,MS,MS",
                said="one way, between m1 and m2, m1 and m3, m2 and m3 (5,80,40)",
            ),
            option(
                "--messages",
                "--count",
                "-n",
                kind=whole(1),
                default=200,
                said="entries of each writer (200)",
            ),
            option(
                "--rate",
                kind=above_zero,
                default=200.0,
                metavar="R",
                said="entries a second of each writer (200)",
            ),
            option("--readers", kind=whole(1), default=2, said="at each machine (2)"),
            option("--dir", metavar="DIR", said="the cluster that runs there, as it is, instead"),
        ),
        ("duckrow bench late --messages 40",),
        more="by_clock_missed, by_site_differing: what became of the same entries, at the same moments, in\n"
        "a log of three sites without an agreement.  skipped, twice, reordered, different: what readers\n"
        "of the row saw; if any of it is not 0 the exit code is 1.",
        rows=True,
    ),
)
