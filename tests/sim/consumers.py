"""Consumers of a simulation: pulls of one partition, pulls of all, and follows; and what they saw.

They go on from the number that they have done.
"""

from __future__ import annotations

from math import inf

import trio

from duckrow.cluster.history import FAIL, INFO, OK, Pull
from duckrow.node.asyncfollow import Follow
from duckrow.node.cursors import Cursor
from duckrow.node.entries import Entries, Entry
from duckrow.node.env import Env
from duckrow.node.errors import (
    Conflict,
    Corrupt,
    Damaged,
    DuckrowError,
    NoQuorum,
    NotFound,
    Timeout,
)
from duckrow.node.trioclient import Client

from .plan import TopicPlan
from .service import client
from .workload import Observed

PULL_WAIT = 1.0
ANSWER_SECONDS = 1.0
EXPECTED = Timeout, NoQuorum


class Consumer:
    def __init__(self, env: Env, seen: Observed, _who: str) -> None:
        self._env, self._seen, self._plan = env, seen, seen.plan
        self._ids: dict[str, int] = {}

    async def run(self) -> None:
        rng = self._env.rng
        async with (
            client(
                self._env, timeout=ANSWER_SECONDS, nodes=self._seen.nodes_of(self._env.name)
            ) as row,
            trio.open_nursery() as nursery,
        ):
            for topic in self._plan.topics:
                if rng.random() < 0.3:
                    nursery.start_soon(self._pull_all, row, topic)
                    continue
                for partition in range(topic.partitions):
                    read = self._follow if rng.random() < 0.3 else self._pull
                    nursery.start_soon(read, row, topic, partition)

    # -- ways to read -----------------------------------------------------------------------------

    async def _pull(self, row: Client, topic: TopicPlan, partition: int) -> None:
        """One partition, with numbers."""
        rng = self._env.rng
        done = 0
        while True:
            pull = self._begin(topic, partition, done, rng.choice((1, 5, 100)))
            try:
                found = await self._ask(row, topic, done, partition, pull.limit)
            except Damaged as damage:
                pull.outcome, done = FAIL, self._tell(topic, damage)
            except Conflict as error:
                pull.outcome, done = FAIL, self._begin_anew(topic, error)
            else:
                if found is not None:
                    pull.values = self._values(found)
                    pull.numbers = [entry.number for entry in found]
                    pull.missing, pull.outcome = found.missing, OK
                    done = pull.numbers[-1] if found else done + found.missing
                    if rng.random() < 0.02:
                        done = 0  # reads it all again
            pull.ended = trio.current_time()
            await self._rest(pull.outcome != OK)

    async def _pull_all(self, row: Client, topic: TopicPlan) -> None:
        """All partitions in the order of the row, with a cursor."""
        rng = self._env.rng
        start = Cursor(dict.fromkeys(range(topic.partitions), 0))
        after, position = start, 0
        while True:
            began, found = trio.current_time(), None
            try:
                found = await self._ask(row, topic, after, None, rng.choice((2, 10, 100)))
            except Damaged as damage:
                last = self._tell(topic, damage)
                after = Cursor({**after.done, damage.partition: last}, after.since)
            except Conflict as error:
                self._begin_anew(topic, error)
                after, position = start, 0
            if found is not None:
                assert isinstance(found.after, Cursor), found.after
                self._note(topic, dict(after.done), found, began)
                self._check_cursor(after, found, found.after)
                position = self._check_order(position, found)
                after = found.after
            await self._rest(found is None)

    async def _follow(self, row: Client, topic: TopicPlan, partition: int) -> None:
        """One partition, entry by entry; of what it was not given it only knows that it is gone."""
        done = 0
        follow = row.follow(topic.name, done, partition=partition)
        while True:
            pull = self._begin(topic, partition, done, 1 << 60)
            pull.node = f"{pull.node} for {self._env.name}"  # what it shows was fetched before
            try:
                entry = await self._next(follow)
                if entry.number <= done:
                    self._seen.problem("poll-nonmonotonic", f"{entry} was followed after {done}")
                    return  # or it would never come to an end
                pull.values = self._values([entry])
                pull.numbers = [entry.number]
                pull.missing = entry.number - 1 - done
                pull.outcome, done = OK, entry.number
            except Damaged as damage:
                pull.outcome, done = FAIL, self._tell(topic, damage)
                follow = row.follow(topic.name, done, partition=partition)
            except Conflict as error:
                pull.outcome, done = FAIL, self._begin_anew(topic, error)
                follow = row.follow(topic.name, done, partition=partition)
            except _Impatient:
                pass
            except DuckrowError as error:
                self._check(error, pull.began)
                pull.outcome = FAIL
                await self._rest(True)
            pull.ended = trio.current_time()

    async def _next(self, follow: Follow) -> Entry:
        """Cancelled now and then, and awaited again."""
        seconds = self._env.rng.uniform(0.0, 2.0) if self._env.rng.random() < 0.1 else inf
        with trio.move_on_after(seconds):
            return await anext(follow)
        raise _Impatient

    # -- asking -----------------------------------------------------------------------------------

    async def _ask(
        self, row: Client, topic: TopicPlan, after: object, partition: int | None, limit: int
    ) -> Entries | None:
        """
        Raises:
            Damaged, Conflict: the reader has to go on somewhere else.
        """
        rng = self._env.rng
        found, began = None, trio.current_time()
        with trio.move_on_after(rng.expovariate(5.0) if rng.random() < self._plan.cancel else inf):
            try:
                found = await row.pull(
                    topic.name,
                    after,
                    partition=partition,
                    limit=limit,
                    wait=PULL_WAIT,
                    topic_id=self._ids.get(topic.name, 0),
                )
            except (Damaged, Conflict):
                raise
            except DuckrowError as error:
                self._check(error, began)
        if found is not None and found.topic_id:
            self._ids[topic.name] = found.topic_id
            self._seen.shown(found.topic_id, found.batches)
        return found

    def _check(self, error: DuckrowError, began: float) -> None:
        seen = self._seen
        seen.check_reason(error)
        if isinstance(error, EXPECTED):
            self._seen.refused_in_calm(f"pull by {self._env.name}: {error}", began)
            return
        if isinstance(error, NotFound) and seen.may_forget:
            return
        if not (isinstance(error, Corrupt) and seen.ended):
            seen.problem(
                "wrong-error", f"pull by {self._env.name}: {type(error).__name__}: {error}"
            )

    def _tell(self, topic: TopicPlan, damage: Damaged) -> int:
        """Where to go on."""
        nodes = self._seen.nodes_of(self._env.name)
        self._seen.tell((topic.name, damage.partition), damage.first, damage.last, nodes=nodes)
        return damage.last

    def _begin_anew(self, topic: TopicPlan, error: Conflict) -> int:
        """The topic went with what a loss of power took, and was made anew."""
        if not self._seen.may_forget:
            self._seen.problem("conflict", f"{topic.name}: {error}")
        self._ids.pop(topic.name, None)
        return 0

    # -- writing down -----------------------------------------------------------------------------

    def _begin(self, topic: TopicPlan, partition: int, done: int, limit: int) -> Pull:
        pull = Pull(
            self._env.name,
            (topic.name, partition),
            done,
            trio.current_time(),
            outcome=INFO,
            node=self._seen.node_of(self._env.name),
            limit=limit,
            wait=PULL_WAIT,
        )
        self._seen.history.pulls.append(pull)
        return pull

    def _note(self, topic: TopicPlan, done: dict[int, int], found: Entries, began: float) -> None:
        """What is missing is that of all partitions together: of one of several it may be so much."""
        for partition in range(topic.partitions):
            mine = [entry for entry in found if entry.partition == partition]
            if not mine and found:
                continue
            pull = self._begin(topic, partition, done[partition], len(mine))  # others' count, too
            pull.began, pull.ended, pull.outcome = began, trio.current_time(), OK
            pull.values = self._values(mine)
            pull.numbers = [entry.number for entry in mine]
            pull.missing = found.missing
            if found.missing and topic.partitions > 1:
                assert isinstance(found.after, Cursor)
                behind = mine[0].number - 1 if mine else found.after.done[partition]
                pull.missing = min(found.missing, max(0, behind - done[partition]))

    def _check_cursor(self, before: Cursor, found: Entries, after: Cursor) -> None:
        """Whoever goes on with it gets each entry once: it is behind what was shown, and what is missing."""
        moved = sum(after.done.values()) - sum(before.done.values())
        shown = {entry.partition: entry.number for entry in found}
        back = [p for p, number in before.done.items() if after.done.get(p, -1) < number]
        if moved != len(found) + found.missing or back or {**after.done, **shown} != after.done:
            text = f"{before} to {after}, {len(found)} up to {shown}, {found.missing} missing"
            self._seen.problem("wrong-cursor", f"{self._env.name}: {text}")

    def _check_order(self, position: int, found: Entries) -> int:
        """All partitions are read in the order of the row."""
        for batch in found.batches:
            if batch.position < position:
                text = f"{batch} of position {batch.position}, read after {position}"
                self._seen.problem("row-reorder", text)
            position = batch.position
        return position

    def _values(self, entries: Entries | list[Entry]) -> list[str]:
        """First of all that is noted: what is garbled ends its reader here."""
        return [self._seen.read(entry) for entry in entries]

    async def _rest(self, failed: bool) -> None:
        rng = self._env.rng
        await trio.sleep(rng.uniform(0.05, 0.3) if failed else rng.choice((0.0, 0.0, 0.02, 0.2)))


class _Impatient(Exception):
    """Raised to whoever did not wait for the next entry."""
