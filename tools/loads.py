"""`duckrow bench fanout|matrix|topics`: experiments with many clients, which also check what they saw."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .clusters import found_at
from .command import DONE, FAILED, Args, Command, Option, option, seconds, size, whole
from .console import Console
from .output import output_of
from .samples import percentiles_ms

if TYPE_CHECKING:
    from duckrow import Client

MATRIX: Final = (
    "case",
    "producers",
    "consumers",
    "topics",
    "entries",
    "rate",
    "think",
    "size",
    "seconds",
    "deliveries",
    "deliveries_per_second",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
    "ok",
)
TOPICS: Final = (
    "case",
    "topics",
    "clients",
    "count",
    "size",
    "seconds",
    "rate",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
    "ok",
)
RATES: Final = {"slow": 10.0, "medium": 100.0, "fast": 0.0}  # entries a second
THINKS: Final = {"slow": 0.02, "medium": 0.002, "fast": 0.0}  # seconds for an entry


def matrix(args: Args, console: Console) -> int:
    """Every combination of what was given; also whether everybody saw what they should have."""
    from . import matrix as experiment

    wanted = experiment.cases(
        args.producers, args.consumers, args.topics, args.messages, args.rate, args.think
    )
    output = output_of(console, args.output, MATRIX)
    kind = getattr(args, "case", "matrix")
    right = True
    for number, case in enumerate(wanted):
        name = f"bench-{time.time_ns()}-{number}"
        outcome = experiment.run(case, _connect(args, console), name, args.size, console.sleep)
        ok = experiment.is_right(case, outcome)
        right = right and ok
        deliveries = sum(len(row) for topic in outcome.rows for row in topic)
        row = {
            "case": kind,
            **case._asdict(),
            "size": args.size,
            "seconds": round(outcome.seconds, 4),
            "deliveries": deliveries,
            "deliveries_per_second": round(deliveries / outcome.seconds),
            **percentiles_ms(outcome.delays),
            "ok": ok,
        }
        output.put([row])
        for error in outcome.errors:
            console.say(f"duckrow: {error}")
    output.close()
    return DONE if right else FAILED


def fanout(args: Args, console: Console) -> int:
    args.case, args.producers, args.topics = "fanout", [1], [1]
    return matrix(args, console)


def topics(args: Args, console: Console) -> int:
    """The same entries over few topics and over many."""
    from . import spread

    output = output_of(console, args.output, TOPICS)
    right = True
    for number in args.topics:
        name = f"bench-{time.time_ns()}"
        with console.progress("produced", args.count) as progress:
            outcome = spread.run(
                _connect(args, console),
                name,
                topics=number,
                clients=args.clients,
                count=args.count,
                size=args.size,
                tell=progress.add,
            )
        right = right and outcome.ok
        row = {
            "case": "topics",
            "topics": number,
            "clients": args.clients,
            "count": args.count,
            "size": args.size,
            "seconds": round(outcome.seconds, 4),
            "rate": round(args.count / outcome.seconds),
            **percentiles_ms(outcome.times),
            "ok": outcome.ok,
        }
        output.put([row])
    output.close()
    return DONE if right else FAILED


def _connect(args: Args, console: Console) -> Callable[[int], Client]:
    """The n-th client: at the node, or at the machines of a cluster in turns."""
    if not args.dir:
        return lambda _number: client_of(args, console)
    cluster = found_at(args, console)
    return lambda number: cluster.connect(number % len(cluster.machines))


def several(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A kind of option: several of a kind, with commas between them."""
    return lambda text: [kind(each) for each in text.split(",")]


def some_bytes(text: str) -> int:
    """Of an entry that says who produced it, as which of how many, and when."""
    from .matrix import HEAD_BYTES

    found = size(text)
    if found < HEAD_BYTES:
        raise argparse.ArgumentTypeError(
            f"an entry here has at least {HEAD_BYTES} bytes, not {text}"
        )
    return found


def per_second(text: str) -> float:
    """Entries a second; 0: as many as can be."""
    if text in RATES:
        return RATES[text]
    if not text.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no rate: write entries a second, 0, or {', '.join(RATES)}"
        )
    return float(text)


def thinking(text: str) -> float:
    """Seconds for an entry."""
    return THINKS[text] if text in THINKS else seconds(text)


_DIR: Final = option(
    "--dir", metavar="DIR", said="the cluster that runs there: clients are at all of its machines"
)


def _crowd(**said: str) -> tuple[Option, ...]:
    return (
        option(
            "--consumers",
            "-c",
            kind=several(whole(1)),
            default=[1],
            metavar="N,...",
            said="how many consumers; each reads all topics (1)",
        ),
        option(
            "--messages",
            "--count",
            "-n",
            kind=whole(1),
            default=100,
            said="entries of a producer a topic (100)",
        ),
        option(
            "--size",
            kind=some_bytes,
            default=100,
            metavar="B",
            said="bytes of each, at least 16 (100)",
        ),
        option(
            "--rate",
            kind=several(per_second),
            default=[0.0],
            metavar="R,...",
            said="entries a second of each producer; slow, medium and fast are 10, 100 and 0: as many as "
            "can be (0)",
        ),
        option(
            "--think",
            kind=several(thinking),
            default=[0.0],
            metavar="D,...",
            said="how long a consumer takes for an entry, as in 1ms; slow, medium and fast are 20ms, 2ms "
            "and 0 (0)",
        ),
        _DIR,
    )


_CHECKED: Final = """\
All combinations are tried, a row each.  ok: every consumer saw every entry once, those of a
producer in order, and all consumers the same row; if not, the exit code is 1."""

COMMANDS: Final = (
    Command(
        "bench fanout",
        "Time one producer and many consumers",
        fanout,
        _crowd(),
        ("duckrow bench fanout --consumers 1,7,12 --messages 14",),
        more=_CHECKED,
        url=True,
        rows=True,
    ),
    Command(
        "bench matrix",
        "Try producers, consumers and topics in all combinations, and check what they see",
        matrix,
        (
            option(
                "--producers",
                "-p",
                kind=several(whole(1)),
                default=[1],
                metavar="N,...",
                said="how many producers; each writes to all topics (1)",
            ),
            option(
                "--topics",
                "-t",
                kind=several(whole(1)),
                default=[1],
                metavar="N,...",
                said="how many topics (1)",
            ),
            *_crowd(),
        ),
        (
            "duckrow bench matrix --producers 1,3 --consumers 1,3 --topics 1,2 --messages 10",
            "duckrow bench matrix --rate medium,fast --think fast,5ms --messages 10 -o csv",
        ),
        more=_CHECKED,
        url=True,
        rows=True,
    ),
    Command(
        "bench topics",
        "Compare one topic with many: the same entries, spread over so many",
        topics,
        (
            option(
                "--topics",
                "-t",
                kind=several(whole(1)),
                default=[1, 100],
                metavar="N,...",
                said="how many topics (1,100)",
            ),
            option("--clients", kind=whole(1), default=4, said="that produce at once (4)"),
            option("--count", "-n", kind=whole(1), default=2_000, said="entries in all (2,000)"),
            option("--size", kind=size, default=100, metavar="B", said="bytes of each (100)"),
            _DIR,
        ),
        ("duckrow bench topics --topics 1,20 --count 400",),
        more="Each client waits for each of its answers; the times are those of single calls.  ok: every entry\n"
        "is there, once.  The topics are new ones, made before the clock starts and removed afterwards.",
        url=True,
        rows=True,
    ),
)
