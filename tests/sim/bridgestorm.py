"""A storm at the way between nodes and their bridges: what nodes were given comes twice, late, or not at all.

    caller ─► node ──✕──► bridge ─► row        the connection is cut some times a second, the bridge has no
             again ─►                          room now and then, each of the two dies and comes back

Clients would send again and ask again, and so hide what a node says.  Here callers speak to it, and each
outcome is compared with what the row did in the end: refused is never written, accepted and told is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import trio

from duckrow.bridge.process import Bridge
from duckrow.node import makers
from duckrow.node.commands import Command
from duckrow.node.effects import Code, Result
from duckrow.node.env import Env
from duckrow.node.errors import DuckrowError, Full, NoQuorum
from duckrow.node.keeper import Keeper
from duckrow.node.storeoptions import FSYNC, LEVELS, MEMORY

from .applied import Applied
from .clusterkit import BODY, mesh
from .media import Folder
from .pairkit import Split, play_in
from .scenario import ENDS
from .world import World

ROUNDS = 120
CALM_SECONDS = 60.0  # till all act again
# How often what happens, of a hundred; what is left heals the network and the disks.
FAULTS = {
    "link": 55,
    "process": 24,
    "power": 2,
    "sync-error": 2,
    "slow-sync": 2,
    "image": 2,
    "index": 2,
    "new-disk": 1,
    "backup": 2,
    "cut": 2,
    "full": 2,
}
REFUSES, AGAIN, ACCEPTS = 0.15, 0.4, 0.3  # how likely
NOT_WRITTEN = NoQuorum, Full


@attrs.define
class Order:
    """One command, which its node is given once or twice."""

    node: int
    command: Command
    accepted: bool  # it is content with that
    outcomes: list[Result | Exception] = attrs.field(factory=list)

    @property
    def is_done(self) -> bool:
        return any(isinstance(o, Exception) or o.code != Code.WAITING for o in self.outcomes)


@attrs.define
class Storm(Split):
    rng: random.Random = attrs.field(factory=random.Random)
    orders: dict[bytes, Order] = attrs.field(factory=dict)  # by pid
    forgot: dict[int, None] = attrs.field(factory=dict)  # machines, what only they had
    backups: dict[int, Folder] = attrs.field(factory=dict)  # of disks of nodes, by machine
    is_calm: bool = False
    faults: Sequence[str] = tuple(FAULTS)

    def on_bridge(self, bridge: Bridge) -> None:
        submit = bridge.submit

        def refuse(commands: Sequence[Command]) -> None:
            if not self.is_calm and self.rng.random() < REFUSES:
                raise self.rng.choice(NOT_WRITTEN)("the dice say so")
            submit(commands)

        bridge.submit = refuse  # type: ignore[method-assign]

    # -- callers ------------------------------------------------------------------------------

    async def produce(self, env: Env, id_: int, keeper: Keeper) -> None:
        if self.keep and keeper.state.topic("rides") is None:
            turn = makers.Turn(keeper.fresh_pid(), seq=1, time=env.wall_us())
            try:
                await keeper.order(makers.create(turn, "rides", {"max_entries": self.keep}))
            except DuckrowError:
                pass  # another node makes it
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(0.1 * self.rng.random())
                may_be_taken = keeper.row.status().active or self.rng.random() < 0.1
                if self.producing and may_be_taken:
                    nursery.start_soon(self._order, env, id_, keeper)

    async def _order(self, env: Env, id_: int, keeper: Keeper) -> None:
        pid, accepted = keeper.fresh_pid(), self.rng.random() < ACCEPTS
        command = makers.produce(makers.Turn(pid, seq=1, time=env.wall_us()), "rides", BODY, 3)
        order = self.orders[pid] = Order(id_, command, accepted)
        try:
            key = keeper.submit(command, accepted=accepted)
        except NOT_WRITTEN as error:
            order.outcomes.append(error)
            return
        keeper.calls.tell(key, order.outcomes.append, accepted=accepted)
        if self.rng.random() < AGAIN:
            await trio.sleep(self.rng.expovariate(50.0))
            try:
                if not any(isinstance(outcome, Exception) for outcome in order.outcomes):
                    keeper.submit(command, accepted=accepted)
            except NOT_WRITTEN:
                pass  # of the copy; the first one is what it is

    # -- what happens -------------------------------------------------------------------------

    async def rage(self) -> None:
        kinds = [*self.faults, "heal"]
        weights = [FAULTS.get(kind, 10) for kind in kinds]
        for _ in range(ROUNDS):
            await trio.sleep(self.rng.expovariate(15.0))
            (kind,) = self.rng.choices(kinds, weights)
            self.strike(kind, self.rng.choice([*self.links]))

    def strike(self, kind: str, id_: int) -> None:
        world, rng = self.world, self.rng
        bridge_host, node_host = world.host(f"m{id_}"), world.host(f"n{id_}")
        runs = bridge_host.alive and node_host.alive and id_ in self.bridges and id_ in self.nodes
        match kind:
            case "link":
                world.net.reset_some(1.0, bridge_host.name, node_host.name)
            case "process":
                what = rng.choice("mn")
                if not world.host(f"{what}{id_}").alive:
                    self.revive(what, id_)
                elif what == "n" or self.level != MEMORY or self.may_forget(id_):
                    self.kill(what, id_)
            case "power" if runs and (self.level == FSYNC or self.may_forget(id_)):
                self.kill("m", id_, power=True)
                if self.level != FSYNC:
                    self.forgot[id_] = None
                self.kill("n", id_, power=True)
            case "sync-error" if self.level == FSYNC:
                bridge_host.media.sync_eio = 1
            case "slow-sync":
                bridge_host.media.sync_latency = rng.uniform(0.005, 0.1)
            case "image" if runs and self.others_know(id_):
                self.bridges[id_].need_image()
            case "index" if runs and self.others_know(id_):
                self.nodes[id_].row.lack()  # type: ignore[attr-defined]
            case "new-disk" if runs and self.others_know(id_) and self.may_forget(id_):
                self.kill("n", id_)
                node_host.media.wipe()
                if rng.random() < 0.5:
                    self.kill("m", id_)
                    bridge_host.media.wipe()
                    self.forgot[id_] = None
            case "backup" if runs and self.others_know(id_):
                self.kill("n", id_)
                if id_ in self.backups:
                    node_host.media.put_back(self.backups.pop(id_))
                else:
                    self.backups[id_] = node_host.media.backup()
            case "cut":
                one, two = rng.sample([*self.links], 2)
                world.net.cut(f"m{one}", f"m{two}")
            case "full":
                bridge_host.media.capacity = bridge_host.media.used + rng.randint(0, 1 << 15)
            case "heal":
                self.heal()

    def may_forget(self, id_: int) -> bool:
        """All others act in the newest view and have a whole memory of it, and no next view is under way."""
        bridges = [bridge for i, bridge in self.bridges.items() if self.world.host(f"m{i}").alive]
        standings = [bridge.member.standing for bridge in bridges]
        others = [each for each in standings if each.id != id_]
        newest = max((each.newest.id for each in standings), default=0)
        return (
            len(others) == len(self.links) - 1
            and all(each.active and each.exact for each in others)
            and {each.newest.id for each in others} == {newest}
            and all(each.acceptor.accepted is None for each in standings)
        )

    def others_know(self, id_: int) -> bool:
        """All other nodes have the state and the index: an image comes from them, and soon (OWN_SECONDS)."""
        others = [i for i in self.links if i != id_]
        return all(
            i in self.nodes
            and self.world.host(f"n{i}").alive
            and i in self.bridges
            and not self.bridges[i].member.standing.stateless
            for i in others
        )

    def revive(self, what: str, id_: int) -> None:
        """Also what ended by itself, since its disk failed."""
        (self.bridges if what == "m" else self.nodes).pop(id_, None)
        (self.start_bridge if what == "m" else self.start_node)(id_)

    def heal(self) -> None:
        self.world.net.heal()
        for id_ in self.links:
            media = self.world.host(f"m{id_}").media
            media.calm()
            media.capacity, media.sync_latency = 1 << 40, 0.0

    async def calm(self) -> None:
        self.world.net.calm()
        self.heal()
        self.is_calm = True
        with trio.fail_after(CALM_SECONDS):
            while not self.all_act():
                for id_ in self.links:
                    for what in "mn":
                        if not self.world.host(f"{what}{id_}").alive:
                            self.revive(what, id_)
                await trio.sleep(0.1)

    def all_act(self) -> bool:
        hosts = [self.world.host(f"{what}{id_}") for id_ in self.links for what in "mn"]
        return (
            all(host.alive for host in hosts)
            and len(self.nodes) == len(self.bridges) == len(self.links)
            and all(node.row.status().active for node in self.nodes.values())
        )

    # -- what must hold -----------------------------------------------------------------------

    def check(self, row: Applied) -> None:
        assert row.problems == []
        for pid, order in self.orders.items():
            done = row.done.get((pid, 1), [])
            errors = [each for each in order.outcomes if isinstance(each, Exception)]
            told = [each for each in order.outcomes if isinstance(each, Result)]
            assert len(done) <= 1, f"written twice: {order}, {done}"
            if any(isinstance(error, NOT_WRITTEN) for error in errors):
                assert not done, f"told that it was never written: {order}, {done}"
            for result in told:
                assert result.code in (Code.WAITING, Code.ORDERED), order
                may_be_gone = result.code == Code.WAITING and order.node in self.forgot
                assert done or may_be_gone, f"told to be there, and lost: {order}"
                if result.code == Code.ORDERED:
                    assert (result.first, result.count) == (done[0].first, done[0].count), order
        for id_, node in self.nodes.items():
            assert not [*node.row._unsettled], f"n{id_} waits for what is settled"  # type: ignore[attr-defined]
            there = {each.number for each in node.row.store.segments()}
            assert not {*node.numbers.installed} - there, f"n{id_} keeps the index of what is gone"


def storm(seed: int, row: Applied, level: str | None = None) -> Storm:
    rng = random.Random(seed)
    drawn = Storm(
        World(seed, tolerate=ENDS),
        mesh(3),
        rng.choice(LEVELS) if level is None else level,
        keep=rng.choice((0, 100)),
        rng=rng,
        faults=["link", *rng.sample([*FAULTS], rng.randint(2, 5))],
    )

    drawn.world.buggify = rng.choice((0.0, 0.25))

    async def script(storm: Storm) -> None:
        storm.start_all()
        await storm.until()
        await storm.rage()
        await storm.calm()
        await trio.sleep(1)
        storm.producing = False
        await trio.sleep(8)
        await storm.end()
        storm.check(row)

    return play_in(drawn, script)
