"""The clients of a simulated cluster: who makes the topics, who produces and reads, and whom they know."""

from __future__ import annotations

import random
from collections.abc import Sequence

import trio

from duckrow.node.env import Env

from .administrator import Administrator
from .changing import Changer
from .cluster_faults import ClusterFate
from .cluster_plan import ClusterPlan
from .consumers import Consumer
from .guests import Guest
from .lives import Lives
from .producers import Producer
from .stager import Stager
from .tenants import Tenant
from .workload import Observed
from .world import Program, World

FOUNDED_SECONDS = 60.0


class Crowd:
    def __init__(
        self,
        world: World,
        plan: ClusterPlan,
        seen: Observed,
        nodes: Sequence[str],
        rng: random.Random,
        lives: Lives,
    ) -> None:
        self._world, self._plan, self._seen = world, plan, seen
        self._nodes, self._rng, self._lives = nodes, rng, lives

    async def administrate(self, hands: Sequence[ClusterFate]) -> None:
        """Until there are all topics."""
        administrators: list[Administrator] = []
        self._seen.nodes["admin"] = self._nodes

        async def administrate(env: Env) -> None:
            administrators.append(Administrator(env, self._seen))
            await administrators[0].run()

        self._world.start("admin", administrate)
        while not administrators or not administrators[0].ready.is_set():
            await trio.sleep(0.2)
            hands[0].revive()  # snipers aim at the founding, too; for ever they may well win
            for hand in hands:
                hand.holds_fire = self._world.clock.now > FOUNDED_SECONDS / 2
            assert self._world.clock.now < FOUNDED_SECONDS, "the topics cannot be made"
        for hand in hands:
            hand.holds_fire = False

    def come(self) -> None:
        for kind, letter, count in (
            (Producer, "p", self._plan.producers),
            (Consumer, "c", self._plan.consumers),
            (Stager, "s", self._plan.stagers),
            (Guest, "g", self._plan.guests),
        ):
            for index in range(count):
                self._add(f"{letter}{index}", kind)
        if self._plan.changes:
            self._add_tenant("t0")

    def _add(self, name: str, kind: type[Producer | Consumer | Stager | Guest]) -> None:
        self._seen.nodes[name] = self._nodes if kind is Guest else self._some()

        async def program(env: Env) -> None:
            await kind(env, self._seen, self._who(name)).run()

        self._start(name, program)

    def _add_tenant(self, name: str) -> None:
        """And somebody who changes the topic, whom nobody kills."""
        self._seen.nodes |= {"changer": self._nodes, name: self._some()}

        async def tenant(env: Env) -> None:
            await Tenant(
                env, self._seen, self._who(name), self._lives, waits=self._plan.waits
            ).run()

        async def changer(env: Env) -> None:
            await Changer(env, self._seen, self._lives, self._plan).run()

        self._start(name, tenant)
        self._world.start("changer", changer)

    def _some(self) -> list[str]:
        return self._rng.sample(self._nodes, min(self._plan.doors, len(self._nodes)))

    def _who(self, name: str) -> str:
        return f"{name}-{self._world.hosts[name].starts}"

    def _start(self, name: str, program: Program) -> None:
        self._seen.programs[name] = program
        self._world.start(name, program)
