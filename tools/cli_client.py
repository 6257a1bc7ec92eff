"""`duckrow client`: who talks to a node."""

from __future__ import annotations

from typing import Final

from .clients import client_of
from .command import DONE, Args, Command
from .console import Console
from .output import output_of

FIELDS: Final = (
    "id",
    "name",
    "address",
    "uid",
    "pid",
    "seconds",
    "requests",
    "waiting",
    "reading",
    "queued",
)


def ls(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        found = client.clients()
    output = output_of(console, args.output, FIELDS)
    output.put(found)
    output.close()
    return DONE


COMMANDS: Final = (
    Command(
        "client ls",
        "List the clients of a node",
        ls,
        (),
        ("duckrow client ls", "duckrow client ls -o csv"),
        more="waiting: orders without an answer; reading: pulls under way; queued: bytes that the\n"
        "client has not taken yet.",
        url=True,
        rows=True,
    ),
)
