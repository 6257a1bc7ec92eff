"""The daemon: one node with its listeners, from the lock on its folder to the orderly end.

    lock ─► recover ─► listen ─► ready ··· SIGTERM ─► no new orders ─► answers out ─► snapshot ─► end

Nobody is let in before the row is recovered.  A second SIGTERM ends at once; what was answered is on
the disk all the same.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from . import makers
from .addresses import Address, Unix, is_loopback, url_of
from .alone import Options, open_node
from .errors import DuckrowError, Refused
from .keeper import Keeper
from .realio import real_env
from .realnet import notify, serve_at
from .server import Server, ServerOptions
from .settings import CREATE

log = logging.getLogger("duckrow.daemon")

DRAIN_SECONDS = 10.0


@attrs.frozen(kw_only=True)
class DaemonOptions:
    data: Path
    listen: tuple[Address, ...]
    node: Options = attrs.field(factory=Options)
    server: ServerOptions = attrs.field(factory=ServerOptions)
    insecure: bool = False  # serve strangers without a token
    drain_seconds: float = DRAIN_SECONDS  # what is under way may take so long at the end
    create: str = ""  # the cluster's setting of this name; empty: as it is

    def __attrs_post_init__(self) -> None:
        if not self.listen:
            raise Refused("a node needs an address to listen on")
        for address in self.listen:
            if not (is_loopback(address) or self.server.token or self.insecure):
                raise Refused(
                    f"{address} can be reached from other machines: set a token, or "
                    "`insecure = true` if everybody there may read and write"
                )


@attrs.frozen
class Running:
    """A node that is ready."""

    keeper: Keeper
    server: Server
    addresses: tuple[Address, ...]

    @property
    def url(self) -> str:
        """Where a client on this machine finds it: the Unix socket, if there is one."""
        unix = next((a for a in self.addresses if isinstance(a, Unix)), None)
        return url_of(unix or self.addresses[0])


async def run(
    options: DaemonOptions,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until `stop` is set, and ends in order.  Started with the node once it is ready.

    Raises:
        Conflict: another process has the folder; says which.
        Corrupt: the state cannot be made from what is there.
        OSError: nobody can listen there.
        DiskFailed: in a group; the process has to end.
    """
    env = real_env(options.server.name, options.data)
    async with open_node(env, options.node) as keeper:
        await _agree(keeper, options.create)
        server = Server(keeper, options.server, env.disk.free, log.log)
        async with trio.open_nursery() as sessions, trio.open_nursery() as listeners:
            await sessions.start(server.run)
            addresses = [
                await listeners.start(serve_at, server.handle, address, sessions)
                for address in options.listen
            ]
            task_status.started(Running(keeper, server, tuple(addresses)))
            log.info("ready addresses=%s", ",".join(map(str, addresses)))
            await stop.wait()
            log.info("stopping clients=%d", len(server.sessions))
            server.stop()
            listeners.cancel_scope.cancel()
            with trio.move_on_after(options.drain_seconds, shield=True):
                await server.drain()
            sessions.cancel_scope.cancel()


async def _agree(keeper: Keeper, create: str) -> None:
    """Brings the setting that the configuration names into the row, unless it is there."""
    if not create or CREATE[create] == keeper.state.settings.create:
        return
    turn = makers.Turn(keeper.fresh_pid(), 1, time=keeper.wall_us())
    try:
        await keeper.order(makers.settings(turn, {"create": create}))
    except DuckrowError as error:  # the row takes nothing now, and can be read all the same
        log.warning("setting_not_made create=%s error=%s", create, error)


async def main(options: DaemonOptions, ready: Callable[[Running], None]) -> None:
    """`run` for a process of its own: with signals, and word to who started it.

    Raises:
        See `run`.
    """
    stop = trio.Event()

    async def serve(*, task_status: trio.TaskStatus[Running]) -> None:
        await run(options, stop, task_status=task_status)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(_watch_signals, stop)
        ready(await nursery.start(serve))
        notify("READY=1")
        await stop.wait()
        notify("STOPPING=1")


async def _watch_signals(
    stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if stop.is_set():
                log.warning("stopped_at_once signal=%d", number)
                os._exit(128 + number)
            stop.set()
