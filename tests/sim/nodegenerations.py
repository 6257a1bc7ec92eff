"""A lone node over generations: its row, its state and its index of numbers are hit, and it is started again.

What was answered is promised: it is read, or somebody is told that it is damaged.  Nothing else is ever read,
no number is given twice, and once there was a start there always is one.  A new lineage promises nothing of
the old one.
"""

from __future__ import annotations

import random

import attrs
import trio

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper, Options, open_node
from duckrow.node.entries import entries_of
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, Damaged, DiskFailed
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull
from duckrow.node.storeoptions import FSYNC, MEMORY, WRITE

from .alone import Machine
from .hurting import hurt
from .nodekit import SMALL
from .park import SimCrashed

TOPICS = ("t", "u")
SPARED = ("lock", "reserve", "last", "ended")  # of these nothing is read


class NodeGenerations:
    def __init__(self, seed: int) -> None:
        self._rng, self._machine = random.Random(seed), Machine(seed)
        rng = self._rng
        self._level = rng.choice([FSYNC, FSYNC, WRITE, MEMORY])
        self._options = Options(
            store=attrs.evolve(
                SMALL.store,
                segment_bytes=4096,
                followable_bytes=4096,
                window_bytes=4096,
                level=self._level,
            ),
            housekeeping=HousekeepingOptions(
                snapshot_items=rng.choice([15, 40]),
                snapshot_bytes=16 * 1024,
                followable_bytes=4096,
            ),
        )
        self._known: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
        self._pruned = dict.fromkeys(TOPICS, 0)
        self._lineage = 0
        self._is_told = False  # that something is damaged
        self._is_hit = False  # since the last start
        self.refused = ""  # why there is no start

    def live(self) -> None:
        """Without any damage."""
        self._run(self._work)

    def start(self) -> None:
        """What was hit is seen, and it goes on."""
        self._run(self._look)

    def hurt(self, count: int) -> None:
        """Not the end of the row: what was lost there looks like a torn tail."""
        media, rng = self._machine.media, self._rng
        for _ in range(count):
            newest = max(path for path in media.paths() if path.endswith(".seg"))
            paths = [p for p in media.paths() if p.split("/")[1] not in SPARED and p != newest]
            folder = rng.choice(["row/", "row/", "state/", "numbers/"])
            hurt(self._machine, rng, [p for p in paths if p.startswith(folder)] or paths)
        self._is_hit = True

    def power_loss(self) -> None:
        if self._level == FSYNC:  # else what was answered may be gone, in a new lineage
            self._machine.media.power_loss()

    def _run(self, work: object) -> None:
        async def main(env: Env) -> None:
            try:
                async with open_node(env, self._options) as node:
                    await work(node)  # type: ignore[operator]
                    if self._rng.random() < 0.5:
                        self._machine.media.crash_before(1)
            except (Corrupt, DiskFailed) as error:
                assert self._is_hit, f"no start any more: {error}"
                self.refused = str(error)
            else:
                self._is_hit = False

        try:
            self._machine.run(main)
        except SimCrashed:
            self._machine.media.kill()
            self._is_hit = False
        self._machine.media.disarm()

    async def _work(self, node: LoneKeeper) -> None:
        rng, producer = self._rng, Producer(node)
        assert node.state.view is not None
        self._lineage = node.state.view.lineage
        for _ in range(rng.randint(5, 60)):
            topic = rng.choice(TOPICS)
            value = b"%s %d " % (topic.encode(), rng.getrandbits(40))
            await self._produce(producer, topic, value + bytes(rng.choice([20, 60, 300])))
            if rng.random() < 0.05:
                await trio.sleep(2)
            if rng.random() < 0.06:
                await self._prune(node, rng.choice(TOPICS))
        await trio.sleep(rng.choice([0, 0, 5]))

    async def _produce(self, producer: Producer, topic: str, value: bytes) -> None:
        result = await producer.produce(topic, [value])
        assert result.first > max(self._known[topic], default=0), "a number was given twice"
        self._known[topic][result.first] = value

    async def _prune(self, node: LoneKeeper, topic: str) -> None:
        upto = max(self._known[topic], default=0) * self._rng.randint(0, 10) // 10
        if upto > self._pruned[topic]:
            turn = makers.Turn(self._rng.randbytes(16), 1, 1, 0, node.wall_us())
            await node.order(makers.prune(turn, topic, upto))
            self._pruned[topic] = upto

    async def _look(self, node: LoneKeeper) -> None:
        rng, row, view = self._rng, node.row, node.state.view
        if view is None or view.lineage != self._lineage:
            self._known = {topic: {} for topic in TOPICS}
            self._pruned = dict.fromkeys(TOPICS, 0)
        self._is_told |= bool(row.store.holes or row.store.recovered.damages or row.broken)
        for topic in TOPICS:
            found, known = await self._read(node, topic), self._known[topic]
            assert found.items() <= known.items()
            lost = {n for n in known if n > self._pruned[topic]} - found.keys()
            assert self._is_told or not lost, f"{lost} of {topic}"
        if row.broken is not None:
            return
        await self._work(node)
        if rng.random() < 0.5:
            await row.scrubs.round()
            await trio.sleep(3)

    async def _read(self, node: LoneKeeper, topic: str) -> dict[int, bytes]:
        found, after = dict[int, bytes](), self._pruned[topic] if self._rng.random() < 0.5 else 0
        while True:
            try:
                pulled = await node.reader.pull(Pull(topic, after, partition=0))
            except Damaged as damaged:
                self._is_told, after = True, damaged.last
                continue
            entries = entries_of(topic, pulled)
            if not entries:
                return found
            found |= {entry.number: bytes(entry.value) for entry in entries}
            after = entries[-1].number
