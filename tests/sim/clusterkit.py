"""Several machines with a bridge each, a state made from the row, and somebody who produces.

    cluster = Cluster(world, 3)
    cluster.start_all()
    await cluster.settled()          # all have one row, and one state

The row is checked as it grows: nobody ever places another item at a position than the first who had
it; and what was answered is in every state at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio

from duckrow.bridge.founding import Charter, Listed
from duckrow.bridge.links import Neighbour
from duckrow.bridge.options import BridgeOptions
from duckrow.bridge.process import Bridge
from duckrow.node import columns, makers
from duckrow.node.apply import apply
from duckrow.node.capture import state_hash
from duckrow.node.effects import Answer, Code
from duckrow.node.env import Env
from duckrow.node.errors import NoQuorum
from duckrow.node.state import State

from .storekit import small
from .world import World

PORT = 4100
SECRET = b"a secret of the cluster"
Links = Mapping[int, tuple[int, ...]]
BODY = columns.encode([b"one", b"two", b"three"])


def name(id_: int) -> str:
    return f"m{id_}"


def mesh(count: int) -> Links:
    ids = range(1, count + 1)
    return {i: tuple(j for j in ids if j != i) for i in ids}


def chain(count: int) -> Links:
    return {i: tuple(j for j in (i - 1, i + 1) if 1 <= j <= count) for i in range(1, count + 1)}


def options_of(
    env: Env,
    links: Links,
    id_: int,
    level: str,
    *,
    observers: tuple[int, ...] = (),
    standby: Links | None = None,
) -> BridgeOptions:
    founders = tuple((other, 1, True) for other in links if other not in observers)
    charter = Charter(founders, env.rng.randbytes(16), env.rng.getrandbits(63), level)
    return BridgeOptions(
        id=id_,
        port=PORT,
        neighbours={i: Neighbour(i, name(i), PORT) for i in links[id_]},
        standby={i: Neighbour(i, name(i), PORT) for i in (standby or {}).get(id_, ())},
        secret=SECRET,
        store=small(level=level, segment_bytes=1 << 16),
        charter=None if id_ in observers else charter,
        listed={i: Listed(name(i), int(i not in observers), witness=False) for i in links},
    )


@attrs.define
class Cluster:
    world: World
    links: Links
    level: str = "fsync"
    pause: float = 0.02  # of a producer, between two batches
    observers: tuple[int, ...] = ()
    standby: Links | None = None
    row: dict[int, int] = attrs.field(factory=dict)  # position -> item crc
    answered: dict[tuple[bytes, int], None] = attrs.field(factory=dict)
    machines: dict[int, OneMachine] = attrs.field(factory=dict)
    notes: list[str] = attrs.field(factory=list)

    @property
    def running(self) -> list[int]:
        return [id_ for id_ in self.links if self.world.host(name(id_)).alive]

    def start(self, id_: int) -> None:
        self.world.start(name(id_), OneMachine(self, id_).main)

    def start_all(self) -> None:
        for id_ in self.links:
            self.start(id_)

    def kill(self, id_: int, *, power: bool = False) -> None:
        self.machines.pop(id_, None)
        self.world.kill(name(id_), power=power)

    def wipe(self, id_: int) -> None:
        """The disk of a machine that does not run."""
        self.world.host(name(id_)).media.wipe()

    async def settled(self, seconds: float = 30) -> None:
        """Producers stop; then every machine has the same row, and nothing is under way."""
        for machine in self.machines.values():
            machine.producing = False
        with trio.fail_after(seconds):
            while True:
                await trio.sleep(0.3)
                ends = {each.position for each in self.machines.values()}
                if len(ends) == 1 == len({each.end for each in self.machines.values()} | ends):
                    busy = [each for each in self.machines.values() if each.busy]
                    if len(self.machines) == len(self.links) and not busy:
                        break
        self.check()

    async def until_active(self, *ids: int, seconds: float = 20) -> None:
        with trio.fail_after(seconds):
            while not all(
                id_ in self.machines and self.machines[id_].bridge.status().active
                for id_ in ids or [i for i in self.links if i not in self.observers]
            ):
                await trio.sleep(0.05)

    def check(self) -> None:
        machines = list(self.machines.values())
        assert len({machine.bridge.store.digest for machine in machines}) == 1
        assert len({state_hash(machine.state) for machine in machines}) == 1
        for machine in machines:
            assert [key for key in self.answered if key not in machine.ordered] == []


class OneMachine:
    """One life of the process: bridge and node in one."""

    def __init__(self, cluster: Cluster, id_: int) -> None:
        self.cluster, self.id = cluster, id_
        self.state = State()
        self.producing = True
        self.busy = False
        self.ordered: dict[tuple[bytes, int], None] = {}  # that got numbers, as applied here
        self._waiting: dict[int, trio.Event] = {}  # seq
        self._pid = b""
        self.stopping = trio.Event()  # set: it ends in order

    @property
    def position(self) -> int:
        return self.state.position

    @property
    def end(self) -> int:
        return self.bridge.store.position

    async def main(self, env: Env) -> None:
        cluster, id_ = self.cluster, self.id
        observers, standby = cluster.observers, cluster.standby
        options = options_of(
            env, cluster.links, id_, cluster.level, observers=observers, standby=standby
        )
        self._pid = env.rng.randbytes(16)
        self.bridge = await Bridge.open(env, options, self._note)
        cluster.machines[id_] = self
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.bridge.run)
            nursery.start_soon(self._apply)
            if id_ not in cluster.observers:
                nursery.start_soon(self._produce, env)
            await self.stopping.wait()
            await self.bridge.leave()
            nursery.cancel_scope.cancel()
        await self.bridge.close()
        cluster.machines.pop(id_, None)

    def _note(self, _level: int, template: str, /, *args: object, exc_info: object = None) -> None:
        now = self.cluster.world.clock.now
        self.cluster.notes.append(f"{now:.3f} m{self.id} {template % args}")

    async def _apply(self) -> None:
        follower = self.bridge.follow(0)
        self.bridge.on_round = follower.wake
        while True:
            for item in await follower.take():
                assert item.position == self.state.position + 1
                known = self.cluster.row.setdefault(item.position, item.crc)
                assert known == item.crc, f"m{self.id} has another item {item.position}"
                for effect in apply(self.state, item):
                    if isinstance(effect, Answer) and effect.result.code == Code.ORDERED:
                        self.ordered[effect.pid, effect.seq] = None
                        if effect.pid == self._pid and effect.seq in self._waiting:
                            self._waiting.pop(effect.seq).set()

    async def _produce(self, env: Env) -> None:
        seq = 0
        while True:
            await trio.sleep(self.cluster.pause * 2 * env.rng.random())
            if not self.producing or (not self.bridge.status().active and env.rng.random() < 0.9):
                continue
            seq += 1
            turn = makers.Turn(self._pid, seq=seq, time=env.wall_us())
            self.busy = True
            answer = self._waiting[seq] = trio.Event()
            try:
                self.bridge.submit([makers.produce(turn, "rides", BODY, 3)])
                await self.bridge.turn()
            except NoQuorum:
                seq -= 1
                self.busy = False
                continue
            await answer.wait()
            self.cluster.answered[self._pid, seq] = None
            self.busy = False
