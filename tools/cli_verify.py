"""`duckrow verify`: whether all nodes that can be reached have the same row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .clients import client_of
from .command import DONE, FAILED, Args, Command
from .console import Console
from .output import output_of
from .rows import Row

FIELDS: Final = ("same", "position", "nodes", "first_difference")
TRIES: Final = 20  # for all to be looked at when they have come equally far
PAUSE: Final = 0.1


def run(args: Args, console: Console) -> int:
    from duckrow.node.errors import DuckrowError

    urls = each_of(args, console)
    statuses: list[dict[str, Any]] = []
    for _ in range(TRIES):
        statuses, failures = [], []
        for url in urls:
            try:
                with client_of(args, console, url) as client:
                    statuses.append(client.status())
            except DuckrowError as failure:
                failures.append(failure)
        if not statuses:
            raise failures[0]
        for error in failures:
            console.say(f"duckrow: {error}")
        if len({status["position"] for status in statuses}) == 1:
            break
        console.sleep(PAUSE)
    row = compared(statuses)
    output = output_of(console, args.output, FIELDS, one=True)
    output.put([row])
    output.close()
    return DONE if row["same"] else FAILED


def each_of(args: Args, console: Console) -> Sequence[str | None]:
    """A URL for each address; None: the default alone."""
    from duckrow.node.addresses import read_url, url_of

    url = args.url or console.environ.get("DUCKROW_URL")
    return [url_of(address) for address in read_url(url)] if url else [None]


def compared(statuses: Sequence[dict[str, Any]]) -> Row:
    """Nodes at the same position have the same hash, if they have the same row."""
    hashes: dict[int, set[str]] = {}
    for status in statuses:
        hashes.setdefault(status["position"], set()).add(status["state_hash"])
    differ = [position for position, found in hashes.items() if len(found) > 1]
    return {
        "same": not differ and len(hashes) == 1,
        "position": min(hashes),
        "nodes": {
            status["node"]: {"position": status["position"], "hash": status["state_hash"]}
            for status in statuses
        },
        "first_difference": min(differ, default=None),
    }


COMMANDS: Final = (
    Command(
        "verify",
        "Compare the rows of all nodes that can be reached",
        run,
        (),
        ("duckrow verify",),
        more="The nodes are the addresses of the URL.  Exit code 1: they are not the same, or did not\n"
        "come to the same position.",
        url=True,
        rows=True,
    ),
)
