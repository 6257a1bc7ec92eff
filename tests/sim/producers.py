"""Producers of a simulation: the product's own client, used in every way, and what it was told.

A call ends with a receipt, with an error that says whether the entries are there, or because whoever
made it lost patience or was killed.  Then nobody knows, and both has to be right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf

import trio

from duckrow.cluster.history import FAIL, INFO, OK, Key, Produce
from duckrow.node import columns
from duckrow.node.clientcalls import Receipts
from duckrow.node.env import Env
from duckrow.node.errors import Conflict, Corrupt, DuckrowError, Full, NoQuorum, NotFound, Refused
from duckrow.node.errors import Timeout as InDoubt
from duckrow.node.trioclient import Client

from .plan import TopicPlan
from .service import client
from .workload import Observed, key_of

PATIENCE = 2.0, 5.0, 60.0  # seconds
NAMED = "a"  # the topic whose entries have ids
NOT_WRITTEN = Full, NoQuorum, Refused, NotFound, Conflict
_MOVED = "choose the partition anew"
_LAST = re.compile(r"the last number is ([\d,]+)")


class Producer:
    def __init__(self, env: Env, seen: Observed, who: str) -> None:
        self._env, self._seen, self._plan, self._who = env, seen, seen.plan, who
        self._count = 0
        self._seqs: dict[Key, int] = {}
        self._lasts: dict[Key, int] = {}  # numbers that it was told

    async def run(self) -> None:
        async with (
            client(self._env, timeout=5.0, nodes=self._seen.nodes_of(self._env.name)) as row,
            trio.open_nursery() as nursery,
        ):
            if self._plan.again:
                nursery.start_soon(self._send_again, row)
            busy: dict[Key, trio.Semaphore] = {}
            while not self._seen.stop.is_set():
                topic = self._env.rng.choice(self._plan.topics)
                key = topic.name, self._env.rng.randrange(topic.partitions)
                window = busy.setdefault(key, trio.Semaphore(self._plan.window))
                with trio.move_on_after(2.0):
                    await window.acquire()
                    nursery.start_soon(self._produce, row, topic, key, window)
                gap = self._plan.gap if self._seen.calm_since is None else max(self._plan.gap, 0.1)
                await trio.sleep(self._env.rng.expovariate(1 / gap))

    async def _produce(
        self, row: Client, topic: TopicPlan, key: Key, window: trio.Semaphore
    ) -> None:
        plan, rng = self._plan, self._env.rng
        values = self._values(rng.randint(1, plan.batch))
        texts = [value.ljust(plan.value_bytes).encode() for value in values]
        keys = [key_of(text) for text in texts] if rng.random() < plan.keyed else None
        partition: int | None = key[1]
        if keys is not None and None not in keys and rng.random() < 0.5:
            partition = None  # the client finds where they belong
        self._seen.send(texts, keys)
        wish = _Wish(
            timeout=rng.choice(PATIENCE),
            cancel=rng.expovariate(50.0) if rng.random() < plan.cancel else inf,
            accepted=len(values) == 1 and rng.random() < plan.accepted,
            expected=None,
        )
        if len(values) == 1 and partition is not None and rng.random() < plan.expect:
            # What it knows is often old; and now and then it expects what is still to come.
            wish.expected = self._lasts.get(key, 0) + rng.choice((0, 0, 0, 1))
        made = self._write_down(topic, key, values, texts, None if partition is not None else keys)
        try:
            with trio.move_on_after(wish.cancel):
                await self._call(row, topic, texts, keys, partition, made, wish)
        except DuckrowError as error:
            self._failed(made, error, wish)
        finally:
            for each in made:
                each.ended = min(each.ended, trio.current_time())
            window.release()

    async def _send_again(self, row: Client) -> None:
        """What an earlier life of this process heard nothing of, with the id that it had: it is there once."""
        made = next(filter(self._is_open, reversed(self._seen.history.produces)), None)
        if made is None:
            return
        name = str(made.values[0])
        text, key = self._seen.sent[name]
        made.lane = ""  # it may come behind what that life produced later
        try:
            receipt = await row.produce(
                NAMED, text, key=key, partition=made.key[1], id=name, timeout=max(PATIENCE)
            )
        except (*NOT_WRITTEN, InDoubt, Corrupt):
            return  # this copy; of the first one nothing is known
        self._ordered(made, receipt.partition, receipt.number or 0)

    def _is_open(self, made: Produce) -> bool:
        is_mine = made.process == self._env.name and made.lane != self._who
        is_named = made.key[0] == NAMED and len(made.values) == 1 and not made.in_part
        return is_mine and is_named and made.outcome == INFO and made.expected is None

    def _values(self, count: int) -> list[str]:
        values = []
        for _ in range(count):
            self._count += 1
            values.append(f"{self._who}.{self._count}")
        return values

    def _write_down(
        self,
        topic: TopicPlan,
        key: Key,
        values: Sequence[str],
        texts: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
    ) -> list[Produce]:
        """What the call is, by partition."""
        rows: dict[int, list[int]] = {key[1]: list(range(len(values)))}
        if keys is not None:
            rows = {}
            hashes = memoryview(columns.key_hashes(keys)).cast("I")
            for index, hash_ in enumerate(hashes):
                rows.setdefault(hash_ % topic.partitions, []).append(index)
        made = []
        for partition, chosen in rows.items():
            at = topic.name, partition
            self._seqs[at] = self._seqs.get(at, 0) + 1
            body = columns.encode([texts[i] for i in chosen], [key_of(texts[i]) for i in chosen])
            made.append(
                Produce(
                    self._env.name,
                    at,
                    [values[i] for i in chosen],
                    trio.current_time(),
                    lane=self._who,
                    seq=self._seqs[at],
                    size=len(body),
                    own_size=sum(len(texts[i]) for i in chosen),
                    may_wait=topic.may_wait,
                    in_part=len(rows) > 1,
                )
            )
        self._seen.history.produces += made
        return made

    async def _call(
        self,
        row: Client,
        topic: TopicPlan,
        texts: list[bytes],
        keys: list[bytes | None] | None,
        partition: int | None,
        made: list[Produce],
        wish: _Wish,
    ) -> None:
        if len(texts) > 1:
            receipts = await row.produce_many(
                topic.name, texts, keys=keys, partition=partition, timeout=wish.timeout
            )
            self._numbered(made, receipts)
            return
        (one,) = made
        one.expected = wish.expected
        receipt = await row.produce(
            topic.name,
            texts[0],
            key=None if keys is None else keys[0],
            partition=partition,
            wait="accepted" if wish.accepted else "ordered",
            id=str(one.values[0]) if topic.name == NAMED else None,
            expect_last=wish.expected,
            timeout=wish.timeout,
        )
        if receipt.number is None:
            wish.is_receipt = True
            receipt = await receipt.ordered()
        self._ordered(one, receipt.partition, receipt.number or 0)

    def _numbered(self, made: list[Produce], receipts: Receipts) -> None:
        runs = {run.partition: run for run in receipts.runs}
        for each in made:
            run = runs.get(each.key[1])
            if run is None or run.count != len(each.values) or len(runs) != len(receipts.runs):
                self._seen.problem("wrong-receipt", f"{each.values} got {receipts.runs}")
            else:
                self._ordered(each, run.partition, run.number)

    def _ordered(self, made: Produce, partition: int, number: int) -> None:
        if not number or partition != made.key[1]:
            self._seen.problem("wrong-receipt", f"{made.values} is {number} of {partition}")
        made.outcome, made.first, made.ended = OK, number, trio.current_time()
        self._lasts[made.key] = number + len(made.values) - 1

    def _failed(self, made: list[Produce], error: DuckrowError, wish: _Wish) -> None:
        """It was told more or less."""
        seen, now = self._seen, trio.current_time()
        what = f"{made[0].key} {made[0].values[0]}: {type(error).__name__}: {error}"
        seen.check_reason(error)
        if isinstance(error, NoQuorum) and now < made[0].began + wish.timeout - 1e-6:
            seen.refused_in_calm(what, made[0].began)
        if isinstance(error, NOT_WRITTEN):
            # Of a call for several partitions a part may have been written, as the text says.
            if len(made) == 1 and (not wish.is_receipt or is_judged(error)):
                made[0].outcome, made[0].ended = FAIL, now
            last = _LAST.search(str(error))
            if wish.is_receipt and is_judged(error):
                pass  # a place in the order was promised, and not success
            elif wish.expected is not None and last:
                made[0].conflict = self._lasts[made[0].key] = int(last[1].replace(",", ""))
            elif isinstance(error, Conflict | NotFound) and not seen.may_forget:
                seen.problem("wrong-error", what)
        elif isinstance(error, InDoubt):
            # Doubts are for what nobody answers; or the numbers of a receipt are kept no more.
            if now < made[0].began + wish.timeout - 1e-6:
                if not (wish.is_receipt or seen.may_forget):
                    seen.problem("in-doubt", what)
            elif wish.timeout == max(PATIENCE) and not (
                made[0].may_wait or seen.ended or seen.full
            ):
                seen.problem("stuck-call", what)  # the faults were over long ago
        elif not (isinstance(error, Corrupt) and seen.ended):
            seen.problem("wrong-error", what)


def is_judged(error: DuckrowError) -> bool:
    """The row has refused it: for want of room, or since the topic has more partitions now."""
    moved = isinstance(error, Conflict) and _MOVED in str(error)
    return isinstance(error, Full) or moved


class _Wish:
    def __init__(
        self, *, timeout: float, cancel: float, accepted: bool, expected: int | None
    ) -> None:
        self.timeout, self.cancel = timeout, cancel
        self.accepted, self.expected = accepted, expected
        self.is_receipt = False  # it was accepted, and is asked for what became of it
