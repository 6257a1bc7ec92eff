"""A configuration made into what a daemon is started with."""

from __future__ import annotations

from pathlib import Path

from .addresses import Address, Unix, read_listen
from .alone import Options
from .companions import Companion
from .config import Config
from .daemon import DaemonOptions
from .server import ServerOptions


def daemon_options(
    config: Config,
    own: Unix,
    *,
    data: Path,
    listen: tuple[Address, ...],
    name: str,
    version: str = ServerOptions().version,
    companions: tuple[Companion, ...] = (),
) -> DaemonOptions:
    """`own` is the socket that `unix:` alone stands for; `name`, if the configuration has none."""
    node = config.node
    return DaemonOptions(
        data=data,
        listen=listen,
        http=read_listen(config.http.listen, own) if config.http.listen else None,
        node=Options(store=config.store.options()),
        server=ServerOptions(
            name=node.name or name,
            version=version,
            token=node.token,
            connections_max=node.connections,
            host_connections_max=node.host_connections,
        ),
        insecure=node.insecure,
        drain_seconds=node.drain,
        create=config.topics.create,
        companions=companions,
    )
