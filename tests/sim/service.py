"""A node with its server on the simulated network, as the daemon runs it, and a client of it."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from duckrow.node.addresses import PORT, Tcp
from duckrow.node.env import Env
from duckrow.node.events import Note
from duckrow.node.keeper import Keeper
from duckrow.node.server import Server, ServerOptions
from duckrow.node.trioclient import Client

NODE = "m1"
DRAIN_SECONDS = 2.0
BACK_SECONDS = 2.5  # so long a client may stay away from a node that is there again


async def serve(env: Env, node: Keeper, note: Note, stopping: trio.Event) -> None:
    """Until it is to stop: then answers go out before the connections end."""
    server = Server(node, ServerOptions(name=env.name), env.disk.free, note)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await nursery.start(env.net.serve, server.handle, PORT)
        await stopping.wait()
        server.stop()
        with trio.move_on_after(DRAIN_SECONDS):
            await server.drain()
        nursery.cancel_scope.cancel()


def client(env: Env, *, timeout: float, nodes: Sequence[str] = (NODE,)) -> Client:
    """Of several nodes it takes the next one when one is lost."""
    return Client([Tcp(node, PORT) for node in nodes], name=env.name, timeout=timeout, env=env)
