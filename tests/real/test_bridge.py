"""Three bridges with a node each, over real sockets and files, in one process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from duckrow.bridge.attach import Attach
from duckrow.bridge.founding import Charter
from duckrow.bridge.links import Neighbour
from duckrow.bridge.options import BridgeOptions
from duckrow.bridge.process import Bridge
from duckrow.node import columns, makers
from duckrow.node.alone import Options
from duckrow.node.bridged import open_bridged
from duckrow.node.capture import state_hash
from duckrow.node.env import Env
from duckrow.node.events import unheard
from duckrow.node.keeper import Keeper
from duckrow.node.realio import real_env
from duckrow.node.storeoptions import StoreOptions

IDS = (1, 2, 3)
PORT, NODE_PORT = 1, 2  # sockets have these names
BODY = columns.encode([bytes(100_000), b"two"])


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a path so short that a socket may lie in it."""
    path = Path(tempfile.mkdtemp(prefix="row", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def env_of(folder: Path, name: str) -> Env:
    addresses = {f"{kind}{id_}": str(folder / f"{kind}{id_}") for kind in "mn" for id_ in IDS}
    return real_env(name, folder / name, addresses)


def options_of(env: Env, id_: int) -> BridgeOptions:
    founders = tuple((other, 1, True) for other in IDS)
    return BridgeOptions(
        id=id_,
        port=PORT,
        neighbours={i: Neighbour(i, f"m{i}", PORT) for i in IDS if i != id_},
        store=StoreOptions(
            level="write", soft_reserve_bytes=0, soft_reserve_fraction=0.0, hard_reserve_bytes=0
        ),
        charter=Charter(founders, env.rng.randbytes(16), 7, "write"),
    )


def test_three_machines_have_one_row_over_real_sockets_and_files(folder: Path) -> None:
    bridges: dict[int, Bridge] = {}
    nodes: dict[int, Keeper] = {}
    done = trio.Event()

    async def bridge(id_: int) -> None:
        env = env_of(folder, f"m{id_}")
        bridges[id_] = found = await Bridge.open(env, options_of(env, id_))
        async with trio.open_nursery() as nursery:
            await nursery.start(env.net.serve, Attach(found, unheard).handle, NODE_PORT)
            nursery.start_soon(found.run)
            await done.wait()
            nursery.cancel_scope.cancel()
        await found.close()

    async def node(id_: int) -> None:
        env = env_of(folder, f"n{id_}")
        async with open_bridged(env, f"m{id_}", NODE_PORT, Options()) as keeper:
            nodes[id_] = keeper
            await done.wait()

    async def produce(id_: int) -> None:
        keeper = nodes[id_]
        pid = keeper.fresh_pid()
        for seq in range(1, 31):
            turn = makers.Turn(pid, seq=seq, time=keeper.wall_us())
            await keeper.order(makers.produce(turn, "rides", BODY, 2))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for id_ in IDS:
                nursery.start_soon(bridge, id_)
                nursery.start_soon(node, id_)
            while len(nodes) < 3 or not all(each.row.status().active for each in nodes.values()):
                await trio.sleep(0.01)
            async with trio.open_nursery() as producers:
                for id_ in IDS:
                    producers.start_soon(produce, id_)
            while len({each.state.position for each in nodes.values()}) > 1:
                await trio.sleep(0.01)
            assert len({state_hash(each.state) for each in nodes.values()}) == 1
            assert len({each.store.digest for each in bridges.values()}) == 1
            state = nodes[1].state
            topic = state.topic("rides")
            assert topic is not None
            assert state.partition(topic.id, 0).last == 3 * 30 * 2
            done.set()

    trio.run(main)
