"""`duckrow bench`: what a node does here, as a client sees it; one row for each case."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from . import lateshow, loads
from .clients import client_of
from .command import DONE, Args, Command, Option, option, size, whole
from .console import Console
from .output import output_of
from .rows import Row
from .samples import percentiles_ms

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
    from duckrow.node.errors import Timeout

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
                if not arrived.acquire(timeout=PATIENCE):
                    raise Timeout(f"an entry was not read for {PATIENCE:g} s")
                times.append(seen[number] - start)
                progress.add(1)
        thread.join(PATIENCE)
        return _row("latency", args, time.perf_counter() - began, times)

    return _run(args, console, case)


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
        **percentiles_ms(times),
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
    *loads.COMMANDS,
    *lateshow.COMMANDS,
)
