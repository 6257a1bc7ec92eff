"""`duckrow verify`: whether all nodes that can be reached have the same row."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .clients import at_once, client_of
from .command import DONE, FAILED, Args, Command, option
from .configfiles import cluster_text_of
from .console import Console
from .output import output_of

if TYPE_CHECKING:
    from duckrow import Client

FIELDS: Final = ("same", "position", "nodes", "first_difference")


def run(args: Args, console: Console) -> int:
    from duckrow.cluster.comparing import apart, compared, digest_of
    from duckrow.node.errors import DuckrowError

    urls = each_of(args, console)
    with ExitStack() as stack:
        asked = [stack.enter_context(client_of(args, console, url)) for url in urls]
        answers = at_once(lambda client: client.status(), asked)
        failures = [answer for answer in answers if isinstance(answer, DuckrowError)]
        clients = [
            (client, answer)
            for client, answer in zip(asked, answers, strict=True)
            if not isinstance(answer, DuckrowError)
        ]
        if not clients:
            raise failures[0]
        for error in failures:
            console.say(f"duckrow: {error}")
        row = compared([status for _, status in clients], [digest_of(c) for c, _ in clients])
        row["apart"] = apart(_lineages(clients))
        row["same"] &= not row["apart"]
    output = output_of(console, args.output, FIELDS, one=True)
    output.put([row])
    output.close()
    if row["apart"]:
        console.say(said_of(row))
    compares = len(clients) - len(row["unknown"]) > 1 or len(urls) == 1
    if row["unknown"]:
        console.say(
            f"not compared: {', '.join(row['unknown'])}, too far from the others; position "
            f"{row['position']} is the last that all have come to, and not kept there any more"
        )
    elif not compares:
        console.say(f"only {clients[0][1]['node']} answered: there is nothing to compare it with")
    return DONE if row["same"] and compares else FAILED


def _lineages(clients: Sequence[tuple[Client, dict[str, Any]]]) -> list[tuple[str, int, str]]:
    """Of each node its name, and lineage and cluster of its row, which is empty if that is not known.

    Who is behind tells a lineage of before, and its bridge knows better.
    """
    from duckrow.node.errors import DuckrowError

    found = [(status["node"], status["lineage"], "") for _, status in clients]
    if len({lineage for _, lineage, _ in found if lineage}) < 2:
        return found
    newest = at_once(lambda client: client.members(), [client for client, _ in clients])
    return [
        (name, lineage, "")
        if isinstance(told, DuckrowError) or "lineage" not in told
        else (name, told["lineage"], told["cluster"])
        for (name, lineage, _), told in zip(found, newest, strict=True)
    ]


def said_of(row: dict[str, Any]) -> str:
    """Whose rows go on apart."""
    of_each = "; ".join(
        f"{', '.join(each['nodes'])} of lineage {each['lineage']}"
        + (f" in cluster {each['cluster']}" if each["cluster"] else "")
        for each in row["apart"]
    )
    common = "what they have in common is the same, and what comes now is not"
    alike = row["first_difference"] is None and not row["unknown"]
    return f"these are {len(row['apart'])} rows, which go on apart: {of_each}" + (
        f"; {common}" if alike else ""
    )


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
        "have come to; first_difference is the first one at which they differ.  Those of two clusters or\n"
        "lineages, as after `member force-view`, are not the same row, even if all that they have in common\n"
        "is (apart).  Exit code 1: they are not the same, or of several there are no two to compare: only\n"
        "one answered, or what the last one of them has is not kept by the others any more (unknown).",
        url=True,
        rows=True,
    ),
)
