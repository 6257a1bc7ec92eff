"""`duckrow pipeline audit`: whether several nodes have the same entries."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ..cli_verify import each_of
from ..clients import client_of
from ..command import DONE, FAILED, Args, Command, option, whole
from ..console import Console
from .given import ON_SPARK, TOPICS, put, spark_of

if TYPE_CHECKING:
    from .nodes import Seen

AUDIT: Final = (
    "same",
    "nodes",
    "entries",
    "behind",
    "segments",
    "suspects",
    "gaps",
    "duplicates",
    "changed",
    "differences",
)
DIFFERENCES: Final = 100


def run(args: Args, console: Console) -> int:
    from duckrow.node.errors import NotFound

    from .audit import behind, common, segments_of
    from .auditing import audited
    from .session import session

    nodes = _seen(args, console)
    extents = [each.extents for each in nodes]
    there = {topic for each in extents for topic, _ in each}
    if missing := [name for name in args.topic if name not in there]:
        raise NotFound(f"there is no topic {missing[0]!r} at any of these nodes")
    stretches = common(extents)
    row = {
        "same": True,
        "nodes": [each.name for each in nodes],
        "entries": sum(map(len, stretches)),
        "behind": behind(extents),
        "segments": sum(1 for _ in segments_of(stretches)),
    }
    with session(spark_of(args)) as spark:
        row |= audited(spark, console, nodes, stretches, args.limit)
    put(args, console, AUDIT, [row], one=True)
    if not row["entries"] and row["behind"]:
        console.say("nothing was compared: no entry is at all of these nodes")
        return FAILED
    return DONE if row["same"] else FAILED


def _seen(args: Args, console: Console) -> list[Seen]:
    """Every node that was named has to answer.

    Raises:
        DuckrowError: one does not.
    """
    from duckrow.node.addresses import own_socket, url_of

    from .nodes import Seen, archives, extents, named

    token = console.environ.get("DUCKROW_TOKEN", "")
    found = []
    with ExitStack() as stack:
        urls = each_of(args, console)
        for url, archive in zip(urls, archives(args.archive or (), len(urls)), strict=True):
            client = stack.enter_context(client_of(args, console, url))
            at = url or url_of(own_socket(console.environ, os.getuid()))
            there = extents(client, args.topic, archive)
            found.append(Seen(client.status()["node"], at, token, there, archive))
    return named(found)


COMMAND: Final = Command(
    "pipeline audit",
    "Compare the entries of several nodes, and tell gaps, duplicates and what is changed",
    run,
    (
        TOPICS,
        option("--cluster", metavar="FILE", said="the nodes are those of this cluster file"),
        option(
            "--limit",
            kind=whole(0),
            default=DIFFERENCES,
            metavar="N",
            said=f"differences that are listed; all are counted ({DIFFERENCES})",
        ),
        option(
            "--archive",
            metavar="PLACE",
            many="repeat",
            said="compare what was pruned, too: an archive for all nodes, or one for each",
        ),
        *ON_SPARK,
    ),
    (
        "duckrow pipeline audit",
        "duckrow pipeline audit rides --master 'local[2]' -o json",
    ),
    more="The nodes are the addresses of the URL, and each has to answer.  They are compared where all have\n"
    "entries; `behind` are those that some are still to get.  First sums of segments are compared, then\n"
    "the entries of those that differ.  Exit code 1: something was found, or nothing was compared.",
    url=True,
    rows=True,
)
