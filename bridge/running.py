"""A bridge as a process: its folder, its socket for the node, and its orderly end.

    lock ─► recover ─► listen ─► ready ··· SIGTERM ─► the others are told ─► synced, closed

One that a node has started lives on when the node dies, so that the cluster notices nothing, and
waits for the next one.  If none comes it leaves the view, and ends.  A shutdown of the machine tells it to
end, and so does its node, which was told as well: of such a bridge that is no second telling, and no reason to
end without the record that all is on the disk.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import attrs
import trio

from duckrow.node.addresses import Address, Tcp, Unix
from duckrow.node.clusterfile import ClusterFile, Peer
from duckrow.node.daemon import calm_collector, watch_signals
from duckrow.node.damage import tell_of_damages
from duckrow.node.errors import Conflict
from duckrow.node.locks import BRIDGE_LOCK
from duckrow.node.realio import real_env
from duckrow.node.realnet import notify, serve_at
from duckrow.node.storeoptions import StoreOptions

from .attach import Attach
from .configured import check_row, options_of
from .process import Bridge
from .refusals import refused

log = logging.getLogger("duckrow.bridge")


@attrs.frozen(kw_only=True)
class RunOptions:
    data: Path
    socket: Unix  # of its node
    cluster: ClusterFile
    own: Peer
    store: StoreOptions = attrs.field(factory=StoreOptions)
    listen: Tcp | None = None  # if it is not where the others find it
    supervised: bool = False  # by its node, which kills it if it does not end
    orphan_seconds: float = 0  # without a node for so long, it ends; 0: it stays


async def run(
    options: RunOptions,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Orders until `stop` is set, and ends in order.  Started when it has recovered and listens.

    Raises:
        Conflict: another process has the folder, or the row in it is somebody else's.
        Refused: it may not listen there without a secret.
        OSError: nobody can listen there.
        DiskFailed: in a group; the process has to end.
    """
    own, cluster = options.own, options.cluster
    listen = options.listen or own.address
    hosts = {peer.name: peer.address.host for peer in cluster.peers.values()}
    env = real_env(own.name, options.data, {**hosts, own.name: listen.host})
    found = options_of(cluster, own, options.store, env.rng, listen)
    try:
        env.disk.lock(BRIDGE_LOCK)
    except BlockingIOError as error:
        raise Conflict(f"this folder has a bridge already: {error}") from error
    try:
        bridge = await Bridge.open(env, found, log.log)
        if cut := refused(options.data, cluster):
            log.warning("links_refused peers=%s", ",".join(map(str, sorted(cut))))
            bridge.links.refuse(cut)
        tell_of_damages(log.log, bridge.store.recovered.damages)
        orderly = False
        try:
            check_row(bridge.member.standing.newest, cluster, own, bridge.store.uuid)
            await _serve(bridge, options, stop, task_status)
            orderly = True
        finally:
            if orderly:
                await bridge.close()
            else:
                bridge.abandon()
    finally:
        env.disk.unlock(BRIDGE_LOCK)


async def _serve(
    bridge: Bridge, options: RunOptions, stop: trio.Event, task_status: trio.TaskStatus[Address]
) -> None:
    attach = Attach(bridge, log.log)
    async with trio.open_nursery() as nursery:
        await nursery.start(bridge.run)
        await nursery.start(serve_at, attach.handle, options.socket)
        listen = options.listen or options.own.address
        task_status.started(listen)
        log.info("bridge_ready name=%s address=%s", options.own.name, listen)
        async with trio.open_nursery() as waiting:
            if options.orphan_seconds:
                waiting.start_soon(_orphaned, attach, options.orphan_seconds, stop)
            await stop.wait()
            waiting.cancel_scope.cancel()
        log.info("bridge_stopping")
        await bridge.leave()
        nursery.cancel_scope.cancel()


async def _orphaned(attach: Attach, seconds: float, stop: trio.Event) -> None:
    await attach.wait_alone(seconds)
    log.warning("no_node seconds=%g", seconds)
    stop.set()


async def main(options: RunOptions) -> None:
    """`run` for a process of its own: with signals, and word to who started it.

    Raises:
        See `run`.
    """
    stop, starting = trio.Event(), trio.CancelScope()

    async def serve(*, task_status: trio.TaskStatus[Address]) -> None:
        await run(options, stop, task_status=task_status)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        patient = options.supervised
        await nursery.start(partial(watch_signals, stop, starting, patient=patient))
        ready = False
        with starting:
            await nursery.start(serve)
            ready = True
        if not ready:  # told to stop before
            nursery.cancel_scope.cancel()
            return
        calm_collector()
        if options.supervised:
            return  # its node tells when all is ready, and when all ends
        notify("READY=1")
        await stop.wait()
        notify("STOPPING=1")
