"""The administrator of a simulation: makes the topics, changes policies, prunes, makes room."""

from __future__ import annotations

import random

import trio

from checker import Configured, Policy, Prune
from checker.history import OK
from duckrow.node import makers
from duckrow.node.commands import PID_BYTES
from duckrow.node.effects import Code, Result
from duckrow.node.env import Env
from duckrow.node.errors import Disconnected

from .plan import TopicPlan
from .service import Client
from .workload import ANSWER_SECONDS, NODE, Observed


class Administrator:
    """Makes the topics first, and changes its mind about policies and old entries later."""

    def __init__(self, env: Env, seen: Observed) -> None:
        self._env, self._seen, self._plan = env, seen, seen.plan
        self._client = Client(env, NODE)
        self._pid = env.rng.randbytes(PID_BYTES)
        self._seq = 0
        self.ready = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._client.run)
            for topic in self._plan.topics:
                await self._configure(topic, topic.policy, create=True)
            self.ready.set()
            if not self._plan.admin:
                await trio.sleep_forever()
            policies = {topic.name: dict(topic.policy) for topic in self._plan.topics}
            while True:
                await trio.sleep(self._env.rng.expovariate(1 / self._plan.admin))
                if self._seen.calm_since is None:
                    await self._change(policies, self._env.rng)

    async def _change(self, policies: dict[str, dict[str, object]], rng: random.Random) -> None:
        topic = rng.choice(self._plan.topics)
        policy = policies[topic.name]
        what = rng.choice(("max_age", "max_entries", "prune", "prune"))
        if what == "prune":
            last = max(
                (p.first for p in self._seen.history.produces if p.key[0] == topic.name), default=0
            )
            await self._prune(topic, 0, rng.randint(0, last))
            return
        if what == "max_age":
            policy["max_age"] = rng.choice((None, 500_000, 3_000_000))
        elif "when_full" not in policy:
            policy["max_entries"] = rng.choice((None, 10, 100))
        await self._configure(topic, policy, create=False)

    async def make_room(self) -> None:
        """All that was ever acknowledged goes."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._client.run)
            await self._prune_all()
            nursery.cancel_scope.cancel()

    async def _prune_all(self) -> None:
        for topic in self._plan.topics:
            for partition in range(topic.partitions):
                made = [p for p in self._seen.history.produces if p.key == (topic.name, partition)]
                last = max((p.first + len(p.values) - 1 for p in made if p.first), default=0)
                await self._prune(topic, partition, last)

    async def _prune(self, topic: TopicPlan, partition: int, number: int) -> None:
        prune = Prune((topic.name, partition), number, trio.current_time())
        self._seen.history.prunes.append(prune)
        result = await self._order(
            lambda turn: makers.prune(turn, topic.name, number, partition=partition)
        )
        prune.outcome = OK if result.code == Code.ORDERED else prune.outcome

    async def _configure(
        self, topic: TopicPlan, policy: dict[str, object], *, create: bool
    ) -> None:
        age = policy.get("max_age")
        configured = Configured(
            topic.name,
            Policy(
                age / 1e6 if isinstance(age, int) and age else None,
                _number(policy.get("max_entries")),
                _number(policy.get("max_bytes")),
                str(policy.get("when_full", "drop-oldest")),
            ),
            trio.current_time(),
        )
        self._seen.history.configured.append(configured)
        make = makers.create if create else makers.configure
        result = await self._order(lambda turn: make(turn, topic.name, policy))
        configured.ended = trio.current_time()
        if result.code not in (Code.ORDERED, Code.EXISTS):
            self._seen.problems.append(f"{'create' if create else 'configure'} {policy}: {result}")

    async def _order(self, make: object) -> Result:
        self._seq += 1
        turn = makers.Turn(self._pid, self._seq, 1, self._seq - 1, self._seen.wall_us())
        command = make(turn)  # type: ignore[operator]
        while True:
            with trio.move_on_after(ANSWER_SECONDS):
                try:
                    result = await self._client.order(command)
                    if isinstance(result, Result) and result.code not in (
                        Code.GAP,
                        Code.UNKNOWN_PRODUCER,
                    ):
                        return result
                    if isinstance(result, Result):
                        if not self._seen.lossy:
                            self._seen.problems.append(
                                f"the administrator's lane is lost: {result}"
                            )
                        self._pid = self._env.rng.randbytes(PID_BYTES)
                        self._seq = 1
                        command = make(makers.Turn(self._pid, 1, 1, 0, self._seen.wall_us()))  # type: ignore[operator]
                except Disconnected:
                    pass
            await trio.sleep(self._env.rng.uniform(0.02, 0.3))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value else None
