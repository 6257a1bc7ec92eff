"""`duckrow pull`: the entries that are there, from a place on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .clients import client_of
from .command import DONE, Args, Command, option, seconds
from .console import Console
from .reads import AFTER, OPTIONS, PAGE, archive_of, output_for, put

if TYPE_CHECKING:
    from duckrow.node.cursors import After


def run(args: Args, console: Console) -> int:
    output = output_for(args, console)
    left, where, topic_id, wait = args.max, args.after, 0, args.wait or 0.0
    ends: dict[int, int] = {}  # by partition, the last number there was when it began
    with (
        client_of(args, console) as client,
        console.progress("pulled", args.max, beside_results=True) as progress,
    ):
        while left is None or left > 0:
            found = client.pull(
                args.topic,
                where,
                partition=args.partition,
                limit=min(PAGE, left or PAGE),
                wait=wait,
                topic_id=topic_id,
                archive=archive_of(args),
            )
            put(found, output, console)
            if not found:
                break
            progress.add(len(found))
            where, topic_id, wait = found.after, found.topic_id, 0.0
            left = None if left is None else left - len(found)
            ends = ends or {partition: last for partition, (_, last) in found.spans.items()}
            if has_come_to(where, ends):
                break
    output.close()
    return DONE


def has_come_to(after: After, ends: Mapping[int, int]) -> bool:
    """What was there is done; what has come meanwhile might never end."""
    from duckrow.node.cursors import Cursor

    # A partition that a cursor does not name had nothing to be read.
    return isinstance(after, Cursor) and all(
        after.done.get(partition, last) >= last for partition, last in ends.items()
    )


COMMANDS: Final = (
    Command(
        "pull",
        "Show the entries of a topic from a place on",
        run,
        (
            *OPTIONS,
            option(
                "--wait",
                "-w",
                metavar="S",
                kind=seconds,
                said="how long to wait if nothing is there, as in 5 or 500ms",
            ),
        ),
        (
            "duckrow pull rides",
            "duckrow pull rides --after -10",
            "duckrow pull rides --after 10m --max 100 -o csv",
            "duckrow pull rides --after first --archive -o csv",
            "duckrow pull rides -o value | duckrow produce copy",
            "duckrow pull rides --template '{number}\\t{value}'",
        ),
        more=f"Nothing there is no error, and prints nothing.  What comes while it runs may be left out.\n{AFTER}",
        url=True,
    ),
)
