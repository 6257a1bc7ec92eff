"""`duckrow pipeline topics`: what came into topics, window by window."""

from __future__ import annotations

from typing import Final

from ..command import DONE, Args, Command, UsageError, duration_us, option
from ..console import Console
from ..moments import show_time
from ..output import output_of
from .given import ARCHIVE, MASTER, entries_of, node_of, topics_of

MINUTE: Final = 60_000_000  # microseconds


def run(args: Args, console: Console) -> int:
    from .session import session, watched
    from .topics import STATISTICS, statistics

    if args.window < 1:
        raise UsageError("--window: it is longer than nothing, as in 10s, 1m, 1h")
    topics = topics_of(args, console)
    more = {"archive": args.archive} if args.archive else {}
    with session(args.master) as spark, watched(spark, console):
        entries = entries_of(
            spark,
            node_of(args, console),
            subscribe=",".join(topics),
            includeMetadata="true",
            **more,
        )
        found = [_shown(row.asDict()) for row in statistics(entries, args.window).collect()]
    output = output_of(console, args.output, STATISTICS)
    output.put(found)
    output.close()
    return DONE


def _shown(row: dict[str, object]) -> dict[str, object]:
    times = {name: show_time(us) for name in ("from", "to") if isinstance(us := row[name], int)}
    return row | times


COMMAND: Final = Command(
    "pipeline topics",
    "What came into topics, window by window of the time of the row",
    run,
    (
        option("topic", said="only these", many="*"),
        option(
            "--window",
            kind=duration_us,
            default=MINUTE,
            metavar="TIME",
            said="how long a window is, as in 10s, 1m, 1h (1m)",
        ),
        ARCHIVE,
        MASTER,
    ),
    ("duckrow pipeline topics rides --window 10s",),
    more="Windows without an entry have no row.  `bytes` are those of keys and values; `producers` and `keys`\n"
    "are how many different ones there are, within a few percent.",
    url=True,
    rows=True,
)
