"""`duckrow export`: writes a topic, as it is now, to a file of JSON lines or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .clients import client_of
from .command import DONE, Args, Command, option
from .console import Console
from .output import output_of

FIELDS: Final = ("topic", "file", "entries")
PARQUET: Final = ".parquet"
MORE: Final = """\
The ending of the file says the form: .parquet, or JSON lines, as `pull -o jsonl` writes them; -
stands for stdout.  The file is there when it is whole; until then it is called FILE.writing.  What
comes while it is exported is left out."""


def run(args: Args, console: Console) -> int:
    from . import export

    with client_of(args, console) as client:
        total = export.count(client, args.topic)
        with console.progress("exported", total, beside_results=args.file == "-") as progress:
            if args.file == "-":
                export.export_lines(
                    client,
                    args.topic,
                    lambda lines: console.out.write(lines.encode()),
                    tell=progress.add,
                )
                return DONE
            path = Path(args.file)
            write = export.export_parquet if path.suffix == PARQUET else export.export_file
            done = write(client, args.topic, path, tell=progress.add)
    output = output_of(console, args.output, FIELDS)
    output.put([{"topic": args.topic, "file": args.file, "entries": done}])
    output.close()
    return DONE


COMMANDS: Final = (
    Command(
        "export",
        "Write a topic, as it is now, to a file of JSON lines or Parquet",
        run,
        (option("topic", said="which topic"), option("file", said="where to; - is stdout")),
        ("duckrow export rides rides.jsonl", "duckrow export rides rides.parquet"),
        url=True,
        rows=True,
        more=MORE,
    ),
)
