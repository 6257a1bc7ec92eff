"""`duckrow verify`: whether all nodes that can be reached have the same row."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .command import DONE, FAILED, Args, Command, option
from .configfiles import cluster_text_of
from .console import Console
from .output import output_of

if TYPE_CHECKING:
    from duckrow import Client

FIELDS: Final = ("same", "position", "nodes", "first_difference")


def run(args: Args, console: Console) -> int:
    from duckrow.cluster.comparing import compared, digest_of
    from duckrow.node.errors import DuckrowError

    with ExitStack() as stack:
        clients: list[tuple[Client, dict[str, Any]]] = []
        failures: list[DuckrowError] = []
        urls = each_of(args, console)
        for url in urls:
            try:
                client = stack.enter_context(client_of(args, console, url))
                clients.append((client, client.status()))
            except DuckrowError as failure:
                failures.append(failure)
        if not clients:
            raise failures[0]
        for error in failures:
            console.say(f"duckrow: {error}")
        row = compared([status for _, status in clients], [digest_of(c) for c, _ in clients])
    output = output_of(console, args.output, FIELDS, one=True)
    output.put([row])
    output.close()
    compares = len(clients) - len(row["unknown"]) > 1 or len(urls) == 1
    if row["unknown"]:
        console.say(
            f"not compared: {', '.join(row['unknown'])}, too far from the others; position "
            f"{row['position']} is the last that all have come to, and not kept there any more"
        )
    elif not compares:
        console.say(f"only {clients[0][1]['node']} answered: there is nothing to compare it with")
    return DONE if row["same"] and compares else FAILED


def each_of(args: Args, console: Console) -> Sequence[str | None]:
    """A URL for each address, or for each member of the cluster file; None: the default alone."""
    from duckrow.node.addresses import read_url, url_of
    from duckrow.node.clusterfile import read_cluster
    from duckrow.node.errors import Refused

    if args.cluster:
        cluster = read_cluster(cluster_text_of(Path(args.cluster)), args.cluster)
        urls = [peer.url for peer in cluster.peers.values() if peer.url and not peer.witness]
        if not urls:
            raise Refused(f"{args.cluster} names no url of a member: say where clients find them")
        return urls
    url = args.url or console.environ.get("DUCKROW_URL")
    return [url_of(address) for address in read_url(url)] if url else [None]


COMMANDS: Final = (
    Command(
        "verify",
        "Compare the rows of all nodes that can be reached",
        run,
        (
            option(
                "--cluster",
                metavar="FILE",
                said="the nodes are the members of this cluster file that have a url, and are no witness",
            ),
        ),
        ("duckrow verify",),
        more="The nodes are the addresses of the URL.  They are compared up to the position that all of them\n"
        "have come to; first_difference is the first one at which they differ.  Exit code 1: they do,\n"
        "or of several there are no two to compare: only one answered, or what the last one of them has is\n"
        "not kept by the others any more (unknown).",
        url=True,
        rows=True,
    ),
)
