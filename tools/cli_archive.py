"""`duckrow archive`: writing what is pruned to files, and looking at these."""

from __future__ import annotations

import logging
import signal
import sys
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from .clients import client_of
from .command import DONE, FAILED, Args, Command, UsageError, option
from .configfiles import OPTIONS, loaded
from .console import Console
from .output import output_of
from .rows import Row, text_or_base64

if TYPE_CHECKING:
    from duckrow.node.archiveplace import Place

log = logging.getLogger("duckrow.archiver")

PLACE: Final = """\
A place is a folder, or an address that pyarrow or fsspec opens, such as s3://bucket/archive."""


def run(args: Args, console: Console) -> int:
    from duckrow.node.archiveplace import Place

    from . import logs
    from .archiver import Archiver, once, serve

    config = loaded(args, console.environ).checked()
    to = args.to or config.archive.to
    if not to:
        raise UsageError("archive run: say where to with --to PLACE, or archive.to")
    said = config.log
    logs.start(said.level, said.format, console.err, console.environ, process="archiver")
    stop = _stopped_by_signals()
    if args.supervised:
        Thread(target=_until_closed, args=(stop,), daemon=True).start()
    with client_of(args, console) as client:
        archiver = Archiver(client, Place(to), client.status()["node"], stop.is_set)
        if args.once:
            once(archiver, stop)
        else:
            serve(archiver, stop, lambda place: log.info("ready place=%s", place))
    log.info("ended files=%d entries=%d", archiver.files, archiver.entries)
    return DONE


def init(args: Args, console: Console) -> int:
    import uuid

    from duckrow.node.archiveplace import Mark, Place
    from duckrow.node.errors import Exists

    from .archivecare import reached

    place = Place(args.place)
    if args.adopt:
        mark = reached(args.place).mark()
        assert mark is not None
        place.begin(Mark(mark.archive))
        console.say(f"the archive {mark.archive} at {place} goes on with the node that comes next")
        return DONE
    if mark := place.mark():
        raise Exists(f"there is an archive at {place} already: {mark.archive}")
    mark = Mark(uuid.uuid4().hex[:12])
    place.begin(mark)
    console.say(f"the archive {mark.archive} is begun at {place}")
    return DONE


def ls(args: Args, console: Console) -> int:
    from .archivecare import Holding, holdings

    place = _place(args, console)
    output = output_of(console, args.output, Holding._fields)
    output.put([row._asdict() for row in holdings(place, args.topic)])
    output.close()
    return DONE


def verify(args: Args, console: Console) -> int:
    from .archivecare import Finding, check, compare, reached

    place = _place(args, console)
    files = len(place.files(args.topic))
    output = output_of(console, args.output, Finding._fields)
    found = 0
    with console.progress("checked", files) as progress:
        findings = [check(place, args.topic, progress.add)]
        if args.against:
            findings.append(compare(place, reached(args.against), args.topic))
        for each in findings:
            for finding in each:
                found += 1
                output.put([finding._asdict()])
    output.close()
    console.say(f"{files:,} files of {place} were read: {found or 'no'} findings")
    return FAILED if found else DONE


def sync(args: Args, console: Console) -> int:
    from duckrow.node.archiveplace import Place

    from .archivecare import Copied, copy, reached

    source, target = reached(args.source), Place(args.target)
    with console.progress("copied", len(source.files(args.topic))) as progress:
        copied = copy(source, target, args.topic, progress.add)
    output = output_of(console, args.output, Copied._fields, one=True)
    output.put([copied._asdict()])
    output.close()
    return DONE


def ask(args: Args, console: Console) -> int:
    from .archivequery import query

    names, pieces = query(_place(args, console), args.sql)
    output = output_of(console, args.output, names)
    for rows in pieces:
        output.put([shown(row) for row in rows])
    output.close()
    return DONE


def shown(row: dict[str, Any]) -> Row:
    """Bytes and times as `duckrow pull` shows them; numbers as JSON has them, as far as it has them."""
    found: Row = {}
    for name, value in row.items():
        found |= text_or_base64(name, value) if isinstance(value, bytes) else {name: _plain(value)}
    return found


def _plain(value: Any) -> Any:
    match value:
        case bytes():  # in a list, so no name can say what they are
            told = text_or_base64("bytes", value)
            return told.get("bytes", told)
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case list() | tuple():
            return [_plain(each) for each in value]
        case dict():
            return shown(value)
        case Decimal() if not value.as_tuple().exponent:
            return int(value)  # a sum
        case float() if not isfinite(value):
            return str(value)
        case int() | float() | str() | None:
            return value
    return str(value)


