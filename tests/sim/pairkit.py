"""Pairs: several machines with a bridge and a node each, two processes, and somebody who produces.

Each process is a host of its own here, `m1` the bridge and `n1` its node, since a host has one process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import attrs
import trio

from duckrow.bridge.attach import Attach
from duckrow.bridge.process import Bridge
from duckrow.node import makers
from duckrow.node.alone import Options
from duckrow.node.bridged import open_bridged
from duckrow.node.bridgedrow import ReplacedError
from duckrow.node.capture import state_hash
from duckrow.node.effects import Code, Result
from duckrow.node.env import Env
from duckrow.node.errors import Full, NoQuorum
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.reading import Pull
from duckrow.node.storeoptions import StoreOptions
from sim.clusterkit import BODY, Links, mesh, options_of
from sim.media import Media
from sim.world import World

NODE_PORT = 4200


@attrs.define
class Split:
    world: World
    links: Links
    level: str = "fsync"
    snapshot_items: int = 50
    observers: tuple[int, ...] = ()  # have no vote, and produce nothing
    scrub_seconds: float = 0.0  # 0: never
    keep: int = 0  # entries of the topic; 0: all.  With it, rows go as soon as they may
    bridges: dict[int, Bridge] = attrs.field(factory=dict)
    nodes: dict[int, Keeper] = attrs.field(factory=dict)
    results: list[Result] = attrs.field(factory=list)  # of what was answered
    producing: bool = True
    stops: dict[int, trio.Event] = attrs.field(factory=dict)
    busy: dict[int, None] = attrs.field(factory=dict)
    replaced: list[int] = attrs.field(factory=list)  # nodes whose row became another one
    notes: list[str] = attrs.field(factory=list)

    def start_bridge(self, id_: int) -> None:
        async def main(env: Env) -> None:
            options = options_of(env, self.links, id_, self.level, observers=self.observers)
            store = attrs.evolve(options.store, scrub_seconds=self.scrub_seconds)
            options = attrs.evolve(options, store=store)
            if self.keep:
                store = attrs.evolve(
                    store,
                    segment_bytes=1 << 13,
                    followable_bytes=1 << 13,
                    hard_reserve_bytes=1 << 17,
                )
                options = attrs.evolve(options, store=store)
            note = partial(self._note, f"m{id_}")
            bridge = await Bridge.open(env, options, note)
            attach = Attach(bridge, note)
            self.on_bridge(bridge)
            self.bridges[id_] = bridge
            async with trio.open_nursery() as nursery:
                await nursery.start(env.net.serve, attach.handle, NODE_PORT)
                nursery.start_soon(bridge.run)

        self.world.start(f"m{id_}", main)

    def on_bridge(self, bridge: Bridge) -> None:
        """For a scenario that looks into it, or makes it rare."""

    def start_node(self, id_: int) -> None:
        async def main(env: Env) -> None:
            housekeeping = HousekeepingOptions(
                snapshot_items=self.snapshot_items,
                snapshot_commands=self.snapshot_items,  # also where items are seldom counted (rare.py)
                followable_bytes=1 << 13,
            )
            store = StoreOptions(scrub_seconds=self.scrub_seconds)
            options = Options(store=store, housekeeping=housekeeping)
            note = partial(self._note, f"n{id_}")
            stop = self.stops[id_] = trio.Event()
            while not stop.is_set():
                try:
                    async with open_bridged(env, f"m{id_}", NODE_PORT, options, note) as keeper:
                        self.nodes[id_] = keeper
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(self.produce, env, id_, keeper)
                            await stop.wait()
                            nursery.cancel_scope.cancel()
                except* ReplacedError:
                    self.replaced.append(id_)
                    self.nodes.pop(id_, None)
                    self.busy.pop(id_, None)

        self.world.start(f"n{id_}", main)

    def start_all(self) -> None:
        for id_ in self.links:
            self.start_bridge(id_)
            self.start_node(id_)

    def kill(self, what: str, id_: int, *, power: bool = False) -> None:
        (self.bridges if what == "m" else self.nodes).pop(id_, None)
        self.busy.pop(id_, None) if what == "n" else None
        self.world.kill(f"{what}{id_}", power=power)

    async def stop_node(self, id_: int) -> None:
        """In order."""
        self.stops[id_].set()
        with trio.fail_after(10):
            while self.world.host(f"n{id_}").alive:
                await trio.sleep(0.01)
        del self.nodes[id_]

    def lose_disk(self, host_name: str, seed: int = 99) -> None:
        """What was on it is gone; its process must not run."""
        host = self.world.host(host_name)
        note, host.media = host.media.note, Media(seed)
        host.media.note, host.media.on_crash = note, host._crash

    def _note(self, who: str, _level: int, template: str, /, *args: object, **_: object) -> None:
        self.notes.append(f"{self.world.clock.now:.3f} {who} {template % args}")

    async def produce(self, env: Env, id_: int, keeper: Keeper) -> None:
        pid, seq = keeper.fresh_pid(), 0
        if self.keep and keeper.state.topic("rides") is None:
            turn = makers.Turn(pid, seq=1, time=env.wall_us())
            await keeper.order(makers.create(turn, "rides", {"max_entries": self.keep}))
        while True:
            await trio.sleep(0.1 * env.rng.random())
            if not self.producing or id_ in self.observers:
                continue
            seq += 1
            self.busy[id_] = None
            turn = makers.Turn(pid, seq=seq, time=env.wall_us())
            try:
                result = await keeper.order(makers.produce(turn, "rides", BODY, 3))
            except (Full, NoQuorum):
                seq -= 1
            else:
                assert result.code == Code.ORDERED
                assert not result.duplicate
                self.results.append(result)
            self.busy.pop(id_, None)

    async def until(self, *, seconds: float = 30) -> None:
        with trio.fail_after(seconds):
            while not (
                len(self.nodes) == len(self.bridges) == len(self.links)
                and all(
                    node.row.status().active
                    for id_, node in self.nodes.items()
                    if id_ not in self.observers
                )
            ):
                await trio.sleep(0.1)

    async def end(self) -> None:
        """All nodes have one state, and give the same entries to readers."""
        self.producing = False
        with trio.fail_after(30):
            while True:
                await trio.sleep(0.3)
                ends = {bridge.store.position for bridge in self.bridges.values()}
                ends |= {node.state.position for node in self.nodes.values()}
                if len(ends) == 1 and not self.busy:
                    break
        assert len({state_hash(node.state) for node in self.nodes.values()}) == 1
        read = [await everything(node) for node in self.nodes.values()]
        assert all(each == read[0] for each in read)
        numbers = [n for first, count in read[0] for n in range(first, first + count)]
        begin = numbers[0] if self.keep else 1
        assert numbers == list(range(begin, begin + len(numbers)))
        for result in self.results:
            assert result.first < begin or (result.first, result.count) in read[0]
        for id_, bridge in self.bridges.items():
            with trio.move_on_after(0.5):
                while bridge.store.chronicle.staged:  # also a clock that is just on its way
                    await trio.sleep(0.01)
            assert bridge.store.chronicle.staged == {}, (
                f"m{id_}: all is applied, nothing is settled"
            )


async def everything(node: Keeper) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    after = 0
    while True:
        pulled = await node.reader.pull(Pull("rides", after=after, limit=100_000))
        if not pulled.batches:
            return found
        for batch in pulled.batches:
            assert bytes(batch.body) == BODY
            found.append((batch.first, batch.count))
            after = batch.first + batch.count - 1


S = TypeVar("S", bound=Split)


def play(
    seed: int,
    script: Callable[[Split], Awaitable[None]],
    level: str = "fsync",
    tolerate: tuple[type[Exception], ...] = (),
    links: Links | None = None,
    **more: Any,
) -> Split:
    world = World(seed, tolerate=tolerate)
    split = Split(world, mesh(3) if links is None else links, level, **more)
    return play_in(split, script)


def play_in(split: S, script: Callable[[S], Awaitable[None]]) -> S:
    async def main(_world: World) -> None:
        try:
            await script(split)
        except BaseException as error:
            error.add_note("\n".join(split.notes[-400:]))
            raise

    split.world.run(main)
    assert split.world.handler_errors == []
    return split
