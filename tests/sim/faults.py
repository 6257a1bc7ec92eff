"""Faults: the hands of fate in a simulation, each drawing from the kinds that the seed has chosen.

Below level fsync a loss of power may take what was acknowledged; that is told to the history, so
that the checker excuses just that.

Damage comes in two kinds.  `flip` hits what the node can do without: sealed segments that a snapshot
covers, and one snapshot; the row has to go on.  `flip-any` and `spoil` hit any file: entries may be
damaged, the row may end, the node may refuse to start, as long as it is told; nothing may be wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from duckrow.node.storeoptions import FSYNC

from .plan import Plan
from .service import NODE
from .workload import Observed
from .world import Host, World


class Fate:
    """One hand; a plan may have several."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        seen: Observed,
        boot: Callable[[], None],
        stop: Callable[[], None],
        hand: int,
    ) -> None:
        self._world, self._plan, self._seen = world, plan, seen
        self._boot, self._stop = boot, stop
        self._rng = world.rng("fate", hand)
        self._host.media.on_crash = self._crash

    @property
    def _host(self) -> Host:
        return self._world.hosts[NODE]

    async def run(self) -> None:
        rng = self._rng
        end = trio.current_time() + self._plan.seconds
        while trio.current_time() < end:
            await trio.sleep(rng.uniform(0.2, 1.5) * self._plan.tempo)
            if not self._plan.faults:
                continue
            await self._strike(
                rng.choice(self._plan.faults), rng.uniform(0.1, 1.5) * self._plan.tempo
            )
            if rng.random() < 0.7:
                self.heal()
            if rng.random() < 0.8:
                self.revive()

    def heal(self) -> None:
        media = self._host.media
        self._world.net.heal()
        self._world.net.calm()
        media.capacity = 1 << 40
        media.sync_latency, media.sync_jitter = self._plan.sync_seconds, 0.0

    def calm(self) -> None:
        """For good."""
        self.heal()
        media = self._host.media
        media.calm()
        for name, host in self._world.hosts.items():
            if host.life.paused:
                self._world.resume(name)
        self.revive()
        if not self._seen.stop.is_set():
            self.revive_clients()

    def revive(self) -> None:
        if not self._host.alive:
            self._boot()

    def revive_clients(self) -> None:
        for name, program in self._seen.programs.items():
            if not self._world.hosts[name].alive:
                self._world.start(name, program)

    def _some_clients(self) -> list[str]:
        hosts = self._world.hosts
        return [
            name for name in self._seen.programs if hosts[name].alive and self._rng.random() < 0.5
        ]

    def kill(self, *, power: bool) -> None:
        if power:
            self.power_fails()
        self._world.kill(NODE, power=power)

    def power_fails(self) -> None:
        if self._plan.level != FSYNC:
            self._seen.lose()
        elif self._seen.fresh is not None:
            # Nothing behind it may say any more that the end of this file was whole once.
            self._seen.lose()
            self._seen.ambiguous = True

    def _crash(self) -> None:
        """The disk has come to its crash point."""
        self.kill(power=self._host.crash_is_power_loss)

    async def _strike(self, kind: str, hold: float) -> None:
        rng, host, media = self._rng, self._host, self._host.media
        self._world.note("fault", kind)
        match kind:
            case "kill" | "power" if host.alive:
                self.kill(power=kind == "power")
            case "stop" if host.alive:
                self._stop()
                await trio.sleep(hold)
            case "in-a-row":
                for _ in range(rng.randint(2, 4)):
                    if host.alive:
                        self.kill(power=rng.random() < 0.5)
                    self.revive()
                    await trio.sleep(rng.uniform(0.0, 0.05))
            case "crash-point" if host.alive:
                host.crash_is_power_loss = rng.random() < 0.7
                media.crash_before(rng.randint(1, 20), part=rng.random() < 0.5)
                await trio.sleep(0.3)
            case "pause" if host.alive and not host.life.paused:
                self._world.pause(NODE)
                await trio.sleep(hold)
                if host.life.paused:
                    self._world.resume(NODE)
            case "client-kill":
                for name in self._some_clients():
                    self._world.kill(name, power=rng.random() < 0.3)
                await trio.sleep(hold)
                self.revive_clients()
            case "client-pause":
                names = self._some_clients()
                for name in names:
                    self._world.pause(name)
                await trio.sleep(hold)
                for name in names:
                    self._world.resume(name)
            case "cut" | "one-way":
                for name in list(self._world.hosts):
                    if name != NODE and rng.random() < 0.6:
                        self._world.net.cut(name, NODE)
                        if kind == "cut":
                            self._world.net.cut(NODE, name)
                await trio.sleep(hold)
            case "reset":
                self._world.net.reset_some(rng.random())
            case "lossy":
                self._world.net.trouble(NODE, loss=rng.uniform(0.01, 0.3))
                await trio.sleep(hold)
            case "slow-net":
                self._world.net.trouble(NODE, delay=rng.uniform(0.01, 0.2))
                await trio.sleep(hold)
            case "slow-sync":
                media.sync_latency, media.sync_jitter = rng.uniform(0.005, 0.1), 0.02
                await trio.sleep(hold)
            case "write-error":
                media.write_eio = 1
                self._seen.doubted |= self._plan.level != FSYNC
                await trio.sleep(hold)
                media.write_eio = 0
            case "names-error":
                media.names_eio = 1
                self._seen.doubted |= self._plan.level != FSYNC
                await trio.sleep(hold)
                media.names_eio = 0
            case "sync-error":
                media.sync_eio = 1
                self._seen.doubted |= self._plan.level != FSYNC
                await trio.sleep(hold)
                if not media.sync_eio and not host.alive and rng.random() < 0.5:
                    self._evict()
                if not media.sync_eio and host.alive:
                    self.kill(power=True)  # if it went on as if nothing had been, it shows now
                # What an operator would do; and then the power goes.
                if not host.alive and rng.random() < 0.5:
                    self.revive()
                    await trio.sleep(rng.uniform(0.0, 0.5))
                    if host.alive:
                        self.kill(power=True)
            case "read-error":
                media.read_eio = rng.randint(1, 2)
                self._seen.troubled = True
                await trio.sleep(hold)
                media.read_eio = 0
            case "disk-full":
                media.capacity = media.used + rng.randint(0, 64 * 1024)
                await trio.sleep(hold)
            case "skew":
                jump = rng.randint(-3_000_000, 3_000_000)
                host.skew_us += jump
                self._seen.history.skew += max(0, jump) / 1e6
            case "flip":
                self._flip(rng)
            case "flip-any" | "spoil":
                self._damage(rng, kind)

    def _evict(self) -> None:
        """The kernel drops what it holds of all files, and the failed sync left it nothing."""
        if self._plan.level != FSYNC:
            self._seen.lose()
        for path in self._host.media.paths():
            self._host.media.evict(path)

    def _damage(self, rng: random.Random, kind: str) -> None:
        """Anywhere; now and then nobody reads the file again for a while.

        Not in a row that has ended: that something had been there may be known from one place only.
        """
        if self._seen.ended:
            return
        host, media = self._host, self._host.media
        paths = [path for path in media.paths() if media.pages(path).cache.size]
        if not paths:
            return
        path = rng.choice(paths)
        if kind == "spoil":
            media.spoil(path, rng.randrange(media.pages(path).cache.size))
        else:
            media.flip(path)
        self._seen.flips += 1
        self._seen.wild = True
        if path == max((p for p in paths if p.endswith(".seg")), default=""):
            self._seen.fresh = path
        if host.alive and rng.random() < 0.8:
            self.kill(power=False)

    def _flip(self, rng: random.Random) -> None:
        """A bit of a file turns; the process is killed, so that it reads it again."""
        host = self._host
        targets = [path for path in host.media.paths() if self._may_flip(path)]
        if targets:
            path = rng.choice(targets)
            if host.media.pages(path).cache.size:
                host.media.flip(path)
                self._seen.snapshot_gone |= path.startswith("state/")
                self._seen.flips += 1
                if host.alive:
                    self.kill(power=False)

    def _may_flip(self, path: str) -> bool:
        folder, _, name = path.partition("/")
        if folder == "state":
            paths = self._host.media.paths()
            snapshots = [each for each in paths if each.startswith("state/snapshot")]
            # On a full disk there may be one alone, and the row reach back to that (decision 0009).
            is_spare = len(snapshots) > 1 or "row/00000001.seg" in paths
            return is_spare and path == max(snapshots, default="") and self._seen.flips == 0
        # With a snapshot gone, recovery needs more of the row; two losses at once are too many.
        return folder == "row" and name in self._seen.covered and not self._seen.snapshot_gone
