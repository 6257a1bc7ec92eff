"""What a client of a cluster sees: nodes at their bridges, each with its server, and the client that
users run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

from duckrow.bridge.attach import Attach
from duckrow.bridge.process import Bridge
from duckrow.node.alone import Options
from duckrow.node.bridged import open_bridged
from duckrow.node.bridgedrow import ReplacedError
from duckrow.node.clientcalls import Receipt
from duckrow.node.env import Env
from duckrow.node.events import unheard
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.storeoptions import StoreOptions
from duckrow.node.trioclient import Client

from .clusterkit import mesh, options_of
from .service import client, serve
from .world import World

NODE_PORT = 4200
IDS = (1, 2, 3)
Use = Callable[["Town"], Awaitable[None]]


@attrs.define
class Town:
    """`m1` is a bridge, `n1` its node, `user` the client's machine."""

    world: World
    env: Env
    bridges: dict[int, Bridge] = attrs.field(factory=dict)
    nodes: dict[int, Keeper] = attrs.field(factory=dict)

    def start(self, id_: int) -> None:
        if not self.world.host(f"m{id_}").alive:
            self.world.start(f"m{id_}", self._bridge)
        if not self.world.host(f"n{id_}").alive:
            self.world.start(f"n{id_}", self._node)

    async def _bridge(self, env: Env) -> None:
        id_ = int(env.name[1:])
        bridge = await Bridge.open(env, options_of(env, mesh(3), id_, "fsync"))
        attach = Attach(bridge, unheard)
        self.bridges[id_] = bridge
        async with trio.open_nursery() as nursery:
            await nursery.start(env.net.serve, attach.handle, NODE_PORT)
            nursery.start_soon(bridge.run)

    async def _node(self, env: Env) -> None:
        id_ = int(env.name[1:])
        store = StoreOptions(scrub_seconds=0)
        options = Options(store=store, housekeeping=HousekeepingOptions(snapshot_items=50))
        while True:
            try:
                async with open_bridged(env, f"m{id_}", NODE_PORT, options) as keeper:
                    self.nodes[id_] = keeper
                    await serve(env, keeper, unheard, trio.Event())
            except* ReplacedError:
                self.nodes.pop(id_, None)  # an image came, and it begins anew

    def kill(self, id_: int, *, power: bool = False) -> None:
        """Both of its processes."""
        self.bridges.pop(id_)
        self.nodes.pop(id_)
        for kind in "nm":
            self.world.kill(f"{kind}{id_}", power=power)

    async def give_new_disk(self, id_: int) -> None:
        """To a machine that is cut off, and so gets nothing of the row until the heal."""
        self.kill(id_)
        for kind in "nm":
            self.world.host(f"{kind}{id_}").media.wipe()
        self.cut_off(id_)
        self.start(id_)
        await self.until(lambda: id_ in self.nodes and bool(self.nodes[id_].row.status().missing))

    def client(self, *ids: int, timeout: float = 10.0) -> Client:
        return client(self.env, timeout=timeout, nodes=[f"n{id_}" for id_ in ids])

    def cut_off(self, id_: int) -> None:
        """From the other bridges; its clients reach it."""
        self.world.net.partition([f"m{id_}"], [f"m{other}" for other in IDS if other != id_])

    async def until(self, true: Callable[[], bool], seconds: float = 20) -> None:
        with trio.fail_after(seconds):
            while not true():
                await trio.sleep(0.01)

    async def until_all_act(self) -> None:
        await self.until(
            lambda: (
                len(self.nodes) == 3
                and all(node.row.status().active for node in self.nodes.values())
            )
        )


def run(
    use: Use,
    seed: int = 1,
    tolerate: tuple[type[Exception], ...] = (),
    buggify: float = 0.0,
) -> None:
    done = trio.Event()

    async def main(world: World) -> None:
        async def user(env: Env) -> None:
            town = Town(world, env)
            try:
                for id_ in IDS:
                    town.start(id_)
                await town.until_all_act()
                await use(town)
            finally:
                done.set()

        world.start("user", user)
        await done.wait()

    world = World(seed, tolerate=tolerate)
    world.buggify = buggify
    world.run(main)


async def number_of(row: Client, given: Receipt) -> int | None:
    """When it has one."""
    found = await row.receipt(given)
    return found.number or (await found.ordered()).number


async def values(row: Client, topic: str = "t") -> list[bytes]:
    return [entry.value for entry in await row.pull(topic, limit=10_000)]
