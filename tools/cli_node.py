"""`duckrow node`: runs a node until it is told to stop."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .command import DONE, FAILED, Args, Command, option
from .configfiles import OPTIONS, loaded
from .console import Console

if TYPE_CHECKING:
    from duckrow.node.config import Config
    from duckrow.node.daemon import DaemonOptions, Running

log = logging.getLogger("duckrow.node")

MORE: Final = """\
It serves until SIGTERM or Ctrl-C, and then ends in order: what was taken is answered, and the next
start is a quick one.  A second signal ends it at once; what was answered stays.
Without --config the file is the one that DUCKROW_CONFIG names, else the first there is of
duckrow.toml here, ~/.config/duckrow/duckrow.toml and /etc/duckrow/duckrow.toml, else none."""


def run(args: Args, console: Console) -> int:
    import trio

    from duckrow.node import daemon
    from duckrow.node.errors import first_of

    from . import logs

    config = configured(args, console)
    options = options_of(config, console)
    logs.start(config.log.level, config.log.format, console.err, console.environ)

    def ready(running: Running) -> None:
        if console.err.isatty():  # others read the event
            console.say(f"{options.server.name} is ready at {running.url}; Ctrl-C ends it")

    try:
        trio.run(daemon.main, options, ready)
    except (Exception, BaseExceptionGroup) as error:
        cause = first_of(error)
        if _is_told(cause) and config.log.format != "json":
            raise cause from None
        log.error("ended error=%s", cause, exc_info=None if _is_told(cause) else cause)
        return FAILED
    return DONE


def _is_told(error: BaseException) -> bool:
    """Whether its sentence says enough; of a mistake of ours, only where it happened does."""
    from duckrow.node.errors import DiskFailed, DuckrowError, UnknownVersion

    return isinstance(error, DuckrowError | OSError | DiskFailed | UnknownVersion)


def configured(args: Args, console: Console) -> Config:
    """
    Raises:
        Refused: something in it is wrong; says all of it.
    """
    flags: dict[str, tuple[object, str]] = {}
    for flag, key in (("name", "node.name"), ("data", "node.data"), ("listen", "node.listen")):
        if getattr(args, flag):
            flags[key] = getattr(args, flag), f"--{flag}"
    return loaded(args, console.environ, flags).checked()


def options_of(config: Config, console: Console) -> DaemonOptions:
    from duckrow.node.addresses import own_socket, read_listen
    from duckrow.node.alone import Options
    from duckrow.node.daemon import DaemonOptions
    from duckrow.node.server import ServerOptions

    from .cli import version

    node, own = config.node, own_socket(console.environ, os.getuid())
    return DaemonOptions(
        data=Path(node.data).expanduser(),
        listen=node.addresses(own),
        http=read_listen(config.http.listen, own) if config.http.listen else None,
        node=Options(store=config.store.options()),
        server=ServerOptions(
            name=node.name or socket.gethostname(),
            version=version(),
            token=node.token,
            connections_max=node.connections,
            host_connections_max=node.host_connections,
        ),
        insecure=node.insecure,
        drain_seconds=node.drain,
        create=config.topics.create,
    )


COMMANDS: Final = (
    Command(
        "node",
        "Run a node",
        run,
        (
            option("--data", metavar="DIR", said="its folder, where everything is kept"),
            option(
                "--listen",
                metavar="ADDR",
                many="repeat",
                said="where clients find it: tcp://host:port, unix:/path, or unix: alone",
            ),
            option("--name", metavar="N", said="what status and logs call it"),
            *OPTIONS,
        ),
        (
            "duckrow node",
            "duckrow node --data ./data --listen tcp://127.0.0.1:3826 --name m1",
            "duckrow node --data ./fast --listen unix:$PWD/fast.sock --set store.durability=write",
        ),
        more=MORE,
    ),
)
