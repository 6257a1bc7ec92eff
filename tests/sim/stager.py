"""A job of a simulation: it stages batches in several partitions, and numbers all of them at once.

What it staged must be seen by nobody before its commit, and by everybody or nobody after it.  Some
batches it never commits, and some commits it sends twice.
"""

from __future__ import annotations

import trio

from duckrow.cluster.history import FAIL, INFO, OK, Key, Produce
from duckrow.node import columns, makers
from duckrow.node.clientcore import ClientCore
from duckrow.node.effects import Code, Result
from duckrow.node.env import Env
from duckrow.node.errors import (
    Conflict,
    Corrupt,
    DuckrowError,
    Full,
    NoQuorum,
    Refused,
    Timeout,
)
from duckrow.node.outboxes import Order
from duckrow.node.parts import Maker, Part

from .service import client
from .workload import Observed

Name = tuple[int, int]
PATIENCE = 60.0  # seconds


class Stager:
    def __init__(self, env: Env, seen: Observed, who: str) -> None:
        self._env, self._seen, self._plan, self._who = env, seen, seen.plan, who
        self._batch = self._count = 0

    async def run(self) -> None:
        async with client(
            self._env, timeout=PATIENCE, nodes=self._seen.nodes_of(self._env.name)
        ) as self._row:
            while not self._seen.stop.is_set():
                await self._job()
                gap = max(5 * self._plan.gap, 0.05 if self._seen.calm_since is None else 0.5)
                await trio.sleep(self._env.rng.expovariate(1 / gap))

    async def _job(self) -> None:
        self._batch += 1
        made: list[Produce] = []
        try:
            await self._stage_and_commit(made)
        finally:  # if it is killed, too
            for batch in made:
                batch.ended = min(batch.ended, trio.current_time())

    async def _stage_and_commit(self, made: list[Produce]) -> None:
        rng, names = self._env.rng, []
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
            text = f"{count} entries were committed of {[batch.values for batch in made]}"
            self._seen.problem("wrong-commit", text)
        if rng.random() < 0.3:
            again, same = await self._commit(names, again=True)
            if again == OK and same != count and not self._seen.may_forget:
                text = f"batch {self._batch}, committed again, has another number of entries"
                self._seen.problem("wrong-commit", text)

    def _make(self, key: Key) -> Produce:
        values = []
        for _ in range(self._env.rng.randint(1, self._plan.batch)):
            self._count += 1
            values.append(f"{self._who}.{self._count}")
        together = f"{self._who}/{self._batch}"
        batch = Produce(self._env.name, key, values, trio.current_time(), together=together)
        self._seen.history.produces.append(batch)
        return batch

    def _end(self, made: list[Produce], outcome: str) -> None:
        for batch in made:
            batch.outcome, batch.ended = outcome, trio.current_time()

    async def _stage(self, batch: Produce, partitions: int) -> Name | None:
        """Its name; None: it was refused, and nothing is kept of it."""
        values = [str(value).ljust(self._plan.value_bytes).encode() for value in batch.values]
        self._seen.send(values)
        body = columns.encode(values)
        batch.size = len(body)
        topic, partition = batch.key
        try:
            result = await self._ask(
                batch.key,
                lambda turn: makers.stage(
                    turn,
                    topic,
                    body,
                    len(values),
                    writer=self._who.encode(),
                    batch=self._batch,
                    task=0,
                    partition=partition,
                    partitions=partitions,
                ),
            )
        except DuckrowError as error:
            if not isinstance(error, Full | Refused | NoQuorum):
                self._check(f"stage in {batch.key}", error)
            return None
        assert result.code == Code.STAGED, result
        return result.position, result.detail

    async def _commit(self, names: list[Name], *, again: bool = False) -> tuple[str, int]:
        """Tries a few times if there is no room.  `again`: it has been done."""
        writer, batch = self._who.encode(), self._batch
        for _ in range(3):
            try:
                result = await self._ask(
                    ("", 0), lambda turn: makers.commit(turn, writer, batch, names)
                )
            except Full:
                await trio.sleep(self._env.rng.uniform(0.05, 0.3))
            except NoQuorum:
                break
            except Refused as error:  # more than the topic may ever hold, say
                if again:
                    self._check(f"commit {batch}, which was done", error)
                break
            except DuckrowError as error:
                self._check(f"commit {batch}", error)
                return (INFO if isinstance(error, Timeout | Corrupt) else FAIL), 0
            else:
                return OK, result.count
        return FAIL, 0

    async def _ask(self, key: Key, make: Maker) -> Result:
        """
        Raises:
            DuckrowError: what went wrong.
        """

        def begin(core: ClientCore) -> Order:
            boxes = core._boxes
            boxes._order += 1
            call = _Order(boxes)
            boxes.into(call, Part(call, make=make, order=boxes._order), *key, 1)
            return call

        result: Result = await self._row._result(self._row._begin(begin), PATIENCE)
        return result

    def _check(self, what: str, error: DuckrowError) -> None:
        """Nobody else has its writer, and stages stay for an hour."""
        seen = self._seen
        if seen.full and isinstance(error, Timeout):
            return  # what became of it is asked with a skip, which a full disk does not take
        if not (seen.may_forget or seen.ended):
            seen.problem("wrong-error", f"{what}: {type(error).__name__}: {error}")


class _Order(Order):
    """A command of a topic's lane; the product's clients have none yet."""

    def rerouted(self, part: Part) -> None:
        self.finish(error=Conflict("the topic was made anew, with another number of partitions"))
