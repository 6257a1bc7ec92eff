"""The clients of a simulation: what they want, what they do about trouble, what they write down.

Producers are as stubborn as the product's own clients will be: a batch is sent, with the same seq,
until there is a final answer; whoever loses patience sends a skip instead, until that is answered.
Consumers go on from the number they have done.  Everything goes into a `History`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import trio

from checker import History, Produce, Pull
from checker.history import FAIL, OK, Key
from duckrow.node import columns, makers
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.effects import Code, Reason, Result, explain
from duckrow.node.entries import Entry
from duckrow.node.env import Env
from duckrow.node.errors import Disconnected
from duckrow.node.limits import LANE_RESULTS_MAX

from .plan import Plan, TopicPlan
from .service import Client, batches_of

NODE = "m1"
ANSWER_SECONDS = 1.0
PULL_WAIT = 1.0


class Observed:
    """What all clients share: the history, problems, and whether it is time to come to an end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.history = History()
        self.problems: list[str] = []
        self.flips = 0
        self.wild = False  # damage went where it may end the row, or stop the node from starting
        self.refused = ""  # why the node does not start: damage
        self.fresh: str | None = None  # the open segment was damaged since the last start
        self.doubted = False  # a sync failed, below level fsync: answered entries may be gone
        self.ambiguous = False  # the power failed before anybody could see that damage
        self.troubled = False  # reads have failed: entries may have been told to be damaged
        self.snapshot_gone = False
        self.covered: set[str] = set()  # sealed segment files of which a snapshot knows everything
        self.lost_lanes = 0  # lanes that vanished with what a power loss took, below level fsync
        self.stop = trio.Event()
        self.wall_us: Callable[[], int] = lambda: 0  # of the node: it stamps what it takes
        self.calm_since: float | None = None

    @property
    def lossy(self) -> bool:
        """What was acknowledged may be gone."""
        return bool(self.history.losses)

    @property
    def ended(self) -> bool:
        """The row is said to end, damaged: nobody gets an answer any more."""
        return bool(self.refused) or self.history.broken < inf

    def tell(self, key: Key, first: int, last: int) -> None:
        """Somebody was told that these entries are damaged."""
        if not self.flips and not self.troubled:
            self.problems.append(f"damage: {key} {first} to {last}, and nothing was damaged")
        self.history.told.setdefault(key, []).append((first, last))


class Lane:
    """One producer's commands for one topic partition."""

    def __init__(self, pid: bytes, epoch: int, topic: str, partition: int) -> None:
        self.pid, self.epoch, self.topic, self.partition = pid, epoch, topic, partition
        self.next = 1
        self.open: dict[int, None] = {}  # seqs without a final answer

    def take(self) -> int:
        seq = self.next
        self.next += 1
        self.open[seq] = None
        return seq

    @property
    def done(self) -> int:
        return min(self.open, default=self.next) - 1

    def turn(self, seq: int, time: int) -> makers.Turn:
        return makers.Turn(self.pid, seq, self.epoch, self.done, time)


