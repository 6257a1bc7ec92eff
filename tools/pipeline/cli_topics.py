"""`duckrow pipeline topics`: what came into topics, window by window."""

from __future__ import annotations

from typing import Final

from ..command import DONE, Args, Command, UsageError, duration_us, option
from ..console import Console
from ..moments import show_time
from .given import ARCHIVE, ON_SPARK, TOPICS, entries_of, put, source_of, spark_of, topics_of

MINUTE: Final = 60_000_000  # microseconds


def run(args: Args, console: Console) -> int:
    from .session import session
    from .topics import STATISTICS, statistics
    from .watching import watched

    if args.window < 1:
        raise UsageError("--window: it is longer than nothing, as in 10s, 1m, 1h")
    topics = topics_of(args, console)
    with session(spark_of(args)) as spark, watched(spark, console):
        entries = entries_of(
            spark,
            source_of(args, console),
            subscribe=",".join(topics),
            includeMetadata="true",
        )
        found = [_shown(row.asDict()) for row in statistics(entries, args.window).collect()]
    put(args, console, STATISTICS, found)
    return DONE


def _shown(row: dict[str, object]) -> dict[str, object]:
    times = {name: show_time(us) for name in ("from", "to") if isinstance(us := row[name], int)}
    return row | times


COMMAND: Final = Command(
    "pipeline topics",
    "What came into topics, window by window of the time of the row",
    run,
    (
        TOPICS,
        option(
            "--window",
            kind=duration_us,
            default=MINUTE,
            metavar="TIME",
            said="how long a window is, as in 10s, 1m, 1h (1m)",
        ),
        ARCHIVE,
        *ON_SPARK,
    ),
    ("duckrow pipeline topics rides --window 10s",),
    more="Windows without an entry have no row.  `bytes` are those of keys and values; `producers` and `keys`\n"
    "are how many different ones there are, within a few percent.",
    url=True,
    rows=True,
)
