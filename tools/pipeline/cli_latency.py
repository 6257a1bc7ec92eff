"""`duckrow pipeline latency`: what the samples of `duckrow rtt` come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..clients import client_of
from ..command import DONE, FAILED, Args, Command, UsageError, option
from ..console import Console
from ..output import output_of
from .given import ARCHIVE, MASTER, entries_of, node_of

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
    from .session import session, watched

    _check(args, console)
    for path in args.plot or ():
        plots.ready(path)
    with session(args.master) as spark, watched(spark, console):
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
    output = output_of(console, args.output, REPORT, columns=SHOWN)
    output.put(found)
    output.close()
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
        if "://" not in path and not Path(path).exists():
            raise NotFound(f"{path}: there is no such file")
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
        more = {"archive": args.archive} if args.archive else {}
        entries = entries_of(spark, node_of(args, console), subscribe=args.topic, **more)
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
        MASTER,
    ),
    ("duckrow pipeline latency trips --plot trips.png --plot trips.svg",),
    more="A row for each case: chain length, topology, bytes, durability and links.  relay_*: the same over\n"
    "plain TCP relays; ratio: p50 by theirs.  A sample that is in several places counts once.",
    url=True,
    rows=True,
)
