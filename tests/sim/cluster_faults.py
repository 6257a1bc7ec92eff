"""Faults of a simulated cluster: hands that draw, and *snipers*, aimed at moments of a process.

Below level fsync what may be lost is bounded by what the level promises to survive: a machine loses
its memory only while all others are well.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from duckrow.bridge import effects as do
from duckrow.bridge.process import Bridge
from duckrow.node.row import View
from duckrow.node.storeoptions import FSYNC, MEMORY, WRITE

from .cluster_cables import Cables
from .cluster_disks import AWAY_SECONDS, Disks
from .cluster_machine import Machine
from .cluster_operator import Operator
from .cluster_plan import ClusterPlan
from .workload import Observed
from .world import Host, World


class ClusterFate:
    """One hand; a plan may have several, which share the machines."""

    def __init__(
        self,
        world: World,
        plan: ClusterPlan,
        seen: Observed,
        machines: Mapping[int, Machine],
        operator: Operator,
        hand: int,
    ) -> None:
        self._world, self._plan, self._seen, self._machines = world, plan, seen, machines
        self._rng = world.rng("fate", hand)
        self._aim = world.rng("sniper", hand)
        self.holds_fire = False
        self._operator = operator
        self.disks = Disks(
            plan,
            seen,
            machines,
            self._rng,
            lambda machine: self._may_kill(machine, power=True),
            self.power,
        )
        self._cables = Cables(world.net, plan, machines, self._rng)
        self.healed = False
        if not hand:
            for machine in machines.values():
                self._watch_crashes(machine, machine.bridge_host)
                self._watch_crashes(machine, machine.node_host)

    async def run(self) -> None:
        rng = self._rng
        end = trio.current_time() + self._plan.seconds
        while trio.current_time() < end:
            await trio.sleep(rng.uniform(0.2, 1.5) * self._plan.tempo)
            if not self._plan.faults:
                continue
            kind, hold = rng.choice(self._plan.faults), rng.uniform(0.1, 1.5) * self._plan.tempo
            self._world.note("fault", kind)
            await self._strike(kind, hold, rng.choice([*self._machines.values()]))
            if rng.random() < 0.6:
                self.heal_net()
            if rng.random() < 0.5:
                self.heal_disks()
            if rng.random() < 0.8:
                self.revive()

    # -- healing ------------------------------------------------------------------------------

    def heal_net(self) -> None:
        self._cables.heal()

    def heal_disks(self) -> None:
        for host in self._hosts():
            media = host.media
            media.capacity = 1 << 40
            media.sync_latency, media.sync_jitter = self._plan.sync_seconds, 0.0

    def calm(self) -> None:
        """For good."""
        self.healed = True
        self.heal_net()
        self.heal_disks()
        for host in self._hosts():
            host.media.calm()
        for name, host in self._world.hosts.items():
            if host.life.paused:
                self._world.resume(name)
        self.revive()
        if not self._seen.stop.is_set():
            self.revive_clients()

    def revive(self) -> None:
        for machine in self._machines.values():
            machine.start()

    def revive_clients(self) -> None:
        for name, program in self._seen.programs.items():
            if not self._world.hosts[name].alive:
                self._world.start(name, program)

    # -- what may be lost ---------------------------------------------------------------------

    def _may_forget(self, machine: Machine) -> bool:
        """All others act in the newest view, so each of them remembers what it has acked, undamaged.

        As far as it knows: one of them has no damage that is still to be met, either.  And no next view
        is under way, of which some of them may not be members.
        """
        if any(
            each.bridge is not None and each.bridge.member.standing.acceptor.accepted is not None
            for each in self._machines.values()
        ):
            return False
        votes = self._operator.votes
        others = [m for m in self._machines.values() if m is not machine and votes(m.id)]
        views = {
            each.bridge.status().view for each in others if each.active and each.bridge is not None
        }
        newest = self._operator.view()
        return (
            newest is not None
            and views == {newest.id}
            and any(each.holds_data and not each.is_damaged for each in others)
            and all(
                (not each.holds_data or (each.active and _is_exact(each)))
                and not each.bridge_host.life.paused
                and not each.bridge_host.media.is_armed
                for each in others
            )
        )

    def _may_kill(self, machine: Machine, *, power: bool = False) -> bool:
        level = self._operator.level
        if level == FSYNC or (level == WRITE and not power):
            return True
        return self._may_forget(machine)

    def kill(self, machine: Machine, *, bridge: bool = False, node: bool = False) -> None:
        if bridge and not self._may_kill(machine):
            bridge = False
        machine.kill(bridge=bridge, node=node)

    def power(self, machine: Machine) -> None:
        if self._may_kill(machine, power=True):
            machine.power()

    def _watch_crashes(self, machine: Machine, host: Host) -> None:
        def crash() -> None:
            if host.crash_is_power_loss and self._may_kill(machine, power=True):
                machine.power()
            else:
                self._world.kill(host.name)

        host.media.on_crash = crash

    # -- drawn --------------------------------------------------------------------------------

    def _hosts(self) -> list[Host]:
        pairs = [(each.bridge_host, each.node_host) for each in self._machines.values()]
        return [host for pair in pairs for host in pair]

    async def _strike(self, kind: str, hold: float, machine: Machine) -> None:
        rng, world = self._rng, self._world
        bridge, node = machine.bridge_host, machine.node_host
        match kind:
            case "kill-bridge":
                self.kill(machine, bridge=True)
            case "kill-node":
                self.kill(machine, node=True)
            case "kill-both":
                self.kill(machine, bridge=True, node=True)
            case "power":
                self.power(machine)
            case "kill-all" | "kill-all-bridges" | "kill-all-nodes":
                for each in self._machines.values():
                    self.kill(
                        each, bridge=kind != "kill-all-nodes", node=kind != "kill-all-bridges"
                    )
            case "power-all":
                for each in self._machines.values():
                    self.power(each)
            case "in-a-row":
                for _ in range(rng.randint(2, 5)):
                    self.kill(machine, bridge=rng.random() < 0.7, node=rng.random() < 0.3)
                    if rng.random() < 0.2:
                        self.power(machine)
                    await trio.sleep(rng.uniform(0.0, 0.1))
                    machine.start()
                    await trio.sleep(rng.choice((0.001, 0.05, 0.3, 0.6)))
            case "crash-bridge" | "crash-node":
                host = bridge if kind == "crash-bridge" else node
                if host is bridge and self._operator.level == MEMORY:
                    self.kill(machine, bridge=True)  # when a crash point is met it may matter
                elif host.alive and (host is node or self._may_kill(machine)):
                    host.crash_is_power_loss = rng.random() < 0.6
                    host.media.crash_before(rng.randint(1, 20), part=rng.random() < 0.5)
                    await trio.sleep(0.3)
            case "pause-bridge":
                await self._pause([bridge], hold)
            case "pause-node":
                await self._pause([node], hold)
            case "pause-machine":
                await self._pause([bridge, node], hold)
            case "stop-bridge":
                machine.leave()
                await trio.sleep(hold)
            case "stop-node":
                machine.stop()
                await trio.sleep(hold)
            case "client-kill":
                names = self._some_clients()
                for name in names:
                    world.kill(name, power=rng.random() < 0.3)
                await trio.sleep(hold)
                self.revive_clients()
            case "client-pause":
                await self._pause([world.hosts[name] for name in self._some_clients()], hold)
            case "client-cut":
                for name in self._some_clients():
                    world.net.partition([name], [machine.node_name])
                await trio.sleep(hold)
            case "skew":
                jump = rng.randint(-3_000_000, 3_000_000)
                bridge.skew_us += jump
                node.skew_us += jump
                self._seen.history.skew += abs(jump) / 1e6
            case "voters":
                self._operator.wish(rng)
            case "settings":
                self._operator.wish_setting(rng)
            case "away":
                await self._stay_away(machine, rng.uniform(*AWAY_SECONDS))
            case "cut" | "one-way" | "isolate" | "partition" | "reset" | "lossy" | "slow-link":
                await self._cables.strike(kind, hold, machine)
            case _:
                await self.disks.strike(kind, hold, machine)

    async def _stay_away(self, machine: Machine, seconds: float) -> None:
        """So long that others may have forgotten what comes next there."""
        if machine.stays_dead or not self._may_kill(machine):
            return
        machine.stays_dead = True
        machine.kill(bridge=True, node=True)
        await trio.sleep(seconds)
        machine.stays_dead = False
        machine.start()

    async def _pause(self, hosts: list[Host], hold: float) -> None:
        mine = [host for host in hosts if host.alive and not host.life.paused]
        lives = [host.life for host in mine]
        for host in mine:
            self._world.pause(host.name)
        await trio.sleep(hold * self._rng.choice((0.3, 1.0, 3.0)))
        for host, life in zip(mine, lives, strict=True):
            if host.life is life and life.paused:
                self._world.resume(host.name)

    def _some_clients(self) -> list[str]:
        hosts = self._world.hosts
        return [
            name for name in self._seen.programs if hosts[name].alive and self._rng.random() < 0.5
        ]

    # -- aimed --------------------------------------------------------------------------------

    def watch_bridge(self, machine: Machine, bridge: Bridge) -> None:
        """Looks at what the protocol wants done, before it is."""
        if not self._plan.snipers:
            return
        take = bridge.member.take_effects

        def taken(now: float, stamp: int) -> list[do.Effect]:
            effects = take(now, stamp)
            if not self.healed:
                for effect in effects:
                    moment = _moment(effect, machine.id)
                    if moment:
                        self.moment(machine, moment)
            return effects

        bridge.member.take_effects = taken  # type: ignore[method-assign]

    def moment(self, machine: Machine, moment: str) -> None:
        aim = self._aim
        chance = self._plan.snipers.get(moment)
        if chance is None or self.healed or self.holds_fire or aim.random() >= chance:
            return
        self._world.note("sniper", moment)
        if moment.endswith("applied") or moment == "told-staged":
            host = machine.node_host
            self._soon(aim.choice((0.0, 0.0, 0.0005)), self.kill_one, machine, host)
            return
        host = machine.bridge_host
        how = aim.choice(("before", "amid", "after", "pause"))
        if self._operator.level == MEMORY and how in ("before", "amid"):
            how = "after"  # else it is met later, when it may matter
        if how == "pause":
            self._soon(0.0, self._pause_for, host, aim.uniform(0.1, 1.5))
        elif self._may_kill(machine):
            host.crash_is_power_loss = aim.random() < 0.5
            if how == "after":
                self._soon(aim.choice((0.0, 0.0001, 0.002)), self.kill_one, machine, host)
            else:
                most = 1 if how == "before" else 4
                host.media.crash_before(aim.randint(1, most), part=aim.random() < 0.5)

    def kill_one(self, machine: Machine, host: Host) -> None:
        if not host.alive or self.healed:
            return
        if host is machine.node_host:
            machine.kill(node=True)
        elif host.crash_is_power_loss:
            self.power(machine)
        else:
            self.kill(machine, bridge=True)

    def _pause_for(self, host: Host, seconds: float) -> None:
        if not host.alive or host.life.paused or self.healed:
            return
        life = host.life
        self._world.pause(host.name)

        def resume() -> None:
            if host.life is life and life.paused:
                self._world.resume(host.name)

        self._soon(seconds, resume)

    def _soon(self, seconds: float, act: object, *arguments: object) -> None:
        clock = self._world.clock
        clock.call_at(clock.now + seconds, act, *arguments)  # type: ignore[arg-type]


def _moment(effect: do.Effect, id_: int) -> str:
    match effect:
        case do.Registered():
            return "promised" if effect.accepted is None else "accepted"
        case do.Learned():
            return "learned"
        case do.Place(_, content):
            return "mark" if isinstance(content, View) else "placed"
        case do.Journal(bundle):
            return "staged" if bundle.origin == id_ and not bundle.view else ""
        case do.Settled():
            return "settled"
        case do.Sync():
            return "synced"
    return ""


def _is_exact(machine: Machine) -> bool:
    """And stays so: a bridge whose disk has failed is about to end, and forgets what it has acked."""
    bridge = machine.bridge
    return bridge is not None and not machine.disk_failed and bridge.member.standing.exact
