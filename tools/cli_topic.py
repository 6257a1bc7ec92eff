"""`duckrow topic`: making, changing, listing, looking at, pruning and removing topics."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .command import DONE, Args, Command, UsageError, option, seconds, size, whole
from .console import Console
from .output import for_people, output_of
from .rows import Row

if TYPE_CHECKING:
    from duckrow.node.topicinfo import TopicInfo

DEFAULT: Final = "default"
LIST: Final = ("topic", "partitions", "entries", "bytes", "policy")
INFO: Final = ("topic", "id", "policy", "partitions")


def or_default(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Also the word `default`, which brings the default back."""

    def read(text: str) -> Any:
        return DEFAULT if text == DEFAULT else kind(text)

    return read


def full(text: str) -> str:
    from duckrow.node.policies import WHEN_FULL

    if text not in WHEN_FULL:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(WHEN_FULL)}")
    return text


POLICY: Final = (
    option("--partitions", metavar="N", kind=whole(1, 1024), said="how many; they only grow"),
    option(
        "--max-age",
        metavar="D",
        kind=or_default(seconds),
        said="entries go when they are so old, as in 7d; 0: never",
    ),
    option(
        "--max-entries",
        metavar="N",
        kind=or_default(whole(0)),
        said="of each partition; 0: as many as come",
    ),
    option(
        "--max-bytes",
        metavar="B",
        kind=or_default(size),
        said="of each partition, as in 10GiB; 0: as many as come",
    ),
    option(
        "--when-full",
        metavar="W",
        kind=or_default(full),
        said="drop-oldest; reject what comes; block: it waits for room; slot: one of each producer "
        "waits",
    ),
    option(
        "--retention",
        metavar="R",
        kind=or_default(str),
        said="limits; others need consumer groups, which are to come",
    ),
    option(
        "--archive",
        metavar="SPAN",
        kind=or_default(whole(0)),
        said="prune by whole spans of so many numbers, and keep what is pruned on the disk until an "
        "archiver has it, see `duckrow archive run`; 0: no archive",
    ),
)


def policy_of(args: Args) -> dict[str, Any]:
    """What was given, as the library takes it."""
    found = {}
    for each in POLICY:
        value = getattr(args, each.dest)
        if value is not None:
            found[each.dest] = None if value == DEFAULT else value
    return found


def info_row(info: TopicInfo) -> Row:
    """A topic as the contract has it."""
    return {
        "topic": info.topic,
        "id": info.id,
        "policy": info.policy,
        "partitions": [part._asdict() for part in info.partitions],
    }


def policy_text(policy: dict[str, Any]) -> dict[str, Any]:
    """For people: only what is special, with units."""
    from duckrow.node.policies import DEFAULT as PLAIN
    from duckrow.node.policies import described
    from duckrow.node.units import show_duration, show_size

    plain = described(PLAIN)

    def shown(name: str, value: Any) -> str:
        if name == "max_bytes":
            return show_size(value)
        return show_duration(round(value * 1e6)) if name == "max_age" else str(value)

    return {
        name: shown(name, value)
        for name, value in policy.items()
        if value != plain.get(name) and name != "partitions"
    }


def list_row(info: TopicInfo) -> Row:
    """A topic among others."""
    return {
        "topic": info.topic,
        "partitions": len(info.partitions),
        "entries": sum(part.entries for part in info.partitions),
        "bytes": sum(part.bytes for part in info.partitions),
        "policy": info.policy,
    }


def new(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        _show(client.create_topic(args.topic, **policy_of(args)), args, console)
    return DONE


def change(args: Args, console: Console) -> int:
    policy = policy_of(args)
    if not policy:
        raise UsageError(
            "topic set without a policy changes nothing (see duckrow topic set --help)"
        )
    with client_of(args, console) as client:
        _show(client.set_topic(args.topic, **policy), args, console)
    return DONE


def info(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        _show(client.topic(args.topic), args, console)
    return DONE


def ls(args: Args, console: Console) -> int:
    from duckrow.node.errors import NotFound

    people = for_people(console, args.output)
    output = output_of(console, args.output, ("topic",) if args.names else LIST)
    with client_of(args, console) as client:
        names = client.topics()
        if args.names:
            output.put([{"topic": name} for name in names])
            names = []
        with console.progress("listed", len(names)) as progress:
            rows = []
            for name in names:
                try:
                    row = list_row(client.topic(name))
                    rows.append(row | {"policy": _line(row["policy"])} if people else row)
                except NotFound:
                    pass  # it was removed since we asked for the names
                progress.add(1)
        output.put(rows)
    output.close()
    return DONE


def rm(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        for topic in args.topic:
            client.delete_topic(topic)
    return DONE


def prune(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        client.prune(args.topic, args.number, partition=args.partition)
        _show(client.topic(args.topic), args, console)
    return DONE


def _show(info: TopicInfo, args: Args, console: Console) -> None:
    output = output_of(console, args.output, INFO, one=True)
    row = info_row(info)
    if for_people(console, args.output):
        row["policy"] = _line(row["policy"])
    output.put([row])
    output.close()


def _line(policy: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in policy_text(policy).items())


_TOPIC: Final = option("topic", said="its name")
_MORE: Final = (
    "Sizes and ages have units.  `default` brings a default back, as in --max-age default."
)

COMMANDS: Final = (
    Command(
        "topic new",
        "Make a topic",
        new,
        (_TOPIC, *POLICY),
        (
            "duckrow topic new clicks --partitions 4 --max-age 7d",
            "duckrow topic new jobs --max-entries 1000 --when-full block",
        ),
        more=_MORE,
        url=True,
        rows=True,
    ),
    Command(
        "topic set",
        "Change what holds for a topic, while it runs",
        change,
        (_TOPIC, *POLICY),
        ("duckrow topic set rides --max-bytes 1GiB", "duckrow topic set rides --max-age default"),
        more=_MORE,
        url=True,
        rows=True,
    ),
    Command(
        "topic ls",
        "List the topics",
        ls,
        (option("--names", switch=True, said="only their names, which is quick"),),
        ("duckrow topic ls", "duckrow topic ls --names -o csv"),
        url=True,
        rows=True,
    ),
    Command(
        "topic info",
        "Show a topic: its partitions and its policy",
        info,
        (_TOPIC,),
        ("duckrow topic info rides", "duckrow topic info rides -o json"),
        more="An empty partition has first = last + 1.",
        url=True,
        rows=True,
    ),
    Command(
        "topic rm",
        "Remove topics with all their entries",
        rm,
        (option("topic", said="their names", many="+"),),
        ("duckrow topic rm old",),
        more="A topic that is made again under the name is another one, with numbers from 1.",
        url=True,
    ),
    Command(
        "topic prune",
        "Remove the oldest entries of a topic",
        prune,
        (
            _TOPIC,
            option("number", said="entries up to this one go", kind=whole(0)),
            option("--partition", "-p", kind=whole(0), default=0, said="of which partition (0)"),
        ),
        ("duckrow topic prune rides 1",),
        more="Numbers stay what they are.",
        url=True,
        rows=True,
    ),
)
