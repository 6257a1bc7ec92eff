"""`duckrow link`: the links between machines, as one of them sees its own."""

from __future__ import annotations

from typing import Final

from .clients import client_of
from .command import DONE, Args, Command
from .console import Console
from .output import output_of

FIELDS: Final = (
    "node",
    "peer",
    "up",
    "heard",
    "queued",
    "position",
    "view",
    "disk",
    "follows",
    "refused",
    "trouble",
)


def ls(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        status = client.status()
    output = output_of(console, args.output, FIELDS)
    output.put([{"node": status["node"], **link} for link in status["links"]])
    output.close()
    if not status["links"]:
        console.say(f"{status['node']} has no links: it is alone")
    return DONE


COMMANDS: Final = (
    Command(
        "link ls",
        "List the links of a machine with others",
        ls,
        (),
        ("duckrow link ls", "duckrow link ls -o json"),
        more="heard: seconds since the other said anything.  queued: bytes that wait to go there.\n"
        "position, view, disk: what the other said of itself.  follows: it is behind, and gets the row.\n"
        "refused: the link is cut by command.  trouble: what this machine met when it dialled last,\n"
        "or why another one that dials it is not let in.",
        url=True,
        rows=True,
    ),
)
