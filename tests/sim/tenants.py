"""Who uses a topic that is deleted, made anew and grown meanwhile (changing.py): producers with and without
keys, pulls that wait, follows, jobs that stage; and what each of them has to be told.

    a pull that knows its topic    is told of no other one, and hears when that is gone
    behind a barrier               no older topic is shown than anybody had seen before
    a produce                      goes to the partition of its key, however many there are; or it was told why not
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import Self

import attrs
import trio

from duckrow.cluster.history import FAIL, INFO, OK, Produce, Pull
from duckrow.node import columns
from duckrow.node.clientcalls import Receipts
from duckrow.node.entries import Entries
from duckrow.node.env import Env
from duckrow.node.errors import Conflict, Damaged, DuckrowError, Full, NoQuorum, NotFound, Refused
from duckrow.node.errors import Timeout as InDoubt
from duckrow.node.trioclient import Client

from .consumers import ANSWER_SECONDS, PULL_WAIT
from .lives import ANY, PARTITIONS_MAX, Lives
from .plan import TopicPlan
from .producers import PATIENCE
from .service import client
from .stager import Name, Stager
from .workload import Observed, key_of

_NOT_WRITTEN = Refused, Full, NoQuorum, NotFound  # there is no such partition any more
_DELETED = re.compile(r"of id (\d+) was deleted")


class Tenant:
    def __init__(
        self, env: Env, seen: Observed, who: str, lives: Lives, *, waits: bool = False
    ) -> None:
        self._env, self._seen, self._plan, self._who = env, seen, seen.plan, who
        self._lives, self._topic, self._waits = lives, lives.name, waits
        self._count = 0

    async def run(self) -> None:
        rng, nodes = self._env.rng, self._seen.nodes_of(self._env.name)
        async with (
            client(self._env, timeout=5.0, nodes=nodes) as row,
            client(self._env, timeout=ANSWER_SECONDS, nodes=nodes) as reader,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(JobThere(self._env, self._seen, self._who, self._lives).run)
            for partition in range(PARTITIONS_MAX):
                read = self._follow if rng.random() < 0.3 else self._pull
                nursery.start_soon(read, reader, partition)
            window = trio.Semaphore(3)
            while not self._seen.stop.is_set():
                with trio.move_on_after(2.0):
                    await window.acquire()
                    what = rng.choice((self._at, self._at, self._keyed, self._accepted, self._look))
                    nursery.start_soon(what, row, window)
                await trio.sleep(rng.expovariate(1 / max(self._plan.gap, 0.1)))

    # -- produces ---------------------------------------------------------------------------------

    async def _at(self, row: Client, window: trio.Semaphore) -> None:
        """At a partition that it knows, and which may be gone."""
        rng = self._env.rng
        partition = rng.randrange(self._lives.partitions)
        made = self._write_down(partition, rng.choice((1, 1, 3)), f"{self._who}/{partition}")
        with _Told(self, [made], window, rng.choice(PATIENCE)) as told:
            receipts: Receipts = await row.produce_many(
                self._topic, self._texts(made), partition=partition, timeout=told.patience
            )
            (run,) = receipts.runs
            self._numbered(made, run.partition, run.number, run.count)

    async def _keyed(self, row: Client, window: trio.Semaphore) -> None:
        """Of a batch of several each goes where it belongs, one after the other."""
        made = []
        for _ in range(self._env.rng.choice((1, 1, 3))):
            self._count += (self._count + 1) % 10 == 0  # that would be without a key
            made.append(self._write_down(ANY, 1, ""))
            made[-1].lane = f"{self._who} {str(made[-1].values[0])[-1]}"
            made[-1].in_part = True
        texts = [text for each in made for text in self._texts(each)]
        with _Told(self, made, window, self._env.rng.choice(PATIENCE)) as told:
            keys = [key_of(text) for text in texts]
            self._seen.send(texts, keys)
            receipts: Receipts = await row.produce_many(
                self._topic, texts, keys=keys, timeout=told.patience
            )
            if receipts.count != len(made):
                self._seen.problem("wrong-receipt", f"{made} got {receipts.runs}")
            for each in made:
                each.outcome = OK
            if len(made) == 1:
                made[0].first = receipts.first

    async def _accepted(self, row: Client, window: trio.Semaphore) -> None:
        """Of a topic that is gone nobody knows what became of it."""
        partition = self._env.rng.randrange(self._lives.partitions)
        made = self._write_down(partition, 1, f"{self._who}/{partition}")
        with _Told(self, [made], window, self._env.rng.choice(PATIENCE)) as told:
            (text,) = self._texts(made)
            receipt = await row.produce(
                self._topic, text, partition=partition, wait="accepted", timeout=told.patience
            )
            if receipt.number is None:
                told.is_receipt = True
                with trio.move_on_after(told.patience):
                    receipt = await receipt.ordered()
            if receipt.number is not None:
                self._numbered(made, receipt.partition, receipt.number, 1)

    def _write_down(self, partition: int, count: int, lane: str) -> Produce:
        values = []
        for _ in range(count):
            self._count += 1
            values.append(f"{self._who}.{self._count}")
        made = Produce(self._env.name, (self._topic, partition), values, trio.current_time())
        made.lane, made.seq, made.may_wait = lane, self._count, self._waits
        texts = self._texts(made)
        made.size = len(columns.encode(texts, [key_of(text) for text in texts]))
        made.own_size = sum(map(len, texts))
        self._seen.history.produces.append(made)
        self._seen.send(texts)
        return made

    def _texts(self, made: Produce) -> list[bytes]:
        return [str(value).ljust(self._plan.value_bytes).encode() for value in made.values]

    def _numbered(self, made: Produce, partition: int, number: int, count: int) -> None:
        if not number or partition != made.key[1] or count != len(made.values):
            text = f"{made.values} is {number} of {partition}, {count} entries"
            self._seen.problem("wrong-receipt", text)
        made.outcome, made.first = OK, number

    # -- reads ------------------------------------------------------------------------------------

    async def _look(self, row: Client, window: trio.Semaphore) -> None:
        """Behind a barrier, from the beginning."""
        newest = self._lives.newest
        try:
            await row.barrier()
            pull = self._begin(0, 0)
            pull.wait = 0.0
            found = await row.pull(self._topic, 0, partition=0)
            self._saw(pull, found)
            if newest is not None and 0 < found.topic_id < newest.id:
                text = f"{found.topic_id} behind a barrier, and {newest.id} was there"
                self._seen.problem("older-topic", text)
        except Damaged as damage:
            self._tell(damage)
        except (NoQuorum, InDoubt, Full):
            pass
        finally:
            window.release()

    async def _pull(self, row: Client, partition: int) -> None:
        done = id_ = 0
        while True:
            pull = self._begin(partition, done)
            try:
                found = await row.pull(
                    self._topic, done, partition=partition, limit=20, wait=PULL_WAIT, topic_id=id_
                )
                if id_ and found.topic_id not in (0, id_):
                    self._seen.problem("other-topic", f"{found.topic_id}, and {id_} was asked for")
                self._saw(pull, found)
                calm = pull.began >= (self._seen.calm_since or inf)
                if calm and not found.topic_id and self._lives.has_ended(id_):
                    self._seen.problem("not-told", f"that topic {id_} is gone")
                id_ = found.topic_id or id_
                done = pull.numbers[-1] if pull.numbers else done + pull.missing
            except Damaged as damage:
                pull.outcome, done = FAIL, self._tell(damage)
            except (Conflict, NotFound) as error:
                pull.outcome = FAIL
                if isinstance(error, Conflict):
                    self._check_gone(id_, error)
                    done = id_ = 0
                await trio.sleep(self._env.rng.uniform(0.0, 0.3))
            except (InDoubt, NoQuorum):
                pull.outcome = FAIL
                await trio.sleep(self._env.rng.uniform(0.05, 0.3))
            pull.ended = trio.current_time()

    async def _follow(self, row: Client, partition: int) -> None:
        """Entry by entry; it knows its topic from the first page on."""
        done, follow = 0, row.follow(self._topic, 0, partition=partition)
        while True:
            pull = self._begin(partition, done)
            pull.node = f"{pull.node} for {self._env.name}"  # what it shows was fetched before
            try:
                entry = await anext(follow)
                pull.topic_id = follow._following._topic_id
                pull.numbers, pull.values = [entry.number], [self._seen.read(entry)]
                pull.missing, pull.outcome = entry.number - 1 - done, OK
                done = entry.number
            except DuckrowError as error:
                pull.outcome = FAIL
                if isinstance(error, Damaged):
                    done = self._tell(error)
                elif isinstance(error, Conflict):
                    self._check_gone(follow._following._topic_id, error)
                    done = 0
                if isinstance(error, Damaged | Conflict):
                    follow = row.follow(self._topic, done, partition=partition)
                elif not isinstance(error, NotFound | NoQuorum | InDoubt):
                    self._wrong("follow", error)
                await trio.sleep(self._env.rng.uniform(0.0, 0.3))
            pull.ended = trio.current_time()

    def _begin(self, partition: int, done: int) -> Pull:
        pull = Pull(
            self._env.name,
            (self._topic, partition),
            done,
            trio.current_time(),
            outcome=INFO,
            node=self._seen.node_of(self._env.name),
            wait=PULL_WAIT,
        )
        self._seen.history.pulls.append(pull)
        return pull

    def _saw(self, pull: Pull, found: Entries) -> None:
        pull.ended, pull.outcome, pull.topic_id = trio.current_time(), OK, found.topic_id
        pull.numbers = [entry.number for entry in found]
        pull.values = [self._seen.read(entry) for entry in found]
        pull.missing = found.missing
        self._seen.shown(found.topic_id, found.batches)
        for batch in found.batches:
            for entry in batch:
                self._lives.placed.setdefault(entry.value.decode().strip(), batch.position)

    def _tell(self, damage: Damaged) -> int:
        nodes = self._seen.nodes_of(self._env.name)
        self._seen.tell((self._topic, damage.partition), damage.first, damage.last, nodes=nodes)
        return damage.last

    def _check_gone(self, id_: int, error: Conflict) -> None:
        """Or the one that was there when it began to wait."""
        told = _DELETED.search(str(error))
        if told is None or not self._lives.has_ended(int(told[1])) or id_ not in (0, int(told[1])):
            self._wrong(f"asked for {id_}, and told", error)

    def _wrong(self, what: str, error: DuckrowError) -> None:
        text = f"{what}, {self._env.name}: {type(error).__name__}: {error}"
        self._seen.problem("wrong-error", text)


class _Told:
    """What a produce came to, if it ended with an error."""

    def __init__(
        self, tenant: Tenant, made: Sequence[Produce], window: trio.Semaphore, patience: float
    ) -> None:
        self._tenant, self._made, self._window = tenant, made, window
        self.patience = patience
        self.is_receipt = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        now = trio.current_time()
        for made in self._made:
            made.ended = now
        self._window.release()
        if isinstance(error, _NOT_WRITTEN) and not self.is_receipt:
            for made in self._made:
                made.outcome = FAIL if len(self._made) == 1 else INFO
            return True
        if isinstance(error, InDoubt):  # also of a lane that is gone with its topic
            if now >= self._made[0].began + max(PATIENCE):
                self._tenant._wrong("stuck-call", error)
            return True
        if self.is_receipt and isinstance(error, (Conflict, *_NOT_WRITTEN)):
            return True
        if isinstance(error, DuckrowError):
            self._tenant._wrong("produce", error)
            return True
        return False


class JobThere(Stager):
    """Commits together what is in that topic and in another one; a stage goes with its topic."""

    def __init__(self, env: Env, seen: Observed, who: str, lives: Lives) -> None:
        super().__init__(env, seen, f"{who}-job")
        there = TopicPlan(lives.name, {})
        self._plan = attrs.evolve(seen.plan, topics=(there, there, seen.plan.topics[0]))
        self._lives = lives

    async def _stage(self, batch: Produce, partitions: int) -> Name | None:
        is_there = batch.key[0] == self._lives.name
        return await super()._stage(batch, self._lives.partitions if is_there else partitions)

    def _check(self, what: str, error: DuckrowError) -> None:
        if not isinstance(error, Conflict | InDoubt):
            super()._check(what, error)