class Producer:
    def __init__(self, env: Env, seen: Observed) -> None:
        self._env, self._seen, self._plan = env, seen, seen.plan
        self._client = Client(env, NODE)
        self._pid = env.rng.randbytes(PID_BYTES)
        self._epoch = 1
        self._lanes: dict[Key, Lane] = {}
        self._count = 0
        self._lasts: dict[Key, int] = {}  # numbers that it was told

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._client.run)
            busy: dict[Key, trio.Semaphore] = {}
            while not self._seen.stop.is_set():
                topic = self._env.rng.choice(self._plan.topics)
                key = topic.name, self._env.rng.randrange(topic.partitions)
                window = busy.setdefault(key, trio.Semaphore(self._plan.window))
                with trio.move_on_after(2.0):
                    await window.acquire()
                    if self._is_far_ahead(key):
                        window.release()
                    else:
                        self._start(nursery, topic, key, window)
                gap = self._plan.gap if self._seen.calm_since is None else max(self._plan.gap, 0.1)
                await trio.sleep(self._env.rng.expovariate(1 / gap))

    def _is_far_ahead(self, key: Key) -> bool:
        """The answer to a batch that still waits would be forgotten before it is asked for."""
        lane = self._lanes.get(key)
        if lane is None:
            return False
        return lane.next - min(lane.open, default=lane.next) >= LANE_RESULTS_MAX - 1

    def _start(
        self, nursery: trio.Nursery, topic: TopicPlan, key: Key, window: trio.Semaphore
    ) -> None:
        rng = self._env.rng
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(self._pid, self._epoch, *key)
        seq = lane.take()
        values = []
        for _ in range(rng.randint(1, self._plan.batch)):
            self._count += 1
            values.append(f"{self._env.name}.{self._count}")
        made = Produce(
            self._env.name,
            key,
            values,
            trio.current_time(),
            lane=f"{self._env.name}/{self._epoch}",
            seq=seq,
            may_wait="when_full" in topic.policy,
        )
        if rng.random() < self._plan.expect:
            # What it knows is often old; and now and then it expects what is still to come.
            made.expected = self._lasts.get(key, 0) + rng.choice((0, 0, 0, 1))
        self._seen.history.produces.append(made)
        nursery.start_soon(self._finish, topic, lane, made, window)

    async def _finish(
        self, topic: TopicPlan, lane: Lane, made: Produce, window: trio.Semaphore
    ) -> None:
        rng = self._env.rng
        values = [value.ljust(self._plan.value_bytes).encode() for value in map(str, made.values)]
        keys = [key_of(value) for value in values] if rng.random() < self._plan.keyed else None
        body = columns.encode(values, keys)
        made.size = len(body)
        ids = None
        if topic.name == "a" and len(values) == 1:
            ids = [str(made.values[0]).encode()]
        command = makers.produce(
            lane.turn(made.seq, self._seen.wall_us()),
            topic.name,
            body,
            len(values),
            partition=made.key[1],
            partitions=topic.partitions,
            ids=ids,
            key_hashes=None if keys is None else columns.key_hashes(keys),
            expect_last=made.expected,
        )
        patience = trio.current_time() + rng.choice((2.0, 5.0, 60.0))
        attempts = 0
        while True:
            if trio.current_time() > patience:
                command = makers.skip(
                    lane.turn(made.seq, self._seen.wall_us()), topic.name, made.key[1]
                )
                patience = inf
                made.may_wait = False  # a skip does not
            attempts += 1
            result = await self._ask(command)
            if isinstance(result, Result) and self._is_final(lane, made, result, attempts):
                break
            await trio.sleep(rng.uniform(0.01, 0.3))
        lane.open.pop(made.seq)
        window.release()

    async def _ask(self, command: Command) -> Result | str | None:
        with trio.move_on_after(ANSWER_SECONDS):
            try:
                return await self._client.order(command)
            except Disconnected:
                return None
        return None

    def _is_final(self, lane: Lane, made: Produce, result: Result, attempts: int) -> bool:
        """Writes the outcome down."""
        code = result.code
        if code == Code.GAP:
            # A window of several sends them at once; the earlier ones come.
            if result.detail > made.seq or (self._plan.window == 1 and not self._lossy()):
                self._problem(f"gap: seq {made.seq} of {lane.topic}, expected {result.detail}")
            return self._vanished(made)
        if code == Code.UNKNOWN_PRODUCER:
            if not self._lossy() and self._plan.window == 1:
                self._problem(f"the lane of {made.key} is unknown at seq {made.seq}")
            return self._vanished(made)
        if code == Code.FENCED:
            self._problem(f"fenced, though nobody else has this pid: {result}")
            return True
        if code == Code.ORDERED:
            if result.count != len(made.values):
                self._problem(
                    f"{len(made.values)} entries of {made.key} got {result.count} numbers"
                )
            made.outcome, made.first = OK, result.first
            made.ended = trio.current_time()
            self._lasts[made.key] = result.last
            return True
        if code == Code.FORGOTTEN:
            self._problem(f"seq {made.seq} of {made.key} is not done, and its result is forgotten")
            return True
        made.outcome, made.ended = FAIL, trio.current_time()
        if code == Code.CONFLICT:
            made.conflict = self._lasts[made.key] = result.detail
            if made.expected is None or result.reason != Reason.OTHER_LAST:
                self._problem(f"conflict: {made.key} seq {made.seq}: {explain(result)}")
        return True

    def _vanished(self, made: Produce) -> bool:
        """Below level fsync a power loss may take the lane's history with it: begin another one."""
        if not self._lossy():
            return False
        self._seen.lost_lanes += 1
        self._epoch += 1
        self._pid = self._env.rng.randbytes(PID_BYTES)
        self._lanes.clear()
        return True

    def _lossy(self) -> bool:
        return self._seen.lossy

    def _problem(self, text: str) -> None:
        self._seen.problems.append(f"{self._env.name}: {text}")


