"""`duckrow bench`: what a node does here, as a client sees it; one row for each case."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .command import DONE, FAILED, Args, Command, Option, option, seconds, size, whole
from .console import Console
from .output import output_of
from .rows import Row

if TYPE_CHECKING:
    from duckrow import Client

FIELDS: Final = (
    "case",
    "count",
    "size",
    "batch",
    "wait",
    "seconds",
    "rate",
    "mb_per_second",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
)
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
PAGE: Final = 65_536
PAGE_BYTES: Final = 4 * 1024 * 1024
PATIENCE: Final = 30.0  # for one entry, seconds


def produce(args: Args, console: Console) -> int:
    def case(client: Client, topic: str) -> Row:
        values = [bytes(args.size)] * args.batch
        times: list[float] = []
        began = time.perf_counter()
        with console.progress("produced", args.count) as progress:
            for done in range(0, args.count, args.batch):
                some = values[: args.count - done]
                start = time.perf_counter()
                if args.batch == 1:
                    client.produce(topic, some[0], wait=args.wait)
                else:
                    client.produce_many(topic, some, wait=args.wait)
                times.append(time.perf_counter() - start)
                progress.add(len(some))
            client.flush()
        return _row("produce", args, time.perf_counter() - began, times)

    return _run(args, console, case)


def consume(args: Args, console: Console) -> int:
    def case(client: Client, topic: str) -> Row:
        _fill(client, topic, args, console)
        times: list[float] = []
        after: Any = 0
        left = args.count
        began = time.perf_counter()
        with console.progress("consumed", args.count) as progress:
            while left:
                start = time.perf_counter()
                found = client.pull(topic, after, limit=PAGE, max_bytes=PAGE_BYTES)
                if args.take == "entries":
                    for _ in found:
                        pass
                times.append(time.perf_counter() - start)
                after = found.after
                left -= len(found)
                progress.add(len(found))
        return _row(f"consume {args.take}", args, time.perf_counter() - began, times)

    return _run(args, console, case)


def latency(args: Args, console: Console) -> int:
    """From before the produce to when a blocked pull of another client has the entry."""

    def case(client: Client, topic: str) -> Row:
        seen: list[float] = []
        waiting, arrived = threading.Semaphore(0), threading.Semaphore(0)
        client.produce(topic, b"first")

        def read() -> None:
            with client_of(args, console) as reader:
                after: Any = 1
                for _ in range(args.count):
                    waiting.release()
                    after = reader.pull(topic, after, wait=PATIENCE).after
                    seen.append(time.perf_counter())
                    arrived.release()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        times: list[float] = []
        began = time.perf_counter()
        with console.progress("measured", args.count) as progress:
            for number in range(args.count):
                waiting.acquire(timeout=PATIENCE)
                start = time.perf_counter()
                client.produce(topic, bytes(args.size), wait=args.wait)
                arrived.acquire(timeout=PATIENCE)
                times.append(seen[number] - start)
                progress.add(1)
        thread.join(PATIENCE)
        return _row("latency", args, time.perf_counter() - began, times)

    return _run(args, console, case)


def matrix(args: Args, console: Console) -> int:
    """Every combination of what was given; also whether everybody saw what they should have."""
    from . import matrix as experiment

    wanted = experiment.cases(
        args.producers, args.consumers, args.topics, args.count, args.rate, args.think
    )
    output = output_of(console, args.output, MATRIX)
    kind = getattr(args, "case", "matrix")
    right = True
    for number, case in enumerate(wanted):
        name = f"bench-{time.time_ns()}-{number}"
        outcome = experiment.run(
            case, lambda: client_of(args, console), name, args.size, console.sleep
        )
        ok = experiment.is_right(case, outcome)
        right = right and ok
        delays = outcome.delays or [0.0]
        deliveries = sum(len(row) for topic in outcome.rows for row in topic)
        row = {
            "case": kind,
            **case._asdict(),
            "size": args.size,
            "seconds": round(outcome.seconds, 4),
            "deliveries": deliveries,
            "deliveries_per_second": round(deliveries / outcome.seconds),
            **_percentiles(delays),
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


def several(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A kind of option: several of a kind, with commas between them."""
    return lambda text: [kind(each) for each in text.split(",")]


def per_second(text: str) -> float:
    """Entries a second; 0: as many as can be."""
    if not text.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: write entries a second, or 0")
    return float(text)


