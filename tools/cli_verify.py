"""`duckrow verify`: whether all nodes that can be reached have the same row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .command import DONE, FAILED, Args, Command, option
from .console import Console
from .output import output_of
from .rows import Row

if TYPE_CHECKING:
    from duckrow import Client

FIELDS: Final = ("same", "position", "nodes", "first_difference")

Digest = Callable[[int], bytes | None]  # of a node's row up to a position; None: not known there


def run(args: Args, console: Console) -> int:
    from duckrow.node.errors import DuckrowError

    with ExitStack() as stack:
        clients: list[tuple[Client, dict[str, Any]]] = []
        failures: list[DuckrowError] = []
        for url in each_of(args, console):
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
    return DONE if row["same"] else FAILED


def each_of(args: Args, console: Console) -> Sequence[str | None]:
    """A URL for each address, or for each member of the cluster file; None: the default alone."""
    from duckrow.node.addresses import read_url, url_of
    from duckrow.node.clusterfile import read_cluster
    from duckrow.node.errors import Refused

    if args.cluster:
        cluster = read_cluster(Path(args.cluster).read_text("utf-8"), args.cluster)
        urls = [peer.url for peer in cluster.peers.values() if peer.url]
        if not urls:
            raise Refused(f"{args.cluster} names no url of a member: say where clients find them")
        return urls
    url = args.url or console.environ.get("DUCKROW_URL")
    return [url_of(address) for address in read_url(url)] if url else [None]


def digest_of(client: Client) -> Digest:
    from duckrow.node.errors import Corrupt, NotFound

    def digest(position: int) -> bytes | None:
        try:
            return client.digest(position)
        except (NotFound, Corrupt):
            return None

    return digest


def compared(statuses: Sequence[Mapping[str, Any]], digests: Sequence[Digest]) -> Row:
    """The rows up to the position that all have come to; and the states, where they are of one."""
    position = min(status["position"] for status in statuses)
    first = None if _agree(digests, position) else _first(digests, position)
    hashes: dict[int, set[str]] = {}
    for status in statuses:
        hashes.setdefault(status["hashed"], set()).add(status["state_hash"])
    if first is None:
        first = min((at for at, found in hashes.items() if len(found) > 1), default=None)
    return {
        "same": first is None,
        "position": position,
        "nodes": {
            status["node"]: {"position": status["position"], "hash": status["state_hash"]}
            for status in statuses
        },
        "first_difference": first,
    }


def _agree(digests: Sequence[Digest], position: int) -> bool:
    """As far as they are known: what a node keeps no more, it cannot be asked for."""
    return len({found for digest in digests if (found := digest(position)) is not None}) <= 1


def _first(digests: Sequence[Digest], position: int) -> int:
    """Of the positions at which they differ: a digest is of all up to there."""
    same, differs = 0, position
    while differs - same > 1:
        middle = (same + differs) // 2
        if _agree(digests, middle):
            same = middle
        else:
            differs = middle
    return differs


COMMANDS: Final = (
    Command(
        "verify",
        "Compare the rows of all nodes that can be reached",
        run,
        (
            option(
                "--cluster",
                metavar="FILE",
                said="the nodes are the members of this cluster file that have a url",
            ),
        ),
        ("duckrow verify",),
        more="The nodes are the addresses of the URL.  They are compared up to the position that all of them\n"
        "have come to; first_difference is the first one at which they differ.  Exit code 1: they do.",
        url=True,
        rows=True,
    ),
)
