"""The operator of a simulated cluster: adds, retires, replaces and weighs machines while all produce.

Each wish is a process of its own, a client that asks one node as `duckrow member` does.  It may know
better or worse than the cluster what can be had; nothing but the end depends on what it is told.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import trio

from duckrow.bridge.electorate import Voter
from duckrow.node.env import Env
from duckrow.node.errors import DuckrowError
from duckrow.node.row import View
from duckrow.node.storeoptions import FSYNC, LEVELS, WRITE

from .cluster_levels import Levels
from .cluster_machine import Machine
from .cluster_plan import ClusterPlan
from .service import client
from .workload import Observed
from .world import World

PATIENCE = 2.0  # seconds, for one wish
SLACK = 1.0  # of the client, which asks that long
RESTORED_SECONDS = 30.0


class Operator:
    def __init__(
        self,
        world: World,
        plan: ClusterPlan,
        seen: Observed,
        machines: Mapping[int, Machine],
        marks: Mapping[int, int] | None = None,
    ) -> None:
        """`marks`: by view, its position in the row."""
        self._world, self._plan, self._seen, self._machines = world, plan, seen, machines
        self.levels = Levels(plan.level, machines, {} if marks is None else marks)
        self._wishes = 0

    # -- what there is ------------------------------------------------------------------------

    def view(self) -> View | None:
        """The newest one that a living bridge knows."""
        views = [
            each.bridge.member.standing.newest
            for each in self._machines.values()
            if each.bridge is not None and each.bridge_host.alive
        ]
        return max(views, key=lambda view: view.id, default=None)

    @property
    def level(self) -> str:
        """What is acknowledged now is so durable, at least."""
        return self.levels.now(self.view())

    def votes(self, id_: int) -> bool:
        return id_ in self._voters()

    def _voters(self) -> dict[int, Voter]:
        view = self.view()
        return {} if view is None else {voter[0]: Voter(*voter) for voter in view.voters}

    @property
    def is_asking(self) -> bool:
        """Who votes may still change."""
        hosts = self._world.hosts
        return any(hosts[f"operator-{n}"].alive for n in range(1, self._wishes + 1))

    # -- what is wished -----------------------------------------------------------------------

    def wish(self, rng: random.Random) -> None:
        voters = self._voters()
        if not voters:
            return
        others = [id_ for id_ in self._plan.ids if id_ not in voters]
        draw = rng.random()
        if others and draw < 0.5:
            id_ = rng.choice(others)
            alike = self._alike(id_, voters)
            if alike and rng.random() < 0.4:
                self._ask(
                    "replace", {"node": f"m{id_}", "instead_of": f"m{rng.choice(alike)}"}, rng
                )
            else:
                self._ask("add", self._added(id_), rng)
        elif len(voters) > 2 and draw < 0.75:
            self._ask("retire", {"node": f"m{rng.choice([*voters])}"}, rng)
        elif draw < 0.9:
            node = f"m{rng.choice([*voters])}"
            self._ask("weight", {"node": node, "weight": rng.choice((1, 2, 3))}, rng)
        else:
            self._ask("set", {"min_copies": rng.choice((1, 2))}, rng)

    def wish_setting(self, rng: random.Random) -> None:
        """Of the whole cluster.  No fault that waits for its moment may meet less than there was."""
        if rng.random() < 0.3:
            self._ask("set", {"min_copies": rng.randint(1, len(self._plan.founders))}, rng)
            return
        level = rng.choice((FSYNC, FSYNC, WRITE))
        armed = any(each.bridge_host.media.is_armed for each in self._machines.values())
        if LEVELS.index(level) <= LEVELS.index(self.level) or not armed:
            self._ask("set", {"durability": level}, rng)

    def _alike(self, id_: int, voters: Mapping[int, Voter]) -> list[int]:
        """Whose part it can play: a witness has no node, and who keeps the row has one."""
        witness = id_ in self._plan.witnesses
        return [other for other in voters if (other in self._plan.witnesses) == witness]

    def _added(self, id_: int) -> dict[str, Any]:
        return {"node": f"m{id_}", "weight": 1, "witness": id_ in self._plan.witnesses}

    def _ask(self, what: str, asked: dict[str, Any], rng: random.Random) -> None:
        node = rng.choice([m.node_name for m in self._machines.values() if m.holds_data])
        self._wishes += 1
        self._world.note("wish", what, *map(str, asked.values()))

        is_for_less = asked.get("durability", FSYNC) != FSYNC
        if is_for_less:
            self.levels.wish(asked["durability"])

        async def program(env: Env) -> None:
            async with client(env, timeout=PATIENCE + SLACK, nodes=(node,)) as row:
                try:
                    await row.members(what, seconds=PATIENCE, **asked)
                except DuckrowError as error:
                    self._world.note("wish failed", what, type(error).__name__)
                else:
                    self._world.note("wish done", what)
                if is_for_less:
                    self.levels.ended(self.view())

        self._world.start(f"operator-{self._wishes}", program)

    # -- the end ------------------------------------------------------------------------------

    async def give_back(self, rng: random.Random) -> None:
        """Everybody has a vote again, when all is healed: nothing can be against it for long."""
        voting = [m for m in self._machines.values() if m.holds_data and self.votes(m.id)]
        node, told = rng.choice(voting).node_name, ["it was never asked"]

        async def program(env: Env) -> None:
            async with client(env, timeout=PATIENCE + SLACK, nodes=(node,)) as row:
                while missing := [i for i in self._plan.ids if not self.votes(i)]:
                    try:
                        await row.members("add", seconds=PATIENCE, **self._added(missing[0]))
                    except DuckrowError as error:
                        told[0] = str(error)
                        await trio.sleep(0.2)

        self._world.start("operator-last", program)
        with trio.move_on_after(RESTORED_SECONDS):
            while any(not self.votes(id_) for id_ in self._plan.ids):
                await trio.sleep(0.1)
            return
        self._seen.problem("not-added", f"asked at {node}, voters are {[*self._voters()]}: {told}")
