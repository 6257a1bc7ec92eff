"""`duckrow produce`: entries from the command line, from pipes, from files, or typed in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .command import DONE, Args, Command, UsageError, option, whole
from .console import Console
from .inputs import chunks_of
from .moments import show_time
from .output import Output, Template, output_of
from .rows import PLACE_FIELDS, Row

if TYPE_CHECKING:
    from duckrow import Client
    from duckrow.node.clientcalls import Run

MORE: Final = """\
Without a VALUE every line of stdin is an entry; on a terminal you are asked for them.
What --wait means: ordered, the entry has its number, on every node; accepted, it is durable on the
node and a receipt is printed, which `duckrow receipt` can be asked with; none, nothing is waited
for until the end.  With each of them an entry is stored once, however often it had to be sent."""


def rate(text: str) -> float:
    """Entries a second."""
    from duckrow.node.errors import Refused

    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise Refused(f"{text!r} is no rate: write how many entries a second, as in 10 or 0.5")
    return found


def header(text: str) -> tuple[str, bytes]:
    from duckrow.node.errors import Refused

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Refused(f"{text!r} is no header: write NAME=VALUE")
    return name, value.encode(errors="surrogateescape")


def run(args: Args, console: Console) -> int:
    if args.topic is None and args.topic_field is None:
        raise UsageError("which topic? (see duckrow produce --help)")
    if args.topic_field is not None and args.topic is not None:
        args.topic, args.value = None, [args.topic, *args.value]  # all of them are entries
    single = len(args.value) == 1 and args.value != ["-"]
    if (args.id is not None or args.expect_last is not None) and not (single or args.file):
        raise UsageError("--id and --expect-last are for one entry: give one VALUE, or --file")
    if args.file is not None and args.value:
        raise UsageError("--file is one entry, and VALUE another: give one of them")
    fields = ("receipt",) if args.wait == "accepted" else PLACE_FIELDS
    output: Output
    if args.template is not None:
        output = Template(console, args.template, fields)
    else:
        output = output_of(console, args.output, fields)
    end = b"\0" if args.zero else b"\n"
    typed = console.interactive and not args.value and args.file is None
    chunks = (
        _typed(args.topic or "the topic in its field", console)
        if typed
        else chunks_of(args.value, args.file, console.stdin, end)
    )
    with (
        client_of(args, console) as client,
        console.progress("produced", beside_results=True) as progress,
    ):
        for chunk in _paced(chunks, args.rate, console):
            for topic, values in _by_topic(args, chunk).items():
                output.put(_produced(client, topic, args, values))
            progress.add(len(chunk))
        client.flush()
    output.close()
    return DONE


def _typed(topic: str, console: Console) -> Iterator[list[bytes]]:
    """Lines that a person types, until the end of input."""
    console.say(f"each line is an entry of {topic}; Ctrl-D ends")
    while True:
        console.err.write(f"{topic}> ")
        console.err.flush()
        line = console.stdin.readline()
        if not line:
            console.say("")
            return
        yield [line.removesuffix(b"\n")]


def _paced(
    chunks: Iterator[list[bytes]], rate: float | None, console: Console
) -> Iterator[list[bytes]]:
    """At most so many entries a second, one by one; late ones are not made up for in a rush."""
    if rate is None:
        yield from chunks
        return
    due = console.now()
    for chunk in chunks:
        for value in chunk:
            now = console.now()
            if now < due:
                console.sleep(due - now)
            yield [value]
            due = max(due, console.now() - 1.0) + 1 / rate


def _by_topic(args: Args, chunk: list[bytes]) -> dict[str, list[bytes]]:
    """With --topic-field each entry says where it goes; those of a topic keep their order."""
    if args.topic_field is None:
        return {args.topic: chunk}
    found: dict[str, list[bytes]] = {}
    for line in chunk:
        fields = line.split(b"\t")
        if len(fields) <= args.topic_field - 1 or len(fields) < 2:
            raise UsageError(
                f"--topic-field {args.topic_field}: {line[:60]!r} has {len(fields)} fields, "
                "with tabs between them"
            )
        topic = fields.pop(args.topic_field - 1).decode(errors="replace")
        found.setdefault(topic, []).append(b"\t".join(fields))
    return found


def _produced(client: Client, topic: str, args: Args, values: Sequence[bytes]) -> list[Row]:
    """The entries' rows, in the order of their numbers."""
    key, id_ = _as_typed(args.key), _as_typed(args.id)
    alone: dict[str, Any] = {"partition": args.partition, "wait": args.wait}
    headers = args.header or None
    if args.wait == "accepted" or args.id is not None or args.expect_last is not None:
        receipts = [
            client.produce(
                topic,
                value,
                key=key,
                headers=headers,
                id=id_,
                expect_last=args.expect_last,
                **alone,
            )
            for value in values
        ]
        if args.wait == "accepted":
            return [{"receipt": str(receipt)} for receipt in receipts]
        return [_row(topic, r.partition, r.number, r.time) if r else _row(topic) for r in receipts]
    many = client.produce_many(
        topic,
        values,
        keys=None if key is None else [key] * len(values),
        headers=None if headers is None else [headers] * len(values),
        **alone,
    )
    if args.wait == "none":
        return [_row(topic)] * len(values)
    return [row for run in many.runs for row in _rows(run)]


