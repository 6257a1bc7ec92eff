"""What `pull` and `follow` have in common: options, output, and pages of entries."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from .command import Args, option, whole
from .console import Console
from .moments import read_after
from .output import JsonLines, Output, Template, Values, output_of
from .rows import ENTRY_COLUMNS, ENTRY_FIELDS, entry_rows, json_lines

if TYPE_CHECKING:
    from duckrow import Entries
    from duckrow.node.cursors import After

PAGE: Final = 65_536  # entries; batches come whole, so small pages would bring them again and again
FORMS: Final = ("table", "json", "jsonl", "csv", "value")
TABLE: Final = ("partition", "number", "time", "key", "value")

AFTER: Final = """\
--after says where to begin: first, the oldest entry there is; last, only what is new; -10, the last
ten; a number, the one behind it; a time such as 2026-11-18T12:00:00Z, or 10m for ten minutes ago."""


def after(text: str) -> After:
    return read_after(text, time.time_ns() // 1000)


OPTIONS: Final = (
    option("topic", said="which topic; one that is still to come has no entries yet"),
    option("--after", "-a", said="where to begin (first), see above", kind=after, default="first"),
    option("--partition", "-p", said="only this one; else all, merged in row order", kind=whole(0)),
    option("--max", "-n", metavar="M", said="at most so many entries", kind=whole(1)),
    option(
        "-o",
        "--output",
        said="the form; a table on a terminal, else jsonl; value: values alone",
        choices=FORMS,
    ),
    option(
        "--archive",
        switch=True,
        said="also what was pruned, from the files of the archive, where the node says it is",
    ),
    option(
        "--archive-at",
        metavar="PLACE",
        said="the same, where this machine finds the archive: a folder, or an address",
    ),
    option("-0", "--zero", switch=True, said="values alone, each with a NUL behind it"),
    option(
        "--template",
        metavar="TEXT",
        said="results by a template: {number} {time} {key} {value}, and the other fields",
    ),
)


def archive_of(args: Args) -> bool | str:
    """As the library takes it."""
    return args.archive_at or bool(args.archive)


def output_for(args: Args, console: Console) -> Output:
    if args.template is not None:
        return Template(console, args.template, ENTRY_COLUMNS)
    if args.zero or args.output == "value":
        return Values(console, b"\0" if args.zero else b"\n")
    fields = ENTRY_COLUMNS if args.output == "csv" else ENTRY_FIELDS
    columns = TABLE if args.partition is None else TABLE[1:]
    return output_of(console, args.output, fields, columns=columns)


def put(entries: Entries, output: Output, console: Console) -> None:
    if entries.missing:
        what = "entry was" if entries.missing == 1 else "entries were"
        where = f"; the archive is at {entries.archive}: --archive" if entries.archive else ""
        console.say(f"duckrow: {entries.missing:,} {what} pruned before these{where}")
    for batch in entries.batches:
        if isinstance(output, Values):
            output.put_values(batch.columns.value_list(batch.lo, batch.hi))
        elif isinstance(output, JsonLines):
            output.put_lines(json_lines(batch))
        else:
            output.put([*entry_rows(batch)])
