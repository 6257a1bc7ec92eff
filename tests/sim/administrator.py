"""The administrator of a simulation: makes the topics, changes policies, prunes, makes room."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from duckrow.cluster.history import OK, Configured, Policy, Prune
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, Exists, Full, NoQuorum, NotFound, Timeout

from .plan import TopicPlan
from .service import client
from .workload import Observed

PATIENCE = 2.0  # seconds; then it asks again


class Administrator:
    """Makes the topics first, and changes its mind about policies and old entries later."""

    def __init__(self, env: Env, seen: Observed) -> None:
        self._env, self._seen, self._plan = env, seen, seen.plan
        self.ready = trio.Event()

    async def run(self) -> None:
        async with client(
            self._env, timeout=PATIENCE, nodes=self._seen.nodes_of(self._env.name)
        ) as self._row:
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
        async with client(
            self._env, timeout=PATIENCE, nodes=self._seen.nodes_of(self._env.name)
        ) as self._row:
            await self._prune_all()

    async def _prune_all(self) -> None:
        for topic in self._plan.topics:
            for partition in range(topic.partitions):
                made = [p for p in self._seen.history.produces if p.key == (topic.name, partition)]
                last = max((p.first + len(p.values) - 1 for p in made if p.first), default=0)
                await self._prune(topic, partition, last)

    async def _prune(self, topic: TopicPlan, partition: int, number: int) -> None:
        prune = Prune((topic.name, partition), number, trio.current_time())
        self._seen.history.prunes.append(prune)
        await self._insist(lambda: self._row.prune(topic.name, number, partition=partition))
        prune.outcome = OK

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
        user: dict[str, Any] = {
            k: v / 1e6 if k == "max_age" and isinstance(v, int) else v for k, v in policy.items()
        }
        make = self._row.create_topic if create else self._row.set_topic
        await self._insist(lambda: make(topic.name, **user))
        configured.ended = trio.current_time()

    async def _insist(self, act: Callable[[], Awaitable[object]]) -> None:
        """Until it is done, or was done by an earlier try of which nobody told."""
        while True:
            try:
                await act()
                return
            except Exists:
                return
            except NotFound:  # it went with what a loss of power took
                if not self._seen.lossy:
                    raise
                return
            except Corrupt:
                if not self._seen.ended:
                    raise
            except (Timeout, NoQuorum, Full):
                pass
            await trio.sleep(self._env.rng.uniform(0.02, 0.3))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value else None
