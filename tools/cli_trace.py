"""`duckrow trace`: the life of one entry, as far as a node knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .command import DONE, NOT_FOUND, Args, Command, option, whole
from .console import Console
from .output import output_of
from .rows import Row, entry_rows

if TYPE_CHECKING:
    from duckrow import Entries
    from duckrow.node.topicinfo import PartitionInfo

FIELDS: Final = (
    "state",
    "topic",
    "partition",
    "number",
    "time",
    "producer",
    "key",
    "bytes",
    "batch",
    "node",
    "said",
)


def run(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        topic = client.topic(args.topic)
        status = client.status()
        part = next((p for p in topic.partitions if p.partition == args.partition), None)
        found = client.pull(args.topic, args.number - 1, partition=args.partition, limit=1)
    row = told(args.topic, args.number, args.partition, part, found, status)
    output = output_of(console, args.output, FIELDS, one=True)
    output.put([row])
    output.close()
    return DONE if row["state"] == "there" else NOT_FOUND


def told(
    topic: str,
    number: int,
    partition: int,
    part: PartitionInfo | None,
    found: Entries,
    status: dict[str, Any],
) -> Row:
    row: Row = {"topic": topic, "partition": partition, "number": number, "node": status["node"]}
    first, last = (part.first, part.last) if part else (1, 0)
    if found and found[0].number == number:
        (batch,) = found.batches
        entry = next(entry_rows(batch))
        entry.pop("value", None)
        entry.pop("value_base64", None)
        return {
            "state": "there",
            **entry,
            "bytes": len(found[0].value),
            "batch": {"first": batch.first - batch.lo, "entries": batch.columns.entries},
            "node": status["node"],
            "said": f"it came in a batch of {batch.columns.entries:,}, "
            f"and {last - number:,} came after it",
        }
    if number < first:
        said = f"it was pruned; the oldest there is now is {first:,}"
        return {"state": "pruned", **row, "said": said if last >= first else "it was pruned"}
    said = f"the last number is {last:,}" if last else "nothing has a number there yet"
    return {"state": "not yet", **row, "said": said}


COMMANDS: Final = (
    Command(
        "trace",
        "Tell the life of one entry",
        run,
        (
            option("topic", said="its topic"),
            option("number", said="its number", kind=whole(1)),
            option("--partition", "-p", kind=whole(0), default=0, said="its partition (0)"),
        ),
        ("duckrow trace rides 2",),
        more="It is there, was pruned, or is still to come; if it is not there, the exit code is 3.",
        url=True,
        rows=True,
    ),
)
