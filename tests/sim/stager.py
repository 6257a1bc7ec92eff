"""A job of a simulation: it stages batches in several partitions, and numbers all of them at once.

What it staged must be seen by nobody before its commit, and by everybody or nobody after it.  Some
batches it never commits, and some commits it sends twice.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from checker import Produce
from checker.history import FAIL, INFO, OK, Key
from duckrow.node import columns, makers
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.effects import Code, Reason, Result, explain
from duckrow.node.env import Env
from duckrow.node.errors import Disconnected

from .service import Client
from .workload import ANSWER_SECONDS, NODE, Lane, Observed

Name = tuple[int, int]
LOST = (Code.GAP, Code.UNKNOWN_PRODUCER)
GONE = (Reason.STAGE_GONE, Reason.STAGE_OTHERS, Reason.BATCH_PASSED)


class Stager:
    def __init__(self, env: Env, seen: Observed) -> None:
        self._env, self._seen, self._plan = env, seen, seen.plan
        self._client = Client(env, NODE)
        self._pid = env.rng.randbytes(PID_BYTES)
        self._lanes: dict[Key, Lane] = {}
        self._batch = self._count = 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._client.run)
            while not self._seen.stop.is_set():
                await self._job()
                gap = max(5 * self._plan.gap, 0.05 if self._seen.calm_since is None else 0.5)
                await trio.sleep(self._env.rng.expovariate(1 / gap))

    async def _job(self) -> None:
        rng = self._env.rng
        self._batch += 1
        made, names = [], []
        for _ in range(rng.randint(1, 4)):
            topic = rng.choice(self._plan.topics)
            batch = self._make((topic.name, rng.randrange(topic.partitions)))
            made.append(batch)
            name = await self._stage(batch, topic.partitions)
            if name is None:
                break
            names.append(name)
        if len(names) < len(made) or rng.random() < 0.2:
            self._end(made, FAIL)  # nobody will ever commit these
            return
        # They may come to light from now on.
        for batch in made:
            batch.stamped, batch.began = batch.began, trio.current_time()
        outcome, count = await self._commit(names)
        self._end(made, outcome)
        if outcome != OK:
            return
        if count != sum(len(batch.values) for batch in made):
            self._problem(f"{count} entries were committed of {[batch.values for batch in made]}")
        if rng.random() < 0.3 and (await self._commit(names))[1] != count and not self._seen.lossy:
            self._problem(f"batch {self._batch}, committed again, has another number of entries")

    def _make(self, key: Key) -> Produce:
        values = []
        for _ in range(self._env.rng.randint(1, self._plan.batch)):
            self._count += 1
            values.append(f"{self._env.name}.{self._count}")
        together = f"{self._env.name}/{self._batch}"
        batch = Produce(self._env.name, key, values, trio.current_time(), together=together)
        self._seen.history.produces.append(batch)
        return batch

    def _end(self, made: list[Produce], outcome: str) -> None:
        for batch in made:
            batch.outcome, batch.ended = outcome, trio.current_time()

    async def _stage(self, batch: Produce, partitions: int) -> Name | None:
        """Its name; None: it was refused, and nothing is kept of it."""
        values = [str(value).ljust(self._plan.value_bytes).encode() for value in batch.values]
        body = columns.encode(values)
        batch.size = len(body)
        topic, partition = batch.key
        result = await self._ask(
            batch.key,
            lambda turn: makers.stage(
                turn,
                topic,
                body,
                len(values),
                writer=self._env.name.encode(),
                batch=self._batch,
                task=0,
                partition=partition,
                partitions=partitions,
            ),
        )
        if result is None:
            return None
        if result.code != Code.STAGED:
            if result.code not in (Code.FULL, Code.REFUSED):
                self._problem(f"stage: {explain(result)}")
            return None
        return result.position, result.detail

    async def _commit(self, names: list[Name]) -> tuple[str, int]:
        """Tries a few times if there is no room."""
        writer, batch = self._env.name.encode(), self._batch
        for _ in range(3):
            result = await self._ask(
                ("", 0), lambda turn: makers.commit(turn, writer, batch, names)
            )
            if result is None:
                return INFO, 0
            if result.code == Code.ORDERED:
                return OK, result.count
            if result.code != Code.FULL:
                if result.reason in GONE and not self._seen.lossy:
                    self._problem(f"commit: {explain(result)}")
                break
            await trio.sleep(self._env.rng.uniform(0.05, 0.3))
        return FAIL, 0

    async def _ask(self, key: Key, make: Callable[[makers.Turn], Command]) -> Result | None:
        """Until there is a final result; None: what it had done before is lost with the power."""
        lane = self._lanes.get(key) or Lane(self._pid, 1, *key)
        self._lanes[key] = lane
        seq = lane.take()
        command = make(lane.turn(seq, self._seen.wall_us()))
        while True:
            result: Result | str | None = None
            with trio.move_on_after(ANSWER_SECONDS):
                try:
                    result = await self._client.order(command)
                except Disconnected:
                    pass
            if isinstance(result, Result):
                break
            await trio.sleep(self._env.rng.uniform(0.01, 0.3))
        lane.open.pop(seq)
        if result.code in LOST:
            if not self._seen.lossy:
                self._problem(f"the lane of {key} is lost: {explain(result)}")
            self._pid = self._env.rng.randbytes(PID_BYTES)
            self._lanes.clear()
            return None
        return result

    def _problem(self, text: str) -> None:
        self._seen.problems.append(f"{self._env.name}: {text}")
