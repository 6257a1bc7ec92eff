"""`duckrow trace`: the life of one entry, as far as a node knows it, or each node of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .clients import at_once, client_of
from .command import DONE, NOT_FOUND, Args, Command, option, whole
from .configfiles import cluster_text_of
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
    rows = everywhere(args, console) if args.cluster else [at(args, console)]
    output = output_of(console, args.output, FIELDS, one=not args.cluster)
    output.put(rows)
    output.close()
    return DONE if any(row["state"] == "there" for row in rows) else NOT_FOUND


def at(args: Args, console: Console, url: str | None = None) -> Row:
    with client_of(args, console, url) as client:
        topic = client.topic(args.topic)
        status = client.status()
        part = next((p for p in topic.partitions if p.partition == args.partition), None)
        found = client.pull(args.topic, args.number - 1, partition=args.partition, limit=1)
    return told(args.topic, args.number, args.partition, part, found, status)


def everywhere(args: Args, console: Console) -> list[Row]:
    """At each member of the cluster file; one that cannot be asked says why."""
    from duckrow.node.clusterfile import read_cluster
    from duckrow.node.errors import DuckrowError

    cluster = read_cluster(cluster_text_of(Path(args.cluster)), args.cluster)
    where = {"topic": args.topic, "partition": args.partition, "number": args.number}
    # A witness keeps no row, and without a url nobody knows where to ask.
    peers = [peer for peer in cluster.peers.values() if peer.url and not peer.witness]
    answers = at_once(lambda peer: at(args, console, peer.url), peers)
    return [
        {"state": "unknown", **where, "node": peer.name, "said": str(answer)}
        if isinstance(answer, DuckrowError)
        else answer
        for peer, answer in zip(peers, answers, strict=True)
    ]


def told(
    topic: str,
    number: int,
    partition: int,
    part: PartitionInfo | None,
    found: Entries,
    status: dict[str, Any],
) -> Row:
    row: Row = {"topic": topic, "partition": partition, "number": number, "node": status["node"]}
    last = part.last if part else 0  # before it was looked for: more may have come, or been pruned
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
            f"and {max(last - number, 0):,} came after it",
        }
    if found or number <= last:
        said = (
            f"it was pruned; the oldest there is now is {found[0].number:,}"
            if found
            else "it was pruned"
        )
        return {"state": "pruned", **row, "said": said}
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
            option(
                "--cluster",
                metavar="FILE",
                said="at each member of this cluster file that has a url: has it come there?",
            ),
        ),
        ("duckrow trace rides 2",),
        more="It is there, was pruned, or is still to come; if it is not there, the exit code is 3.",
        url=True,
        rows=True,
    ),
)
