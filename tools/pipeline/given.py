"""What the commands of jobs have alike: their options, and the node that a job reads and writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ..clients import client_of
from ..command import Args, option
from ..console import Console

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrow.node.archiveplace import Place

MASTER: Final = option(
    "--master",
    default="local[*]",
    said="of Spark: local[N], spark://host:port, or sc://host of Spark Connect (local[*])",
)
ARCHIVE: Final = option(
    "--archive",
    metavar="PLACE",
    said="read what was pruned from this archive, as the tasks of Spark find it",
)


def node_of(args: Args, console: Console) -> dict[str, str]:
    """The options of the data source that say which nodes."""
    from duckrow.node.addresses import own_socket, url_of

    url = args.url or console.environ.get("DUCKROW_URL")
    found = {"nodes": url or url_of(own_socket(console.environ, os.getuid()))}
    if token := console.environ.get("DUCKROW_TOKEN"):
        found["token"] = token
    return found


def archive_of(args: Args, console: Console) -> Place:
    """The one that was named, or that the node knows.

    Raises:
        NotFound: there is none.
    """
    from ..cli_archive import place_of

    return place_of(args, console, args.archive, "--archive")


def topics_of(args: Args, console: Console) -> list[str]:
    """Those that were named, or all.

    Raises:
        NotFound: there is none of that name, or none at all.
    """
    from duckrow.node.errors import NotFound

    with client_of(args, console) as client:
        there = client.topics()
    if missing := [name for name in args.topic if name not in there]:
        raise NotFound(f"there is no topic {missing[0]!r}")
    if not there:
        raise NotFound("there are no topics")
    return list(args.topic) or there


def entries_of(spark: SparkSession, node: dict[str, str], **options: str) -> DataFrame:
    """What there is now."""
    return spark.read.format("duckrow").options(**node, **options).load()
