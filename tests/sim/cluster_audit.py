"""What the nodes of a simulated cluster say when all is over: that they have one row, as `duckrow verify` asks them,
and what became of what each of them had accepted, as `duckrow receipt` asks any of them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import trio

from duckrow.cluster.comparing import compared
from duckrow.cluster.history import OK
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, DuckrowError, NotFound

from .service import client
from .workload import Observed
from .world import World

PATIENCE = 5.0  # seconds, for one answer
AUDIT_SECONDS = 60.0


class Audit:
    def __init__(
        self,
        world: World,
        seen: Observed,
        nodes: Sequence[str],
        forgetful: Collection[str],
        rng: random.Random,
    ) -> None:
        """`forgetful`: of these nodes what they accepted may be gone."""
        self._world, self._seen, self._nodes = world, seen, nodes
        self._forgetful, self._rng = forgetful, rng

    async def run(self) -> None:
        done = trio.Event()

        async def program(env: Env) -> None:
            try:
                await self._verify(env)
                await self._ask_receipts(env)
            except DuckrowError as error:
                self._seen.problem("audit", f"{type(error).__name__}: {error}")
            done.set()

        self._world.start("audit", program)
        with trio.move_on_after(AUDIT_SECONDS):
            await done.wait()
            return
        self._seen.problem("audit", "it does not come to an end")

    async def _verify(self, env: Env) -> None:
        statuses: list[Mapping[str, Any]] = []
        for node in self._nodes:
            async with client(env, timeout=PATIENCE, nodes=(node,)) as row:
                statuses.append(await row.status())
        position = min(status["position"] for status in statuses)
        digests = [await self._digest(env, node, position) for node in self._nodes]
        told = compared(statuses, [{position: each}.get for each in digests])
        names = [status["node"] for status in statuses]
        if not told["same"] or told["unknown"] or names != [*self._nodes]:
            self._seen.problem("verify", f"of {names}: {told}")

    async def _digest(self, env: Env, node: str, position: int) -> bytes | None:
        async with client(env, timeout=PATIENCE, nodes=(node,)) as row:
            try:
                return await row.digest(position)
            except (NotFound, Corrupt):
                return None

    async def _ask_receipts(self, env: Env) -> None:
        for made, name in self._seen.receipts:
            if not made.accepted_at or made.accepted_at in self._forgetful or made.may_wait:
                continue
            node = self._rng.choice(self._nodes)
            who = f"{made.values[0]} of {made.key}, accepted at {made.accepted_at}, asked at {node}"
            async with client(env, timeout=PATIENCE, nodes=(node,)) as row:
                try:
                    number = (await row.receipt(name)).number
                except DuckrowError as error:
                    self._seen.problem("wrong-receipt", f"{who}: {type(error).__name__}: {error}")
                    continue
            if number is None:
                self._seen.problem("receipt-waits", f"{who}: it has no number")
            elif made.outcome == OK and made.first != number:
                self._seen.problem("wrong-receipt", f"{who}: {number}, and it was {made.first}")
            else:
                made.outcome, made.first, made.ended = OK, number, trio.current_time()