def _place(args: Args, console: Console) -> Place:
    return place_of(args, console, args.at, "--at")


def place_of(args: Args, console: Console, named: str | None, flag: str) -> Place:
    """The archive that was named, or that the node knows.

    Raises:
        NotFound: there is none.
    """
    from duckrow.node.errors import NotFound

    from .archivecare import reached

    where = named
    if not where:
        with client_of(args, console) as client:
            where = client.status()["archive"]["place"]
        if not where:
            raise NotFound(f"the node knows no archive: say where it is with {flag} PLACE")
    return reached(where)


def _stopped_by_signals() -> Event:
    stop = Event()

    def end(number: int, _frame: object) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return stop


def _until_closed(stop: Event) -> None:
    """The node that started this holds the other end, and lets go of it when it ends in any way."""
    while sys.stdin.buffer.read(4096):
        pass
    stop.set()


_AT: Final = (
    option("--at", metavar="PLACE", said="where the archive is; else where the node says"),
)
_TOPIC: Final = option("topic", said="only this one", many="?")
COMMANDS: Final = (
    Command(
        "archive run",
        "Write what a node pruned to the files of an archive",
        run,
        (
            option("--to", metavar="PLACE", said="where to; else archive.to of the configuration"),
            option("--once", switch=True, said="end when nothing is due any more"),
            option(
                "--supervised",
                switch=True,
                said="end when stdin is closed; `duckrow node` starts it so",
            ),
            *OPTIONS,
        ),
        (
            "duckrow archive run --to ./archive --once",
            "timeout 2 duckrow archive run --to ./archive || true",
        ),
        more="`duckrow node` with archive.to starts one by itself; run it alone where something else looks\n"
        "after processes.  A node has one archiver.  It goes on until SIGTERM or Ctrl-C; what is half\n"
        f"written then is left out, and pinned at the node.\n{PLACE}",
        url=True,
    ),
    Command(
        "archive ls",
        "List what an archive holds",
        ls,
        (_TOPIC, *_AT),
        ("duckrow archive ls", "duckrow archive ls rides --at ./archive -o csv"),
        more="`missing` are entries between the first and the last that no file has.",
        url=True,
        rows=True,
    ),
    Command(
        "archive query",
        "Ask an archive something in SQL",
        ask,
        (option("sql", said="for DuckDB; each topic is a view, and `archive` all of them"), *_AT),
        (
            "duckrow archive query 'select count(*), max(timestamp) from rides'",
            'duckrow archive query "select topic, count(*) n from archive group by all" --at ./archive',
        ),
        more="Columns are offset, timestamp, key, value, headers, producer, position, topic and partition.\n"
        "Values are bytes: decode(value) is their text.  Names in capitals are the same to DuckDB: topics\n"
        "that differ by that alone have no view, but are in `archive`: where topic = 'Rides'.",
        url=True,
        rows=True,
    ),
    Command(
        "archive verify",
        "Read all of an archive, and tell what is not as it was written",
        verify,
        (
            _TOPIC,
            *_AT,
            option("--against", metavar="PLACE", said="compare it with this archive, too"),
        ),
        (
            "duckrow archive verify",
            "duckrow archive verify rides --at ./archive --against ./archive",
        ),
        more="A file is damaged, overlaps another one, or is missing between others; with --against, also if\n"
        "only one archive has it, or its rows differ.  Exit code 1: something was found.",
        url=True,
        rows=True,
    ),
    Command(
        "archive sync",
        "Copy files that another archive lacks",
        sync,
        (
            option("source", said="where the files are"),
            option("target", said="where they are to be, too"),
            _TOPIC,
        ),
        ("duckrow archive sync ./archive ./copy",),
        more="Each file is checked before it is copied.  So an archive gets what its own node had no more when\n"
        f"it came back, from that of another node; and a copy gets what is new.\n{PLACE}",
        rows=True,
    ),
    Command(
        "archive init",
        "Begin an archive at a place, after another one was lost",
        init,
        (
            option("place", said="where to"),
            option(
                "--adopt",
                switch=True,
                said="the archive that is there goes on with the node that comes next, of whatever row",
            ),
        ),
        ("duckrow archive init ./other",),
        more="The first archive of a node begins by itself.  Later an archiver whose archive is not where it\n"
        "was waits, since its disk is perhaps not mounted.  This says that it is to begin anew.\n"
        "An archiver waits, too, where the archive is of another row, such as that of before a restore:\n"
        "entries that came after the backup are in the archive, and others get their numbers.  --adopt is\n"
        "right only where nothing was archived since the backup, or the clusters have no topic in common.",
    ),
)
