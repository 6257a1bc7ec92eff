"""`duckrow node`: runs a node until it is told to stop."""

from __future__ import annotations

import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .command import DONE, FAILED, Args, Command, option
from .configfiles import OPTIONS, cluster_text_of, loaded
from .console import Console

if TYPE_CHECKING:
    from duckrow.node.addresses import Unix
    from duckrow.node.clusterfile import ClusterFile, Peer
    from duckrow.node.companions import Companion
    from duckrow.node.config import Config
    from duckrow.node.daemon import BridgeOptions, DaemonOptions, Running

log = logging.getLogger("duckrow.node")

MORE: Final = """\
It serves until SIGTERM or Ctrl-C, and then ends in order: what was taken is answered, and the next
start is a quick one.  A second signal ends it at once; what was answered stays.
Without --config the file is the one that DUCKROW_CONFIG names, else the first there is of
duckrow.toml here, ~/.config/duckrow/duckrow.toml and /etc/duckrow/duckrow.toml, else none."""


def run(args: Args, console: Console) -> int:
    import attrs
    import trio

    from duckrow.node import daemon
    from duckrow.node.errors import first_of

    from . import logs

    config = configured(args, console)
    options = options_of(config, console)
    if config.node.cluster:
        options = attrs.evolve(options, bridge=bridge_of(args, config, console, options))
    logs.start(config.log.level, config.log.format, console.err, console.environ)

    def ready(running: Running) -> None:
        if console.err.isatty():  # others read the event
            console.say(f"{options.server.name} is ready at {running.url}; Ctrl-C ends it")

    try:
        trio.run(daemon.main, options, ready)
    except (Exception, BaseExceptionGroup) as error:
        cause = first_of(error)
        if is_told(cause) and config.log.format != "json":
            raise cause from None
        log.error("ended error=%s", cause, exc_info=None if is_told(cause) else cause)
        return FAILED
    return DONE


def is_told(error: BaseException) -> bool:
    """Whether its sentence says enough; of a mistake of ours, only where it happened does."""
    from duckrow.node.errors import DiskFailed, DuckrowError, UnknownVersion

    return isinstance(error, DuckrowError | OSError | DiskFailed | UnknownVersion)


def configured(args: Args, console: Console) -> Config:
    """
    Raises:
        Refused: something in it is wrong; says all of it.
    """
    flags: dict[str, tuple[object, str]] = {}
    for flag in ("name", "data", "listen", "cluster"):
        if getattr(args, flag, None):
            flags[f"node.{flag}"] = getattr(args, flag), f"--{flag}"
    return loaded(args, console.environ, flags).checked()


def member_of(config: Config) -> tuple[ClusterFile, Peer]:
    """What the cluster file says, and which of its members this is.

    Raises:
        NotFound: there is no such file, or it does not name this machine.
        Refused: something in it is wrong.
    """
    from duckrow.node.clusterfile import read_cluster
    from duckrow.node.errors import NotFound, Refused

    path = Path(config.node.cluster).expanduser()
    cluster = read_cluster(cluster_text_of(path), str(path))
    try:
        return cluster, cluster.named(config.node.name or socket.gethostname())
    except Refused as error:
        raise NotFound(str(error)) from error


def bridge_of(
    args: Args, config: Config, console: Console, options: DaemonOptions
) -> BridgeOptions:
    """The same settings make its command line, so that it is the same whoever starts it."""
    from duckrow.node.daemon import BridgeOptions

    _, own = member_of(config)
    words = [
        "bridge",
        "run",
        "--supervised",
        "--cluster",
        str(Path(config.node.cluster).expanduser().absolute()),
    ]
    words += ["--name", own.name, "--data", str(options.data.absolute())]
    words += ["--config", args.config] if args.config else []
    words += ["--peers", args.peers] if args.peers else []
    words += [word for each in args.set or () for word in ("--set", each)]
    return BridgeOptions(
        command=(*own_program(), *words),
        socket=socket_of_bridge(options.data, console),
    )


def socket_of_bridge(data: Path, console: Console) -> Unix:
    """Where it is found by the node of that folder.

    Raises:
        Refused: somebody else may have made the folder of the socket, and be found there instead.
    """
    from duckrow.node.addresses import bridge_socket, own_socket
    from duckrow.node.connecting import check_own

    environ, uid = console.environ, os.getuid()
    own, found = own_socket(environ, uid), bridge_socket(str(data.absolute()), environ, uid)
    if Path(found.path).parent == Path(own.path).parent:
        check_own(own, environ)
    return found


def options_of(config: Config, console: Console) -> DaemonOptions:
    from duckrow.node.addresses import own_socket
    from duckrow.node.connecting import check_own
    from duckrow.node.daemonoptions import daemon_options

    from .cli import version

    node, own = config.node, own_socket(console.environ, os.getuid())
    listen = node.addresses(own)
    if own in listen:
        check_own(own, console.environ)
    return daemon_options(
        config,
        own,
        data=Path(node.data).expanduser(),
        listen=listen,
        name=socket.gethostname(),
        version=version(),
        companions=companions_of(config),
    )


def companions_of(config: Config) -> tuple[Companion, ...]:
    """The processes beside a node that its configuration names."""
    from duckrow.node.companions import Companion

    if not config.archive.to:
        return ()
    place = config.archive.to
    if "://" not in place:
        place = str(Path(place).expanduser().absolute())
    words = ("archive", "run", "--supervised", "--to", place)
    said = config.log
    told = ("--set", f"log.level={said.level}", "--set", f"log.format={said.format}")
    return (Companion(name="archiver", command=(*own_program(), *words, *told)),)


def own_program() -> tuple[str, ...]:
    """This very program, for another process.  Nothing is imported from the working folder, whose files are the
    user's, unless this process does so, too.
    """
    is_here = str(Path.cwd()) in (str(Path(each).absolute()) for each in sys.path)
    safe = () if is_here else ("-P",)
    return (sys.executable, *safe, "-m", "duckrow.tools.cli")


CLUSTER_OPTIONS: Final = (
    option("--cluster", metavar="FILE", said="the cluster file: with it, the node has peers"),
    option(
        "--peers",
        metavar="HOST:PORT",
        said="where its bridge listens, if that is not its address in the cluster file",
    ),
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
            *CLUSTER_OPTIONS,
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
