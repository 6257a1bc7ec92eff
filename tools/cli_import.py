"""`duckrow import`: produces the entries of a file of JSON lines or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .cli_export import FIELDS, PARQUET
from .clients import client_of
from .command import DONE, Args, Command, option
from .console import Console
from .output import output_of

MORE: Final = """\
Of a row its value, key and headers are taken; numbers and times are new.  The ending of the file
says the form: .parquet, or JSON lines; - stands for stdin.  A line that is no entry is told with
its number; what stands before it was produced.  Importing twice produces twice."""


def run(args: Args, console: Console) -> int:
    from . import import_

    keep = args.keep_partitions
    with client_of(args, console) as client, console.progress("imported") as progress:
        if args.file == "-":
            lines = (line.decode(errors="surrogateescape") for line in console.stdin)
            done = import_.import_lines(
                client, args.topic, lines, keep_partitions=keep, tell=progress.add
            )
        elif Path(args.file).suffix == PARQUET:
            done = import_.import_parquet(
                client, args.topic, Path(args.file), keep_partitions=keep, tell=progress.add
            )
        else:
            with Path(args.file).open(encoding="utf-8", errors="surrogateescape") as file:
                done = import_.import_lines(
                    client, args.topic, file, keep_partitions=keep, tell=progress.add
                )
    output = output_of(console, args.output, FIELDS)
    output.put([{"topic": args.topic, "file": args.file, "entries": done}])
    output.close()
    return DONE


COMMANDS: Final = (
    Command(
        "import",
        "Produce the entries of a file of JSON lines or Parquet",
        run,
        (
            option("topic", said="where to"),
            option("file", said="where from; - is stdin"),
            option("--keep-partitions", switch=True, said="each entry into the partition it names"),
        ),
        (
            "duckrow export rides - | duckrow import copies -",
            "duckrow export rides rides.parquet && duckrow import copies rides.parquet",
        ),
        url=True,
        rows=True,
        more=MORE,
    ),
)