def _as_typed(word: str | None) -> bytes | None:
    """The bytes of a word of the command line, which may be anything."""
    return None if word is None else word.encode(errors="surrogateescape")


def _rows(run: Run) -> list[Row]:
    topic, partition, time = run.topic, run.partition, show_time(run.time)
    return [
        {"topic": topic, "partition": partition, "number": number, "time": time}
        for number in range(run.number, run.number + run.count)
    ]


def _row(
    topic: str, partition: int | None = None, number: int | None = None, time: int | None = None
) -> Row:
    shown = None if time is None else show_time(time)
    return dict(zip(PLACE_FIELDS, (topic, partition, number, shown), strict=True))


COMMANDS: Final = (
    Command(
        "produce",
        "Put entries into a topic",
        run,
        (
            option("topic", said="where they go; it is made if it is not there", many="?"),
            option("value", said="an entry each; - stands for the lines of stdin", many="*"),
            option("--key", "-k", said="of all these entries: the same key, the same partition"),
            option("--partition", "-p", said="which one", kind=whole(0)),
            option(
                "--header", metavar="NAME=VALUE", said="one more header", many="repeat", kind=header
            ),
            option(
                "--wait",
                said="what to wait for (ordered)",
                choices=("ordered", "accepted", "none"),
                default="ordered",
            ),
            option("--id", said="names this one entry: the same id again is stored once"),
            option(
                "--expect-last",
                metavar="N",
                kind=whole(0),
                said="only if N is the last number of the partition then",
            ),
            option("--rate", metavar="R", kind=rate, said="at most so many entries a second"),
            option("--file", "-f", said="the whole file is one entry; - is stdin"),
            option(
                "--topic-field",
                metavar="N",
                kind=whole(1),
                said="the field of an entry, between tabs, that names its topic; then there is no "
                "TOPIC before the entries",
            ),
            option("-0", "--zero", switch=True, said="stdin is separated by NULs, not lines"),
            option(
                "--template",
                metavar="TEXT",
                said="results by a template: {topic} {partition} {number} {time}",
            ),
        ),
        (
            "duckrow produce rides one two",
            "seq 1000 | duckrow produce numbers --template '{number}'",
            "duckrow produce rides --key bus-7 --header line=7 'left the depot'",
            "find . -name '*.toml' -print0 | duckrow produce -0 files",
            "printf 'rides\\tone\\nlogs\\ttwo\\n' | duckrow produce --topic-field 1",
            "duckrow produce orders 'one coffee' --id order-17",
            "duckrow produce pictures --file /etc/hostname",
            "duckrow produce rides later --wait accepted",
        ),
        more=MORE,
        url=True,
        rows=True,
    ),
)
