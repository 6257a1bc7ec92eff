"""The daemon: one node with its listeners, from the lock on its folder to the orderly end.

    lock ─► recover ─► listen ─► ready ··· SIGTERM ─► no new orders ─► answers out ─► snapshot ─► end

With a bridge, that is there before and ends after it.  Nobody is let in before the row is recovered.
A second SIGTERM ends at once; what was answered is on the disk all the same.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from . import makers
from .addresses import Address, Unix, is_loopback, url_of
from .alone import Options, open_node
from .bridged import open_bridged
from .bridgedrow import ReplacedError
from .companions import Companion
from .damage import tell_of_damages
from .env import Env
from .errors import Conflict, DuckrowError, Refused
from .keeper import Keeper
from .limits import CONNECTIONS_SPARE_FILES
from .locks import NODE_LOCK
from .lonerow import LoneRow
from .realio import RealDisk, real_env
from .realnet import notify, serve_at
from .scrubrounds import tell_of_scrub
from .server import Server, ServerOptions
from .settings import CREATE
from .supervising import Supervisor
from .tally import Histogram
from .watching import Watching

log = logging.getLogger("duckrow.daemon")

DRAIN_SECONDS = 10.0
BRIDGE = "bridge"  # what the node calls it
COLLECT = 20_000, 1_000, 1_000  # new objects; and collections of the new before one of more


@attrs.frozen(kw_only=True)
class BridgeOptions:
    """How the bridge of this node is started, and where it is found."""

    command: tuple[str, ...]
    socket: Unix


@attrs.frozen(kw_only=True)
class DaemonOptions:
    data: Path
    listen: tuple[Address, ...]
    node: Options = attrs.field(factory=Options)
    server: ServerOptions = attrs.field(factory=ServerOptions)
    insecure: bool = False  # serve strangers without a token
    drain_seconds: float = DRAIN_SECONDS  # what is under way may take so long at the end
    create: str = ""  # the cluster's setting of this name; empty: as it is
    http: Address | None = None  # of /metrics, /healthz and /readyz; nobody is asked for a token
    bridge: BridgeOptions | None = None  # of a node that has peers
    companions: tuple[Companion, ...] = ()  # processes that are its clients

    def __attrs_post_init__(self) -> None:
        if not self.listen:
            raise Refused("a node needs an address to listen on")
        for address in self.listen:
            if not (is_loopback(address) or self.server.token or self.insecure):
                raise Refused(
                    f"{address} can be reached from other machines: set a token, or "
                    "`insecure = true` if everybody there may read and write"
                )


def url_near(addresses: Sequence[Address]) -> str:
    """Where a client on this machine finds a node: at its Unix socket, if there is one."""
    return url_of(next((a for a in addresses if isinstance(a, Unix)), addresses[0]))


@attrs.frozen
class Running:
    """A node that is ready."""

    keeper: Keeper
    server: Server
    addresses: tuple[Address, ...]
    http: Address | None = None

    @property
    def url(self) -> str:
        """Where a client on this machine finds it."""
        return url_near(self.addresses)


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
    there = {BRIDGE: str(options.bridge.socket)} if options.bridge else {}
    env = real_env(options.server.name, options.data, there)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = max(1, files - CONNECTIONS_SPARE_FILES)
    limits = attrs.evolve(options.server, connections_max=min(options.server.connections_max, room))
    watching = Watching(env.disk.syncs if isinstance(env.disk, RealDisk) else Histogram())
    async with trio.open_nursery() as watchers:
        http = await _watch(options.http, watching, watchers)
        async with _bridge(env, options) as supervision:
            serving = _Serving(options, limits, watching, stop, http)
            watchers.start_soon(serving.open_no_more)
            again = True
            while again:
                again = False
                with serving.opening():
                    try:
                        async with _opened(env, options, supervision) as keeper:
                            await serving.serve(keeper, env, task_status)
                    except* ReplacedError as replaced:
                        log.warning("opened_again why=%s", replaced.exceptions[0])
                        again = not stop.is_set()
                        if again:
                            watching.begins_anew()
        watchers.cancel_scope.cancel()


@attrs.define
class _Serving:
    """What clients find, however often the node behind it is opened."""

    options: DaemonOptions
    limits: ServerOptions
    watching: Watching
    stop: trio.Event
    http: Address | OSError | None
    addresses: list[Address] = attrs.field(factory=list, init=False)  # where it listened before
    _opening: trio.CancelScope | None = attrs.field(
        default=None, init=False
    )  # again, till it serves

    def opening(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        if self.addresses:  # else whoever starts it cancels that
            self._opening = scope
        return scope

    async def open_no_more(self) -> None:
        """Told to stop, it waits for no row to begin anew with: that may take as long as others are away."""
        await self.stop.wait()
        if self._opening is not None:
            self._opening.cancel()

    async def serve(self, keeper: Keeper, env: Env, task_status: trio.TaskStatus[Running]) -> None:
        self._opening = None  # it ends in order
        if isinstance(self.http, OSError):
            raise self.http  # that the folder is in use would have been the better reason
        server = Server(keeper, self.limits, env.disk.free, log.log)
        async with trio.open_nursery() as sessions, trio.open_nursery() as listeners:
            await sessions.start(server.run)
            before, self.addresses = (
                self.addresses,
                [
                    await listeners.start(serve_at, server.handle, address, sessions)
                    for address in self.addresses or self.options.listen
                ],
            )
            self.watching.ready(keeper, server)
            if not before:
                task_status.started(Running(keeper, server, tuple(self.addresses), self.http))
            log.info("ready addresses=%s", ",".join(map(str, self.addresses)))
            url = url_near(self.addresses)
            async with trio.open_nursery() as companions:
                for each in self.options.companions:
                    companions.start_soon(each.run, url, self.limits.token)
                await self.stop.wait()
                companions.cancel_scope.cancel()
            log.info("stopping clients=%d", len(server.sessions))
            server.stop()
            listeners.cancel_scope.cancel()
            with trio.move_on_after(self.options.drain_seconds, shield=True):
                await server.drain()
            sessions.cancel_scope.cancel()


@attrs.frozen
class _Supervision:
    supervisor: Supervisor
    nursery: trio.Nursery


@asynccontextmanager
async def _bridge(env: Env, options: DaemonOptions) -> AsyncIterator[_Supervision | None]:
    """The bridge beside this node; None: it is alone."""
    if options.bridge is None:
        yield None
        return
    try:
        env.disk.lock(NODE_LOCK)
    except BlockingIOError as error:
        raise Conflict(f"this folder has a node already: {error.strerror}") from error
    supervisor = Supervisor(options.bridge.command, options.data)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run)
            try:
                yield _Supervision(supervisor, nursery)
            finally:
                with trio.CancelScope(shield=True):
                    await supervisor.stop()
                nursery.cancel_scope.cancel()
    finally:
        env.disk.unlock(NODE_LOCK)


@asynccontextmanager
async def _opened(
    env: Env, options: DaemonOptions, supervision: _Supervision | None
) -> AsyncIterator[Keeper]:
    """The node alone, or at its bridge."""
    if supervision is None:
        async with open_node(env, options.node) as alone:
            tell_of_damage(alone.row)
            await _agree(alone, options.create)
            yield alone
        return
    async with open_bridged(env, BRIDGE, 0, options.node, log.log) as keeper:
        supervision.supervisor.is_proven = True
        supervision.nursery.start_soon(_agree, keeper, options.create)
        yield keeper


async def _watch(
    address: Address | None, watching: Watching, nursery: trio.Nursery
) -> Address | OSError | None:
    """Health is told before there is a node."""
    if address is None:
        return None
    try:
        found: Address = await nursery.start(serve_at, watching.handle, address)
    except OSError as error:
        return error
    log.info("watched address=%s", found)
    return found


def tell_of_damage(row: LoneRow) -> None:
    """Logs what the start found, and from now on what every scrub finds."""
    tell_of_damages(log.log, row.store.recovered.damages)
    if row.broken is not None:
        log.error("row_ended why=%s", row.broken)
    row.scrubs.on_report = partial(tell_of_scrub, log.log)


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
    stop, starting = trio.Event(), trio.CancelScope()
    _raise_file_limit(options.server.connections_max + CONNECTIONS_SPARE_FILES)

    async def serve(*, task_status: trio.TaskStatus[Running]) -> None:
        await run(options, stop, task_status=task_status)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(watch_signals, stop, starting)
        running: Running | None = None
        with starting:
            running = await nursery.start(serve)
        if running is None:  # told to stop before it was ready
            nursery.cancel_scope.cancel()
            return
        calm_collector()
        ready(running)
        notify("READY=1")
        await stop.wait()
        notify("STOPPING=1")


def calm_collector() -> None:
    """Python looks for rings of garbage among all objects, again and again, while everybody waits:
    with 10,000 topics for 40 ms.  A node makes next to none, so old objects are looked at seldom,
    and those of the start never.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT)


async def watch_signals(
    stop: trio.Event,
    starting: trio.CancelScope,
    *,
    patient: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """`patient`: a second signal changes nothing, for it may be the word of somebody else."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if stop.is_set():
                if patient:
                    continue
                log.warning("stopped_at_once signal=%d", number)
                os._exit(128 + number)
            stop.set()
            starting.cancel()


def _raise_file_limit(wanted: int) -> None:
    """The usual soft limit is for programs that use `select`; this one does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