def percentile(sorted_times: Sequence[float], part: float) -> float:
    """The smallest value that so large a part of all is not above."""
    return sorted_times[max(0, -int(-part * len(sorted_times) // 1) - 1)]


def _run(args: Args, console: Console, case: Callable[[Client, str], Row]) -> int:
    topic = f"bench-{time.time_ns()}"
    output = output_of(console, args.output, FIELDS)
    with client_of(args, console) as client:
        try:
            output.put([case(client, topic)])
        finally:
            if not args.keep:
                client.delete_topic(topic)
    output.close()
    return DONE


def _fill(client: Client, topic: str, args: Args, console: Console) -> None:
    with console.progress("prepared", args.count) as progress:
        for done in range(0, args.count, args.batch):
            some = min(args.batch, args.count - done)
            client.produce_many(topic, [bytes(args.size)] * some)
            progress.add(some)


def _row(name: str, args: Args, took: float, times: list[float]) -> Row:
    return {
        "case": name,
        "count": args.count,
        "size": args.size,
        "batch": args.batch,
        "wait": args.wait,
        "seconds": round(took, 4),
        "rate": round(args.count / took),
        "mb_per_second": round(args.count * args.size / took / 1e6, 3),
        **_percentiles(sorted(times)),
    }


def _percentiles(times: Sequence[float]) -> Row:
    return {
        f"{label}_ms": round(1e3 * percentile(times, part), 4)
        for label, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }


def _options(count: int, batch: int) -> tuple[Option, ...]:
    return (
        option("--count", "-n", kind=whole(1), default=count, said=f"how many entries ({count:,})"),
        option("--size", kind=size, default=100, metavar="B", said="bytes of each (100)"),
        option("--batch", kind=whole(1), default=batch, said=f"entries a call ({batch:,})"),
        option(
            "--wait",
            choices=("ordered", "accepted", "none"),
            default="ordered",
            said="what a produce waits for (ordered)",
        ),
        option("--keep", switch=True, said="keep the topic, to look at it"),
    )


_CROWD: Final = (
    option(
        "--consumers",
        "-c",
        kind=several(whole(1)),
        default=[1],
        metavar="N,...",
        said="how many consumers; each reads all topics (1)",
    ),
    option("--count", "-n", kind=whole(1), default=100, said="entries of a producer a topic (100)"),
    option("--size", kind=size, default=100, metavar="B", said="bytes of each, at least 16 (100)"),
    option(
        "--rate",
        kind=several(per_second),
        default=[0.0],
        metavar="R,...",
        said="entries a second of each producer (0: as many as can be)",
    ),
    option(
        "--think",
        kind=several(seconds),
        default=[0.0],
        metavar="D,...",
        said="how long a consumer takes for an entry, as in 1ms (0)",
    ),
)
_CHECKED: Final = """\
All combinations are tried, a row each.  ok: every consumer saw every entry once, those of a
producer in order, and all consumers the same row; if not, the exit code is 1."""
_MORE: Final = (
    "The times are those of single calls.  The topic is a new one, and removed afterwards."
)

COMMANDS: Final = (
    Command(
        "bench produce",
        "Produce as fast as one client can",
        produce,
        _options(100_000, 1_000),
        (
            "duckrow bench produce --count 10000",
            "duckrow bench produce --count 200 --batch 1 -o json",
        ),
        more=_MORE,
        url=True,
        rows=True,
    ),
    Command(
        "bench consume",
        "Read a backlog as fast as one client can",
        consume,
        (
            *_options(100_000, 10_000),
            option(
                "--take",
                choices=("entries", "columns"),
                default="entries",
                said="whether an object is made of each (entries)",
            ),
        ),
        ("duckrow bench consume --count 10000 --take columns",),
        more=_MORE,
        url=True,
        rows=True,
    ),
    Command(
        "bench latency",
        "Time entries from a producer to a waiting reader",
        latency,
        _options(1_000, 1),
        ("duckrow bench latency --count 100",),
        more=_MORE,
        url=True,
        rows=True,
    ),
    Command(
        "bench fanout",
        "Time one producer and many consumers",
        fanout,
        _CROWD,
        ("duckrow bench fanout --consumers 1,7,12 --count 14",),
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
            *_CROWD,
        ),
        (
            "duckrow bench matrix --producers 1,3 --consumers 1,3 --topics 1,2 --count 10",
            "duckrow bench matrix --rate 50,200 --think 0,5ms --count 10 -o csv",
        ),
        more=_CHECKED,
        url=True,
        rows=True,
    ),
)
