"""Somebody who cannot let a topic be: it is deleted and made anew with another policy, grows, and is pruned.

A batch that comes meanwhile makes the topic, too; then it is given the policy that it was to have.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from duckrow.cluster.history import OK, Configured, Policy, Prune
from duckrow.node.env import Env
from duckrow.node.errors import DuckrowError, Exists, Full, NoQuorum, NotFound, Refused, Timeout

from .administrator import PATIENCE
from .cluster_plan import ClusterPlan
from .lives import PARTITIONS_MAX, Lives
from .service import client
from .workload import Observed


class Changer:
    def __init__(self, env: Env, seen: Observed, lives: Lives, plan: ClusterPlan) -> None:
        self._env, self._seen, self._lives = env, seen, lives
        self._gap, self._full = plan.changes, "block" if plan.waits else "reject"

    async def run(self) -> None:
        rng = self._env.rng
        async with client(
            self._env, timeout=PATIENCE, nodes=self._seen.nodes_of(self._env.name)
        ) as self._row:
            await self._make(rng)
            while self._seen.calm_since is None:
                await trio.sleep(rng.expovariate(1 / self._gap))
                if self._seen.calm_since is None:
                    await rng.choice((self._renew, self._renew, self._grow, self._prune))(rng)

    async def _renew(self, rng: random.Random) -> None:
        row, name = self._row, self._lives.name
        await self._insist(lambda: row.delete_topic(name))
        await trio.sleep(rng.choice((0.0, 0.05, 0.3)))
        await self._make(rng)

    async def _make(self, rng: random.Random) -> None:
        row, name = self._row, self._lives.name
        policy: dict[str, Any] = {
            "max_age": rng.choice((None, None, 0.3, 2.0)),
            "max_entries": rng.choice((None, None, 5, 30)),
            "when_full": rng.choice(("drop-oldest", "drop-oldest", self._full)),
        }
        limits = Policy(policy["max_age"], policy["max_entries"], None, policy["when_full"])
        configured = Configured(name, limits, trio.current_time())
        self._seen.history.configured.append(configured)
        partitions = rng.randint(1, 3)
        try:
            await self._insist(lambda: row.create_topic(name, partitions=partitions, **policy))
        except Exists:
            await self._insist(lambda: row.set_topic(name, **policy))
        configured.ended = trio.current_time()

    async def _grow(self, _rng: random.Random) -> None:
        row, lives = self._row, self._lives
        count = min(lives.partitions + 1, PARTITIONS_MAX)
        try:
            await self._insist(lambda: row.set_topic(lives.name, partitions=count))
        except Refused:
            pass  # it had grown already, as far as an older node tells

    async def _prune(self, rng: random.Random) -> None:
        row, name = self._row, self._lives.name
        number = rng.choice((3, 30, 300))
        prune = Prune((name, rng.randrange(self._lives.partitions)), number, trio.current_time())
        self._seen.history.prunes.append(prune)
        try:
            await self._insist(lambda: row.prune(name, number, partition=prune.key[1]))
        except Refused:
            return  # it has fewer partitions now
        prune.outcome = OK

    async def _insist(self, act: Callable[[], Awaitable[object]]) -> None:
        """Until it is done, or there is nothing to be done.

        Raises:
            Exists, Refused: it is not to be.
        """
        while True:
            try:
                await act()
                return
            except NotFound:
                return
            except (Timeout, NoQuorum, Full):
                await trio.sleep(self._env.rng.uniform(0.02, 0.3))
            except (Exists, Refused):
                raise
            except DuckrowError as error:
                text = f"by {self._env.name}: {type(error).__name__}: {error}"
                self._seen.problem("wrong-error", text)
                return
