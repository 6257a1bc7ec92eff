"""`duckrow follow`: entries as they come, for ever."""

from __future__ import annotations

import select
import threading
from typing import TYPE_CHECKING, Final

from .clients import client_of
from .command import DONE, Args, Command
from .console import Console
from .reads import AFTER, OPTIONS, PAGE, archive_of, output_for, put

if TYPE_CHECKING:
    from duckrow import Client

WAIT: Final = 30.0  # then the same is asked again; nothing polls


def run(args: Args, console: Console) -> int:
    from duckrow.node.errors import Disconnected, NoQuorum, Timeout

    output = output_for(args, console)
    left, where, topic_id, told = args.max, args.after, 0, ""
    with client_of(args, console) as client:
        left_alone = _left_alone(console, client)
        while left is None or left > 0:
            try:
                found = client.pull(
                    args.topic,
                    where,
                    partition=args.partition,
                    limit=min(PAGE, left or PAGE),
                    wait=WAIT,
                    topic_id=topic_id,
                    archive=archive_of(args),
                )
            except (NoQuorum, Timeout) as error:  # it comes back, and then this goes on
                if str(error) != told:
                    told = str(error)
                    console.say(f"duckrow: {told}; still trying")
                continue
            except Disconnected:
                if left_alone.is_set():
                    raise BrokenPipeError from None
                raise
            put(found, output, console)
            where, topic_id, told = found.after, found.topic_id or topic_id, ""
            left = None if left is None else left - len(found)
    output.close()
    return DONE


def _left_alone(console: Console, client: Client) -> threading.Event:
    """Whoever reads the results may leave while nothing comes; then the client is closed."""
    gone = threading.Event()

    def look() -> None:
        watch = select.poll()
        watch.register(console.out, 0)  # that the other end hung up is told unasked
        watch.poll()
        gone.set()
        client.close()

    if console.is_pipe:
        threading.Thread(target=look, daemon=True).start()
    return gone


COMMANDS: Final = (
    Command(
        "follow",
        "Show the entries of a topic as they come",
        run,
        OPTIONS,
        (
            "duckrow follow rides --after first --max 2",
            "timeout 1 duckrow follow rides --after last || true",
        ),
        more=f"It goes on until it is interrupted, or has shown --max entries, also when the node is\n"
        f"started again meanwhile.\n{AFTER}",
        url=True,
    ),
)
