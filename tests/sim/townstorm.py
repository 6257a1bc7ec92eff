"""Clients run their programs while a town has bad days; then all that they were told is held against the row."""

from __future__ import annotations

import random

import trio

from duckrow.node import makers
from duckrow.node.capture import state_hash
from duckrow.node.errors import DuckrowError, Exists, NotFound
from duckrow.node.trioclient import Client

from .applied import Applied
from .programs import EXPECTED, JOB_TOPICS, Program
from .scenario import ENDS
from .told import BLOCKED, DELETED, Told, problems_of
from .townkit import IDS, Town, run

KINDS = [
    "reset",
    "node",
    "bridge",
    "both",
    "power",
    "cut",
    "heal",
    "slow",
    "full",
    "image",
    "blank",
]
END_SECONDS = 120.0  # in which all calls have an end
FEW_LANES = 12
ROOM = 1 << 40  # bytes


class Days:
    def __init__(self, town: Town, seed: int, row: Applied) -> None:
        self._town, self._rng, self._row = town, random.Random(seed), row
        self.told = Told()
        self.kinds = self._rng.sample(KINDS, self._rng.randint(1, 4))
        self.told.forgets = self._rng.random() < 0.2

    async def run(self) -> None:
        town, rng, over, healed = self._town, self._rng, trio.Event(), trio.Event()
        async with town.client(1) as row:
            await row.create_topic("p", partitions=3)
            await row.create_topic(EXPECTED)
            policy = rng.choice(("block", "slot", "reject"))
            await row.create_topic(BLOCKED, max_entries=5, when_full=policy)
        if self.told.forgets:
            node = town.nodes[1]
            turn = makers.Turn(node.fresh_pid(), seq=1, time=node.wall_us())
            await node.order(makers.settings(turn, {"lanes_max": FEW_LANES}))
        # Who knows no topic accepts for one partition, and the row refuses that.
        await town.until(lambda: len({node.state.position for node in town.nodes.values()}) == 1)
        with trio.move_on_after(END_SECONDS) as whole:
            async with trio.open_nursery() as nursery:
                for _ in range(rng.randint(2, 3)):
                    program = Program(town, self.told, random.Random(rng.random()))
                    nursery.start_soon(program.run, over)
                nursery.start_soon(self._make_room, over)
                nursery.start_soon(self._strike, healed)
                await trio.sleep(rng.choice((1, 2, 4)))
                healed.set()
                over.set()
        if whole.cancelled_caught:
            self.told.problems.append("some calls have no end")
        await town.until(self._all_act, 60)
        async with town.client(1) as row:
            await row.barrier()
        await town.until(lambda: len({town.nodes[id_].state.position for id_ in IDS}) == 1)
        if len({state_hash(town.nodes[id_].state) for id_ in IDS}) > 1:
            self.told.problems.append("the nodes have different states in the end")
        await self._read_all()

    async def _read_all(self) -> None:
        async with self._town.client(1) as row:
            for name, partitions in (*JOB_TOPICS, (EXPECTED, 1)):
                topic = self._town.nodes[1].state.topic(name)
                for partition in range(partitions if topic is not None else 0):
                    after = 0
                    while found := await row.pull(name, after, partition=partition):
                        for entry in found:
                            place = topic.id, partition, entry.number  # type: ignore[union-attr]
                            self._row.read[place] = bytes(entry.value)
                        after = found[-1].number

    def _all_act(self) -> bool:
        town = self._town
        for id_ in IDS:
            town.start(id_)
        return all(
            town.world.host(f"n{id_}").alive
            and id_ in town.nodes
            and town.nodes[id_].row.status().active
            for id_ in IDS
        )

    def _all_know(self) -> bool:
        """All nodes know the state: one may need an image, and another has it."""
        town = self._town
        return all(
            town.world.host(f"m{i}").alive
            and i in town.nodes
            and not town.bridges[i].member.standing.stateless
            for i in IDS
        )

    async def _make_room(self, over: trio.Event) -> None:
        """And deletes a topic now and then; whoever produces to it makes it anew."""
        rng = random.Random(self._rng.random())
        while not over.is_set():
            try:
                async with self._town.client(*rng.sample(IDS, 2), timeout=1.0) as row:
                    while not over.is_set():
                        if rng.random() < 0.3:
                            await self._delete(row, rng.random() < 0.5)
                        full = (await row.topic(BLOCKED)).partitions[0]
                        if full.last >= full.first:
                            await row.prune(BLOCKED, rng.randint(full.first, full.last))
                        await trio.sleep(rng.uniform(0.02, 0.4))
            except DuckrowError:
                await trio.sleep(0.05)

    async def _delete(self, row: Client, is_small: bool) -> None:
        try:
            await row.delete_topic(DELETED)
            if is_small:
                await row.create_topic(DELETED, max_entries=3, when_full="block")
        except (NotFound, Exists):
            pass

    async def _strike(self, healed: trio.Event) -> None:
        town, rng = self._town, random.Random(self._rng.random())
        world = town.world
        while not healed.is_set():
            await trio.sleep(rng.choice((0.01, 0.05, 0.2, 0.5, 1.0)))
            kind, id_ = rng.choice(self.kinds), rng.choice(IDS)
            match kind:
                case "reset":
                    world.net.reset_some(0.5)
                case "node" | "bridge" | "both" | "power":
                    for name in {"node": "n", "bridge": "m"}.get(kind, "nm"):
                        if world.host(f"{name}{id_}").alive:
                            world.kill(f"{name}{id_}", power=kind == "power")
                    await trio.sleep(rng.choice((0.0, 0.01, 0.1, 0.5, 2.0)))
                    town.start(id_)
                case "cut":
                    town.cut_off(id_)
                    if rng.random() < 0.5:
                        await trio.sleep(rng.choice((0.1, 0.5, 2.0, 4.0)))
                        world.net.heal()
                case "heal":
                    world.net.heal()
                case "slow":
                    latency = rng.choice((0.0, 0.0, 0.01, 0.3))
                    world.hosts[f"m{id_}"].media.sync_latency = latency
                case "full":
                    media = world.hosts[f"m{id_}"].media
                    media.capacity = rng.choice((ROOM, media.used + rng.randint(0, 1 << 15)))
                case "image" if self._all_know():
                    town.bridges[id_].need_image()
                case "blank" if self._all_know():
                    del town.nodes[id_]
                    if world.host(f"n{id_}").alive:
                        world.kill(f"n{id_}")
                    world.host(f"n{id_}").media.wipe()
                    town.start(id_)
        world.net.heal()
        for id_ in IDS:
            media = world.hosts[f"m{id_}"].media
            media.sync_latency, media.capacity = 0.0, ROOM
            town.start(id_)


def play(seed: int, row: Applied) -> Told:
    found: list[Told] = []

    async def use(town: Town) -> None:
        days = Days(town, seed, row)
        found.append(days.told)
        await days.run()

    run(use, seed, ENDS, random.Random(seed).choice((0.0, 0.25)))
    problems = [*problems_of(found[0], row)]
    assert not problems, "\n".join(problems[:4])
    return found[0]
