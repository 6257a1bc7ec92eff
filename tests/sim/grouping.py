"""How many produces one sync makes durable, when many ask at the same time.

    PYTHONPATH=src:tests python -m sim.grouping

Each producer waits for its answer before it produces again, so there are never more of them in
flight than producers; the disk takes the same time for every sync.  With 32 of them, 32 a sync is
the most there can be, and 16 is what two groups get that take turns.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from duckrow.node.alone import Options, open_node
from duckrow.node.env import Env
from duckrow.node.keeper import Keeper
from duckrow.node.producer import Producer
from duckrow.node.storeoptions import FSYNC, StoreOptions

from .alone import Machine


class Grouping(NamedTuple):
    produces: int
    syncs: int
    seconds: float  # simulated

    @property
    def produces_per_sync(self) -> float:
        return self.produces / self.syncs


def grouped(
    seed: int = 0, *, producers: int = 32, each: int = 50, sync_seconds: float = 0.005
) -> Grouping:
    """One node at level fsync."""
    machine = Machine(seed)
    machine.media.sync_latency = sync_seconds

    async def produce(node: Keeper) -> None:
        producer = Producer(node)
        for number in range(each):
            await producer.produce("topic", [b"%d" % number])

    async def main(env: Env) -> Grouping:
        async with open_node(env, Options(store=StoreOptions(level=FSYNC))) as node:
            syncs, began = machine.media.counts["sync"], trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(producers):
                    nursery.start_soon(produce, node)
            seconds = trio.current_time() - began
            return Grouping(producers * each, machine.media.counts["sync"] - syncs, seconds)

    return machine.run(main)


if __name__ == "__main__":
    found = grouped()
    print(f"{found.produces_per_sync:.1f} produces a sync, {found.syncs} syncs")
