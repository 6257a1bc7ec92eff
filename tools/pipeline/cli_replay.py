"""`duckrow pipeline replay`: archived history comes into a topic again."""

from __future__ import annotations

import re
from typing import Final

from ..clients import client_of
from ..command import DONE, Args, Command, UsageError, option, whole
from ..console import Console
from .given import OF_ARCHIVE, ON_SPARK, archive_of, node_of, put, spark_of

REPLAY: Final = ("topic", "to", "name", "entries", "there", "missing", "runs")
NUMBER_MOST: Final = (1 << 63) - 1
ROUND: Final = 200_000
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


def run(args: Args, console: Console) -> int:
    from .replaying import Into, history, replayed, target
    from .session import session

    name = args.name or args.topic
    if not args.to or args.to == args.topic:
        raise UsageError("say into which other topic, with --to TOPIC")
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}: it has 1 to 128 of a-z A-Z 0-9 . _ -")
    past = history(
        archive_of(args, console), args.topic, args.partition, args.first, args.last or NUMBER_MOST
    )
    with session(spark_of(args)) as spark:
        with client_of(args, console) as client:
            which = target(client, args.to, max(past.wanted) + 1)
        row = {"topic": args.topic, "to": args.to, "name": name}
        into = Into(node_of(args, console), args.to, which, name)
        row |= replayed(spark, console, past, into, args.round)
    put(args, console, REPLAY, [row], one=True)
    return DONE


COMMAND: Final = Command(
    "pipeline replay",
    "Produce archived history to a topic again, in its order",
    run,
    (
        option("topic", said="whose history"),
        option("--to", metavar="TOPIC", said="where it comes in; made if there is none"),
        OF_ARCHIVE,
        option("--partition", kind=whole(0), metavar="P", said="only this one"),
        option("--first", kind=whole(1), default=1, metavar="N", said="from this number on (1)"),
        option("--last", kind=whole(1), metavar="N", said="up to this number (all there is)"),
        option(
            "--name",
            metavar="NAME",
            said="of this replay: what came in under it already is left out (TOPIC)",
        ),
        option(
            "--round",
            kind=whole(1),
            default=ROUND,
            metavar="N",
            said=f"entries of a partition that are numbered at once ({ROUND:,})",
        ),
        *ON_SPARK,
    ),
    ("duckrow pipeline replay rides --to again --archive ./archive",),
    more="Entries keep partition, key, value and headers, and get new numbers and times.  A header more,\n"
    "duckrow.replay, says what an entry was: NAME:TOPIC/PARTITION/NUMBER.  `runs` are the map: entries\n"
    "`first` to `last` of a partition are to_first to to_last now.  Run again, it goes on where it was.",
    url=True,
    rows=True,
)
