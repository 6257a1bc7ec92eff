"""`duckrow pipeline metrics`: measurements of a topic come into a table of PostgreSQL."""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ..clients import client_of
from ..command import DONE, INTERRUPTED, Args, Command, UsageError, option
from ..console import Console, Progress
from .given import ARCHIVE, ON_SPARK, put, source_of, spark_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

METRICS: Final = ("topic", "table", "entries", "others", "added")
TO: Final = "DUCKROW_POSTGRES"
LOOK_EVERY: Final = 1  # seconds


def run(args: Args, console: Console) -> int:
    from .session import ready, session, signals

    to = args.to or console.environ.get(TO)
    if not to:
        raise UsageError(f"say into which database, with --to URL or {TO}")
    with client_of(args, console) as client:
        client.topic(args.topic)
    ready(spark_of(args))
    from .postgres import count, prepare

    prepare(to, args.table)
    before = count(to, args.table, args.topic)
    with session(spark_of(args)) as spark, ExitStack() as stack:
        folder = args.checkpoint or stack.enter_context(tempfile.TemporaryDirectory())
        came = stack.enter_context(signals())
        query = _query(spark, args, console, to, folder)
        with console.progress("read") as progress:
            entries, others = _watched(query, came, progress)
    row = {
        "topic": args.topic,
        "table": args.table,
        "entries": entries,
        "others": others,
        "added": count(to, args.table, args.topic) - before,
    }
    put(args, console, METRICS, [row], one=True)
    if others:
        console.say(f"{others:,} entries are no measurements, and left out")
    return INTERRUPTED if signal.SIGINT in came else DONE


def _query(
    spark: SparkSession, args: Args, console: Console, to: str, checkpoint: str
) -> StreamingQuery:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from .metrics import is_measurement, measurements
    from .postgres import FORMAT, PostgresSink

    spark.dataSource.register(PostgresSink)
    options = {**source_of(args, console), "subscribe": args.topic, "startingOffsets": "earliest"}
    options |= {"includeMetadata": "true", "maxOffsetsPerTrigger": "200000"}
    entries = spark.readStream.format("duckrow").options(**options).load()
    seen = measurements(entries).observe(
        "seen", F.count_if(~is_measurement()).alias("others"), F.count("*").alias("entries")
    )
    writer = (
        seen.where(is_measurement())
        .writeStream.format(FORMAT)
        .options(to=to, table=args.table)
        .option("checkpointLocation", checkpoint)
    )
    return (writer if args.follow else writer.trigger(availableNow=True)).start()


def _watched(query: StreamingQuery, came: list[int], progress: Progress) -> tuple[int, int]:
    """Until it ends: how many entries it has read, and how many of them are no measurements."""
    from .metrics import observed

    entries = others = 0
    last = -1  # the batch that was counted last
    ended = False
    try:
        while not ended:
            ended = bool(query.awaitTermination(LOOK_EVERY)) or bool(came)
            for each in query.recentProgress:
                if each.batchId > last and "seen" in each.observedMetrics:
                    found = observed(each.observedMetrics["seen"])
                    entries += found["entries"]
                    others += found["others"]
                    last = each.batchId
            progress.add(entries - progress.done)
    finally:
        query.stop()
    return entries, others


COMMAND: Final = Command(
    "pipeline metrics",
    "Put the measurements of a topic into a table of PostgreSQL, each once",
    run,
    (
        option(
            "topic", said="of entries like {'name': 'response_ms', 'value': 12.5, ...}, in JSON"
        ),
        option("--to", metavar="URL", said=f"of the database; else {TO}"),
        option("--table", default="metrics", said="made if there is none (metrics)"),
        option(
            "--checkpoint",
            metavar="DIR",
            said="where Spark keeps how far it is; without it everything is read again",
        ),
        option("--follow", switch=True, said="go on with what comes, until Ctrl-C"),
        ARCHIVE,
        *ON_SPARK,
    ),
    ("duckrow pipeline metrics measured --table loads",),
    more="What an entry has beside `name` and `value` is in the column `labels`.  The key of a row is the\n"
    "entry, so what is read again, for whatever reason, adds nothing.  The URL is one of libpq, which\n"
    "also knows PGPASSWORD and ~/.pgpass.",
    url=True,
    rows=True,
)
