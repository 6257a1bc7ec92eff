"""`duckrow pipeline latency`: what the samples of `duckrow rtt` come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..clients import client_of
from ..command import DONE, FAILED, Args, Command, UsageError, option
from ..console import Console
from .given import ARCHIVE, ON_SPARK, entries_of, put, source_of, spark_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS: Final = (".csv", ".jsonl", ".parquet")
SHOWN: Final = (  # of a table; the links' jitter, loss and rate are in the other forms
    "nodes",
    "topology",
    "hops",
    "size",
    "durability",
    "delay_ms",
    "runs",
    "count",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
    "relay_p50_ms",
    "ratio",
)


def run(args: Args, console: Console) -> int:
    from .. import plots
    from .latency import REPORT, is_sample, report
    from .session import session
    from .watching import watched

    _check(args, console)
    for path in args.plot or ():
        plots.ready(path)
    with session(spark_of(args)) as spark, watched(spark, console):
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        seen = Observation()
        samples = _samples(spark, args, console).observe(
            seen, F.count_if(~is_sample()).alias("others")
        )
        found = [row.asDict() for row in report(samples).collect()]
        others = (
            seen.get["others"] if found else 0
        )  # Spark has seen nothing where it leaves all out
    put(args, console, REPORT, found, columns=SHOWN)
    if others:
        console.say(f"{others:,} entries or lines are no samples of `duckrow rtt`, and left out")
    if not found:
        console.say("there are no samples")
        return FAILED
    for path in args.plot or ():
        plots.draw_cases(path, found)
    return DONE


def _check(args: Args, console: Console) -> None:
    """Before Spark begins.

    Raises:
        UsageError: nothing is to be read.
        Refused, NotFound: it cannot be.
    """
    from duckrow.node.errors import NotFound, Refused

    if not (args.topic or args.samples):
        raise UsageError("say where the samples are: a TOPIC, or --samples FILE")
    for path in args.samples or ():
        if Path(path).suffix not in KINDS:
            raise Refused(f"{path}: samples are in a file that ends in {', '.join(KINDS)}")
        if "://" in path:
            continue
        if not args.remote and not Path(path).exists():
            raise NotFound(f"{path}: there is no such file")
        if args.remote and not Path(path).is_absolute():
            raise Refused(
                f"{path}: with --remote the server reads the file: write its whole path there"
            )
    if args.topic:
        with client_of(args, console) as client:
            client.topic(args.topic)


def _samples(spark: SparkSession, args: Args, console: Console) -> DataFrame:
    from functools import reduce

    from .latency import samples_of, schema

    tables = []
    for path in args.samples or ():
        reader = spark.read.schema(schema())
        match Path(path).suffix:
            case ".csv":
                tables.append(reader.option("header", "true").csv(path))
            case ".jsonl":
                tables.append(reader.json(path))
            case _:
                tables.append(reader.parquet(path))
    if args.topic:
        entries = entries_of(spark, source_of(args, console), subscribe=args.topic)
        tables.append(samples_of(entries))
    return reduce(lambda one, other: one.unionByName(other), tables)


COMMAND: Final = Command(
    "pipeline latency",
    "Percentiles of the round trips that were recorded, by chain length, topology and payload",
    run,
    (
        option("topic", said="where `duckrow rtt --record` put them", many="?"),
        option(
            "--samples",
            metavar="FILE",
            many="repeat",
            said="a file of `duckrow rtt --samples`; may come again",
        ),
        option(
            "--plot",
            metavar="FILE",
            many="repeat",
            said="draw it: a file that ends in .png, .svg or .pdf; may come again",
        ),
        ARCHIVE,
        *ON_SPARK,
    ),
    ("duckrow pipeline latency trips --plot trips.png --plot trips.svg",),
    more="A row for each case: chain length, topology, bytes, durability and links.  relay_*: the same over\n"
    "plain TCP relays; ratio: p50 by theirs.  A sample that is in several places counts once.",
    url=True,
    rows=True,
)
