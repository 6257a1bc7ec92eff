"""`duckrow restore`: makes the folder of a node from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .cli_backup import data_of, told
from .command import DONE, Args, Command, option
from .configfiles import OPTIONS
from .console import Console

MORE: Final = """\
All of the backup is read first; if a byte of it is wrong, nothing is made.  Entries that came
after the backup are not in what is restored, so it begins a new lineage: clients that knew the old
row get a conflict instead of other entries under the numbers they know.  The original stays as it
is."""


def run(args: Args, console: Console) -> int:
    from . import backups

    source, data = Path(args.source), data_of(args, console)
    with console.progress("restored", 2 * backups.manifest_of(source).size) as progress:
        made = backups.restore(source, data, tell=lambda more: progress.add(more))
    told(args, console, source, made)
    console.say(f"restored to {data}; start it with: duckrow node --data {data}")
    return DONE


COMMANDS: Final = (
    Command(
        "restore",
        "Make the folder of a node from a backup",
        run,
        (
            option("source", said="the backup"),
            option("--data", metavar="DIR", said="the new folder; else the configured one"),
            *OPTIONS,
        ),
        ("duckrow restore ./monday --data ./again",),
        rows=True,
        more=MORE,
    ),
)
