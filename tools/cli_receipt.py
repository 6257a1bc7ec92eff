"""`duckrow receipt`: what became of an entry that was accepted."""

from __future__ import annotations

from typing import Final

from .clients import client_of
from .command import DONE, Args, Command, option
from .console import Console
from .moments import show_time
from .output import output_of
from .rows import PLACE_FIELDS

FIELDS: Final = ("receipt", "state", *PLACE_FIELDS)


def run(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        found = client.receipt(args.receipt)
    output = output_of(console, args.output, FIELDS, one=True)
    row = {
        "receipt": args.receipt,
        "state": "waiting" if found.number is None else "ordered",
        "topic": found.topic,
        "partition": found.partition,
        "number": found.number,
        "time": None if found.time is None else show_time(found.time),
    }
    output.put([row])
    output.close()
    return DONE


COMMANDS: Final = (
    Command(
        "receipt",
        "Tell what became of an accepted entry",
        run,
        (option("receipt", said="as produce --wait accepted printed it"),),
        (
            "duckrow produce rides now --wait accepted --template '{receipt}' | xargs duckrow receipt",
        ),
        more="`waiting`: it gets its number when its topic has room, or when the machine that accepted it\n"
        "reaches the others; until then ask that machine.",
        url=True,
        rows=True,
    ),
)
