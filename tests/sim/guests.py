"""A guest of a simulated cluster: goes from node to node, one client for each visit, and holds them to what
they say to whoever does not stay.

    accepted    a node says that an entry has a place in the order, and the guest leaves: nobody sends it again
    later       what became of such an entry, asked at any node by the name on its receipt
    own         what was produced at a node is read at another one, which has to come so far first
    barrier     what anybody was told to be ordered before is read behind it, at any node
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from duckrow.cluster.history import FAIL, OK, Key, Produce, Pull
from duckrow.node import columns
from duckrow.node.env import Env
from duckrow.node.errors import (
    Conflict,
    Damaged,
    DuckrowError,
    Full,
    NoQuorum,
    Refused,
    Timeout,
)
from duckrow.node.trioclient import Client

from .plan import TopicPlan
from .producers import is_judged
from .service import client
from .workload import Observed

Visit = Callable[[str, TopicPlan, Key], Awaitable[None]]
PATIENCE = 1.0  # seconds
READ_ENTRIES = 100


class Guest:
    def __init__(self, env: Env, seen: Observed, who: str) -> None:
        self._env, self._seen, self._plan, self._who = env, seen, seen.plan, who
        self._count = 0
        self._receipts: list[tuple[Produce, str]] = []  # of what is accepted, and not numbered yet

    async def run(self) -> None:
        """Whoever waits at a node that is cut off keeps nobody from going to the next one."""
        rng, nodes = self._env.rng, self._seen.nodes_of(self._env.name)
        kinds = self._accepted, self._accepted, self._later, self._own, self._barrier
        async with trio.open_nursery() as nursery:
            while not self._seen.stop.is_set():
                visit, topic = rng.choice(kinds), rng.choice(self._plan.topics)
                key = topic.name, rng.randrange(topic.partitions)
                # One that is behind, or cut off, is among all of them, when there is one.
                for node in nodes if visit == self._barrier else [rng.choice(nodes)]:
                    nursery.start_soon(self._make, visit, node, topic, key)
                await trio.sleep(rng.expovariate(1 / max(5 * self._plan.gap, 0.3)))

    async def _make(self, visit: Visit, node: str, topic: TopicPlan, key: Key) -> None:
        try:
            await visit(node, topic, key)
        except DuckrowError as error:
            self._check(error)

    def _visit(self, node: str) -> Client:
        return client(self._env, timeout=PATIENCE, nodes=(node,))

    # -- what it does there -----------------------------------------------------------------------

    async def _accepted(self, node: str, topic: TopicPlan, key: Key) -> None:
        async with self._visit(node) as row:
            await self._produce(row, node, topic, key, wait="accepted")

    async def _later(self, node: str, _topic: TopicPlan, _key: Key) -> None:
        if not self._receipts:
            return
        made, name = self._env.rng.choice(self._receipts)
        async with self._visit(node) as row:
            try:
                number = (await row.receipt(name)).number
            except Conflict as conflict:
                if made.accepted_at or not is_judged(conflict):
                    raise
                made.outcome, number = FAIL, 0
        if number is not None:
            self._receipts = [each for each in self._receipts if each[0] is not made]
        if number:
            made.outcome, made.first, made.ended = OK, number, trio.current_time()

    async def _own(self, node: str, topic: TopicPlan, key: Key) -> None:
        others = [each for each in self._seen.nodes_of(self._env.name) if each != node]
        if not others:
            return
        async with self._visit(node) as here:
            made = await self._produce(here, node, topic, key, wait="ordered")
        other = self._env.rng.choice(others)
        if made.outcome == OK:
            async with self._visit(other) as there:
                there._core._seen = here._core._seen  # as a client of both nodes knows it
                await self._read(there, other, key, made.first)

    async def _barrier(self, node: str, _topic: TopicPlan, key: Key) -> None:
        async with self._visit(node) as row:
            await (
                row.status()
            )  # or what is asked next would be on its way until a connection is there
            ordered = [
                made.first + len(made.values) - 1
                for made in self._seen.history.produces
                if made.key == key and made.outcome == OK
            ]
            await row.barrier()
            await self._read(row, node, key, max(ordered, default=0))

    # -- producing, reading -----------------------------------------------------------------------

    async def _produce(
        self, row: Client, node: str, topic: TopicPlan, key: Key, *, wait: str
    ) -> Produce:
        self._count += 1
        value = f"{self._who}.{self._count}"
        text = value.ljust(self._plan.value_bytes).encode()
        made = Produce(
            self._env.name,
            key,
            [value],
            trio.current_time(),
            size=len(columns.encode([text])),
            own_size=len(text),
            may_wait=topic.may_refuse,
        )
        self._seen.history.produces.append(made)
        self._seen.send([text])
        try:
            receipt = await row.produce(key[0], text, partition=key[1], wait=wait)
            if receipt.number is None:
                # The first batch of a new client is for one partition.  A node that does not know the
                # topic, as with a new disk, accepts it, and where it is ordered it is refused.
                if topic.partitions == 1 or receipt.name.seq > 1:
                    made.accepted_at = node
                self._receipts.append((made, str(receipt.name)))
                self._seen.receipts.append(self._receipts[-1])
            else:
                made.outcome, made.first = OK, receipt.number
        except (Full, NoQuorum, Refused):
            made.outcome = FAIL
        finally:
            made.ended = trio.current_time()
        return made

    async def _read(self, row: Client, node: str, key: Key, number: int) -> None:
        """Up to this one, at least, unless it was pruned.  The node may be dead for good: others wait."""
        done = max(0, number - 1)
        pull = Pull(
            self._env.name,
            key,
            done,
            trio.current_time(),
            outcome=FAIL,
            node=node,
            at_least=number,
            limit=READ_ENTRIES,
        )
        try:
            found = await row.pull(key[0], done, partition=key[1], limit=READ_ENTRIES)
        except Damaged as damage:
            self._seen.tell((key[0], damage.partition), damage.first, damage.last, nodes=[node])
            return
        finally:
            pull.ended = trio.current_time()
            self._seen.history.pulls.append(pull)
        pull.numbers = [entry.number for entry in found]
        pull.values = [self._seen.read(entry) for entry in found]
        pull.missing, pull.outcome = found.missing, OK

    def _check(self, error: DuckrowError) -> None:
        """Full: a disk takes no barrier then; or of what was accepted, that the row has refused it."""
        self._seen.check_reason(error)
        if not isinstance(error, Timeout | NoQuorum | Full):
            text = f"visit by {self._env.name}: {type(error).__name__}: {error}"
            self._seen.problem("wrong-error", text)
