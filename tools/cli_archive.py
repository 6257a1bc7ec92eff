"""`duckrow archive`: writing what is pruned to files, and looking at these."""

from __future__ import annotations

import logging
import signal
import sys
from threading import Event, Thread
from typing import Final

from .clients import client_of
from .command import DONE, Args, Command, UsageError, option
from .configfiles import OPTIONS, loaded
from .console import Console

log = logging.getLogger("duckrow.archiver")

PLACE: Final = (
    "A place is a folder, or the address of a file system that pyarrow or fsspec knows, such as "
    "s3://bucket/archive."
)


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
            once(archiver)
        else:
            serve(archiver, stop, lambda place: log.info("ready place=%s", place))
    log.info("ended files=%d entries=%d", archiver.files, archiver.entries)
    return DONE


def init(args: Args, console: Console) -> int:
    import uuid

    from duckrow.node.archiveplace import Place
    from duckrow.node.errors import Exists

    place = Place(args.place)
    if mark := place.mark():
        raise Exists(f"there is an archive at {place} already: {mark}")
    mark = uuid.uuid4().hex[:12]
    place.begin(mark)
    console.say(f"the archive {mark} is begun at {place}")
    return DONE


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


_AT: Final = option("place", said="where the archive is")
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
        "archive init",
        "Begin an archive at a place, after another one was lost",
        init,
        (_AT,),
        ("duckrow archive init ./other",),
        more="The first archive of a node begins by itself.  Later an archiver whose archive is not where it\n"
        "was waits, since its disk is perhaps not mounted.  This says that it is to begin anew.",
    ),
)