class Consumer:
    def __init__(self, env: Env, seen: Observed) -> None:
        self._env, self._seen, self._plan = env, seen, seen.plan
        self._client = Client(env, NODE)
        self._ids: dict[str, int] = {}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._client.run)
            for topic in self._plan.topics:
                if self._env.rng.random() < 0.4:
                    nursery.start_soon(self._follow_all, topic)
                else:
                    for partition in range(topic.partitions):
                        nursery.start_soon(self._follow, topic, partition)

    async def _follow(self, topic: TopicPlan, partition: int) -> None:
        rng = self._env.rng
        done = 0
        while True:
            pull = Pull(
                self._env.name,
                (topic.name, partition),
                done,
                trio.current_time(),
                node=NODE,
                limit=rng.choice((1, 5, 100)),
                wait=PULL_WAIT,
            )
            self._seen.history.pulls.append(pull)
            asked = {partition: done}
            found = await self._ask(topic, partition, asked, 0, pull.limit)
            if asked[partition] != done:  # damage: it was told, and the reader goes on after it
                pull.outcome, done = FAIL, asked[partition]
            if found is not None:
                entries, missing, _ = found
                pull.numbers = [entry.number for entry in entries]
                pull.values = [entry.value.decode().strip() for entry in entries]
                pull.missing = missing
                pull.outcome, pull.ended = OK, trio.current_time()
                done = pull.numbers[-1] if entries else done + missing
                if rng.random() < 0.02:
                    done = 0  # reads it all again
            await self._rest(found is None)

    async def _follow_all(self, topic: TopicPlan) -> None:
        """All partitions in the order of the row."""
        rng = self._env.rng
        done: dict[int, int] = dict.fromkeys(range(topic.partitions), 0)
        while True:
            began = trio.current_time()
            found = await self._ask(topic, None, done, 0, rng.choice((2, 10, 100)))
            if found is not None:
                entries, missing, going = found
                if topic.partitions == 1 or not missing:
                    self._note(topic, done, entries, missing, began)
                done = going if going is not None else done
            await self._rest(found is None)

    def _note(
        self,
        topic: TopicPlan,
        done: dict[int, int],
        entries: list[Entry],
        missing: int,
        began: float,
    ) -> None:
        for partition in range(topic.partitions):
            mine = [entry for entry in entries if entry.partition == partition]
            if not mine:
                continue
            self._seen.history.pulls.append(
                Pull(
                    self._env.name,
                    (topic.name, partition),
                    done[partition],
                    began,
                    trio.current_time(),
                    OK,
                    NODE,
                    [entry.number for entry in mine],
                    [entry.value.decode().strip() for entry in mine],
                    missing,
                    limit=len(mine),  # others' entries count, too
                )
            )

    async def _ask(
        self, topic: TopicPlan, partition: int | None, done: dict[int, int], since: int, limit: int
    ) -> tuple[list[Entry], int, dict[int, int] | None] | None:
        asked = [[p, n] for p, n in done.items()]
        answer, body = None, b""
        head = ["pull", topic.name, self._ids.get(topic.name, 0), partition, asked, since, limit]
        with trio.move_on_after(PULL_WAIT + ANSWER_SECONDS):
            try:
                answer, body = await self._client.call([*head, PULL_WAIT])
            except Disconnected:
                return None
        if answer is None:
            return None
        if answer[0] == "damaged":
            _, at, first, last, _text = answer
            self._seen.tell((topic.name, at), first, last)
            done[at] = last
            return None
        if answer[0] == "error" and answer[1] == "conflict":
            # The topic went with what a loss of power took, and was made anew.
            if not self._seen.history.losses:
                self._seen.problems.append(f"conflict: {topic.name}: {answer[2]}")
            self._ids.pop(topic.name, None)
            done.update(dict.fromkeys(done, 0))
        if answer[0] != "pulled":
            return None
        _, topic_id, missing, going, _, _, heads = answer
        if topic_id:
            self._ids[topic.name] = topic_id
        batches = batches_of(topic.name, heads, body)
        places = [(batch[6], batch[0], batch[3]) for batch in heads]
        if places != sorted(places):
            self._seen.problems.append(f"merge-order: {topic.name} came as {places}")
        entries = [entry for batch in batches for entry in batch.entries()]
        wrong = [each for each in entries if each.key not in (None, key_of(each.value))]
        if wrong:
            self._seen.problems.append(f"wrong-key: {wrong[0].key!r} with {wrong[0].value!r}")
        return entries, missing, None if going is None else dict(going)

    async def _rest(self, failed: bool) -> None:
        rng = self._env.rng
        await trio.sleep(rng.uniform(0.05, 0.3) if failed else rng.choice((0.0, 0.0, 0.02, 0.2)))


def key_of(value: bytes) -> bytes | None:
    """So that a reader sees that a key belongs to its value."""
    return value.strip()[-1:] if value.strip()[-1:] != b"0" else None
