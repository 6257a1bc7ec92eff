"""What the commands of jobs have alike: their options, and the node that a job reads and writes."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..clients import client_of
from ..command import Args, UsageError, option
from ..console import Console
from ..output import output_of
from ..rows import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrow.node.archiveplace import Place

LOCAL: Final = "local[*]"  # all cores of this machine
MASTERS: Final = re.compile(r"local(\[.+\])?|yarn|(spark|k8s)://.+")
SERVERS: Final = re.compile(r"sc://.+")


def master(text: str) -> str:
    if not MASTERS.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no master of Spark: local[N], spark://host:port, k8s://host:port or yarn; "
            "a server of Spark Connect is a --remote"
        )
    return text


def server(text: str) -> str:
    if not SERVERS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no server of Spark Connect: sc://host:port")
    return text


ON_SPARK: Final = (
    option(
        "--master",
        kind=master,
        said=f"of Spark: local[N], spark://host:port, k8s://host:port or yarn ({LOCAL})",
    ),
    option(
        "--remote",
        kind=server,
        metavar="URL",
        said="instead of a master: a server of Spark Connect, sc://host:port",
    ),
)
TOPICS: Final = option("topic", said="only these", many="*")
ARCHIVE: Final = option(
    "--archive",
    metavar="PLACE",
    said="read what was pruned from this archive, as the tasks of Spark find it",
)
OF_ARCHIVE: Final = option(
    "--archive", metavar="PLACE", said="the archive; else where the node says"
)


def spark_of(args: Args) -> str:
    """Where Spark is: the address of a master, or of a server of Spark Connect.

    Raises:
        UsageError: it is in two places.
    """
    if args.master and args.remote:
        raise UsageError(f"--master {args.master} and --remote {args.remote}: give one of them")
    return args.remote or args.master or LOCAL


def node_of(args: Args, console: Console) -> dict[str, str]:
    """The options of the data source that say which nodes."""
    from duckrow.node.addresses import own_socket, url_of

    url = args.url or console.environ.get("DUCKROW_URL")
    found = {"nodes": url or url_of(own_socket(console.environ, os.getuid()))}
    if token := console.environ.get("DUCKROW_TOKEN"):
        found["token"] = token
    return found


def source_of(args: Args, console: Console) -> dict[str, str]:
    """As that, and the archive from which what was pruned is read."""
    return node_of(args, console) | ({"archive": args.archive} if args.archive else {})


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


def entries_of(spark: SparkSession, source: dict[str, str], **options: str) -> DataFrame:
    """What there is now."""
    return spark.read.format("duckrow").options(**source, **options).load()


def put(
    args: Args,
    console: Console,
    fields: Sequence[str],
    rows: Sequence[Row],
    *,
    columns: Sequence[str] = (),  # of a table, if it shows fewer
    one: bool = False,  # it is always one row
) -> None:
    """All results of a job."""
    output = output_of(console, args.output, fields, columns=columns, one=one)
    output.put(rows)
    output.close()
