"""`duckrow pipeline compact`: many small files of an archive become few."""

from __future__ import annotations

from typing import Final

from ..command import DONE, FAILED, Args, Command, option, whole
from ..console import Console
from .given import OF_ARCHIVE, ON_SPARK, archive_of, put, spark_of

COMPACT: Final = ("archive", "made", "before", "after", "failed")
ENTRIES: Final = 1 << 20


def run(args: Args, console: Console) -> int:
    from .compacting import compacted, jobs
    from .session import session
    from .watching import watched

    place = archive_of(args, console)
    before = len(place.files(args.topic))
    found = jobs(place, args.topic, args.entries)
    done: list[tuple[str, str]] = []
    if found:
        with session(spark_of(args)) as spark, watched(spark, console):
            done = compacted(spark, place, found)
    failed = [{"file": file, "why": why} for file, why in done if why]
    row = {
        "archive": str(place),
        "made": len(done) - len(failed),
        "before": before,
        "after": len(place.files(args.topic)),
        "failed": failed,
    }
    put(args, console, COMPACT, [row], one=True)
    return FAILED if failed else DONE


COMMAND: Final = Command(
    "pipeline compact",
    "Make few large files of the many small ones of an archive",
    run,
    (
        option("topic", said="only this one", many="?"),
        OF_ARCHIVE,
        option(
            "--entries",
            kind=whole(2),
            default=ENTRIES,
            metavar="N",
            said=f"of a large file: a multiple of what the small ones have ({ENTRIES:,})",
        ),
        *ON_SPARK,
    ),
    ("duckrow pipeline compact rides --archive ./archive --entries 4",),
    more="A large file is made when all of its entries are there, and ends at a multiple of N, so names and\n"
    "rows are the same from every node.  Small files go when it was read again.  Exit code 1: a file\n"
    "could not be made, and nothing of it was deleted.",
    url=True,
    rows=True,
)
