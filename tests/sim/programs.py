"""Programs of a few clients in a town: what each was told, and whether that was so.

A client does many things at once, gives some of them up in the middle, and goes to the next node when its own
dies.  Here is what other scenarios leave out: entries with ids that are produced until it is known, jobs that
are done again until they are, appends behind a last number, and that a client finds what it was told.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import trio

from duckrow.node import columns, makers
from duckrow.node.asks import Wish
from duckrow.node.commands import Command
from duckrow.node.errors import DuckrowError, Exists, NotFound
from duckrow.node.trioclient import Client

from .told import BLOCKED, DELETED, Asked, Attempt, Job, Told, name_of
from .townkit import IDS, Town

JOB_TOPICS = (("t", 1), ("p", 3))
EXPECTED = "e"  # only appended to
PATIENCE = 0.3, 1.0, 3.0  # seconds
GIVEN_UP = 0.15  # of the calls


class Program:
    def __init__(self, town: Town, told: Told, rng: random.Random) -> None:
        self._town, self._told, self._rng = town, told, rng
        self._ids = rng.sample(IDS, rng.randint(1, 3))
        self._client = 0
        self._high: dict[tuple[str, int], int] = {}  # the highest number that this client was told
        self._writer = b"w%d" % rng.randrange(3)
        self._batch = 1
        self._flushing = trio.Lock()

    async def run(self, stop: trio.Event) -> None:
        rng = self._rng
        acts = [self._produce] * 6 + [self._produce_many] * 2 + [self._read] * 3
        acts += [self._barrier, self._job, self._with_id, self._append, self._look, self._ask_later]
        acts += [self._unwatched]
        while not stop.is_set():
            self._told.clients += 1
            self._client, self._high = self._told.clients, {}
            try:
                async with (
                    self._town.client(*self._ids, timeout=rng.choice(PATIENCE)) as row,
                    trio.open_nursery() as nursery,
                ):
                    for _ in range(rng.randint(5, 60)):
                        if stop.is_set():
                            break
                        act = partial(self._do, rng.choice(acts), row)
                        if rng.random() < 0.4:
                            nursery.start_soon(act)
                        else:
                            await act()
                        await trio.sleep(rng.choice((0, 0, 0.001, 0.01, 0.1)))
            except* DuckrowError:
                pass  # of the flush at its end; who waited for something was told

    async def _do(self, act: Callable[[Client], Awaitable[None]], row: Client) -> None:
        is_given_up = self._rng.random() < GIVEN_UP
        seconds = self._rng.choice((0.001, 0.01, 0.05, 0.2)) if is_given_up else inf
        with trio.move_on_after(seconds):
            await act(row)

    # -- produces -----------------------------------------------------------------------------

    async def _call(
        self,
        kind: str,
        topic: str,
        values: Sequence[bytes],
        call: Callable[[], Awaitable[Any]],
        *,
        accepted: bool = False,
    ) -> Asked:
        now = trio.current_time()
        asked = Asked(self._client, kind, topic, [*values], now, accepted)
        self._told.calls.append(asked)
        try:
            found = await call()
        except DuckrowError as error:
            asked.error = error
        else:
            if kind == "none":
                asked.told = []
            elif kind == "many":
                asked.told = [(partition, number) for _, partition, number in found]
            else:
                asked.told, asked.receipt = [(found.partition, found.number)], str(found)
            for partition, number in asked.told:
                self._high[topic, partition] = max(
                    self._high.get((topic, partition), 0), number or 0
                )
        finally:
            asked.ended = trio.current_time()
        return asked

    async def _produce(self, row: Client) -> None:
        rng, value = self._rng, self._told.fresh()
        topic, wait = rng.choice("tddpb"), rng.choice(("ordered", "ordered", "accepted"))
        key = rng.choice((None, b"a", b"b")) if topic == "p" else None
        timeout = rng.choice((None, 0.05, 0.5))
        call = partial(row.produce, topic, value, key=key, wait=wait, timeout=timeout)
        await self._call("one", topic, [value], call, accepted=wait == "accepted")

    async def _produce_many(self, row: Client) -> None:
        rng = self._rng
        topic, wait = rng.choice("tddp"), rng.choice(("ordered", "ordered", "accepted"))
        values = [self._told.fresh() for _ in range(rng.randint(1, 6))]
        large = bytes(rng.choice((0, 0, 0, 300_000)))
        keys = [rng.choice((b"a", b"b", None)) for _ in values] if topic == "p" else None
        timeout = rng.choice((None, 0.05, 0.5))
        whole = [value + large for value in values]
        call = partial(row.produce_many, topic, whole, keys=keys, wait=wait, timeout=timeout)
        await self._call("many", topic, values, call, accepted=wait == "accepted")

    async def _unwatched(self, row: Client) -> None:
        """Whoever waits for a flush by itself is told of these by it, and perhaps of earlier ones."""
        values = [self._told.fresh() for _ in range(self._rng.randint(1, 6))]

        async def call() -> None:
            for value in values:
                await row.produce(topic, value, wait="none")
            await row.flush()

        topic = self._rng.choice("tp")
        async with self._flushing:
            await self._call("none", topic, values, call)

    async def _with_id(self, row: Client) -> None:
        """Again and again, until it is known."""
        value = self._told.fresh()
        for _ in range(6):
            timeout = self._rng.choice((None, 0.05, 0.3))
            call = partial(row.produce, "t", value, id=value, timeout=timeout)
            if (await self._call("id", "t", [value], call)).told is not None:
                return

    async def _append(self, row: Client) -> None:
        value = self._told.fresh()
        try:
            last = (await row.topic(EXPECTED)).partitions[0].last
        except DuckrowError:
            return
        call = partial(row.produce, EXPECTED, value, expect_last=last)
        asked = await self._call("append", EXPECTED, [value], call)
        if asked.told not in (None, [(0, last + 1)]):
            self._told.problems.append(f"behind {last} came {asked}")

    async def _job(self, row: Client) -> None:
        """Two clients may be at one of them, as after a machine was thought to be dead."""
        rng, job = self._rng, (self._writer, self._batch)
        attempts = self._told.jobs.setdefault(job, [])
        for _ in range(4):
            attempt, names = Attempt(), []
            attempts.append(attempt)
            try:
                for task in range(rng.randint(1, 3)):
                    topic, partitions = rng.choice(JOB_TOPICS)
                    values = [self._told.fresh() for _ in range(rng.randint(1, 3))]
                    attempt.values += values
                    wish = _stage(topic, rng.randrange(partitions), partitions, values, job, task)
                    staged = await row._do(wish)
                    names.append((staged.position, staged.detail))
                await row._do(_commit(job, names))
            except Exists:
                break  # another one has done it, or a later one
            except DuckrowError:
                continue
            attempt.is_done = True
            break
        else:
            return
        self._batch = max(self._batch, job[1] + 1)

    # -- reads --------------------------------------------------------------------------------

    async def _read(self, row: Client) -> None:
        """At any node it finds what it was told before."""
        rng, high = self._rng, {**self._high}
        topic, partition = rng.choice((("t", 0), ("e", 0), ("p", 0), ("p", 1), ("p", 2)))
        top = high.get((topic, partition), 0)
        after = rng.choice((0, max(0, top - 1), top))
        try:
            found = await row.pull(
                topic, after, partition=partition, wait=rng.choice((0, 0, 0.05, 1.0))
            )
        except NotFound:
            if top:
                self._told.problems.append(f"{topic} is not there, and had {top} entries")
            return
        except DuckrowError:
            return
        numbers = [entry.number for entry in found]
        if numbers != [*range(after + 1, after + 1 + len(numbers))]:
            self._told.problems.append(f"{topic}/{partition} after {after}: {numbers}")
        if after < top and not numbers:
            self._told.problems.append(f"{topic}/{partition} had {top}, and nothing after {after}")
        for entry in found:
            self._told.reads.append((topic, partition, entry.number, name_of(entry.value)))

    async def _look(self, row: Client) -> None:
        high = self._high.get(("t", 0), 0)
        try:
            last = (await row.topic("t")).partitions[0].last
        except NotFound:
            last = 0
        except DuckrowError:
            return
        if last < high:
            self._told.problems.append(f"the topic has {last} entries, and had {high}")

    async def _barrier(self, row: Client) -> None:
        """Behind it is what anybody was told before; at this node, so only who knows one looks."""
        high = {
            (asked.topic, partition): number
            for asked in self._told.calls
            if asked.topic not in (BLOCKED, DELETED)
            for partition, number in asked.told or ()
            if number
        }
        try:
            await row.barrier()
            for (topic, partition), number in high.items():
                found = await row.pull(topic, number - 1, partition=partition, limit=1)
                if not found and len(self._ids) == 1:
                    self._told.problems.append(f"behind a barrier: no {number} in {topic}")
        except DuckrowError:
            pass

    async def _ask_later(self, row: Client) -> None:
        """Anybody may ask for what has a receipt."""
        had = [asked for asked in self._told.calls if asked.receipt][-10:]
        if not had:
            return
        asked = self._rng.choice(had)
        try:
            receipt = await row.receipt(asked.receipt)
            if receipt.number is None and self._rng.random() < 0.5:
                receipt = await receipt.ordered()
        except DuckrowError as error:
            asked.later_errors.append(error)
        else:
            if receipt.number:
                asked.later.append((receipt.partition, receipt.number))


def _stage(
    topic: str, partition: int, partitions: int, values: list[bytes], job: Job, task: int
) -> Wish[Any]:
    def make(turn: makers.Turn, count: int) -> Command:
        return makers.stage(
            turn,
            topic,
            columns.encode(values),
            len(values),
            writer=job[0],
            batch=job[1],
            task=task,
            partition=partition,
            partitions=count,
        )

    return Wish(lambda core: core.stage(make, topic, partition, partitions))


def _commit(job: Job, stages: Sequence[tuple[int, int]]) -> Wish[Any]:
    return Wish(lambda core: core.order(lambda turn: makers.commit(turn, *job, stages)))
