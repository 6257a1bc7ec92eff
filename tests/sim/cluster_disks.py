"""What may happen to the disks of a simulated cluster.

Damage, and the loss of a disk, is for one machine of a seed, the *victim*: the others have a majority
and all data without it, so everything has to come back from them.  Nor has it a majority with the
witnesses: as the only member of a view it would have the only copy, and damage may be met long after
it came.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import trio

from duckrow.bridge.process import Bridge
from duckrow.node.damage import Damage
from duckrow.node.scrub import at_once
from duckrow.node.segments import segment_number

from .cluster_machine import Machine
from .cluster_plan import DAMAGE, ClusterPlan
from .workload import Observed

MENDED_SECONDS = 60.0
AWAY_SECONDS = 2.0, 5.0
MayKill = Callable[[Machine], bool]  # losing its memory
LosePower = Callable[[Machine], None]


class Disks:
    def __init__(
        self,
        plan: ClusterPlan,
        seen: Observed,
        machines: Mapping[int, Machine],
        rng: random.Random,
        may_forget: MayKill,
        power: LosePower,
    ) -> None:
        self._plan, self._seen, self._machines, self._rng = plan, seen, machines, rng
        self._may_forget, self._power = may_forget, power

    async def strike(self, kind: str, hold: float, machine: Machine) -> None:
        rng = self._rng
        if kind in DAMAGE:
            if not self._plan.victim:
                return
            machine = self._machines[self._plan.victim]
        is_node = kind.startswith("node-")
        media = (machine.node_host if is_node else machine.bridge_host).media
        if not is_node and not self._may_forget(machine):
            return
        match kind.removeprefix("node-"):
            case "slow-sync":
                media.sync_latency, media.sync_jitter = rng.uniform(0.005, 0.3), 0.02
                await trio.sleep(hold)
            case "sync-error":
                media.sync_eio = 1
                await trio.sleep(hold)
                media.sync_eio = 0
                if rng.random() < 0.5:
                    self._power(machine)  # if it went on as if nothing had been, it shows now
            case "write-error":
                media.write_eio = 1
                await trio.sleep(hold)
                media.write_eio = 0
            case "names-error":
                media.names_eio = 1
                await trio.sleep(hold)
                media.names_eio = 0
            case "read-error":
                media.read_eio = rng.randint(1, 2)
                self._seen.troubled = True
                self._seen.hurt.add(machine.node_name)
                machine.misread |= not is_node
                await trio.sleep(hold)
                media.read_eio = 0
            case "full":
                media.capacity = media.used + rng.randint(0, 64 * 1024)
                await trio.sleep(hold)
            case "flip" | "spoil":
                self._damage(machine, kind)
            case "wipe":
                machine.lose_disks(bridge=not is_node)
                await trio.sleep(hold)

    def _damage(self, machine: Machine, kind: str) -> None:
        """Of any file; often the process has to read it again."""
        rng, seen = self._rng, self._seen
        is_node = kind.startswith("node-")
        media = (machine.node_host if is_node else machine.bridge_host).media
        paths = [path for path in media.paths() if media.pages(path).cache.size]
        if not paths:
            return
        seen.hurt.add(machine.node_name)
        seen.flips += 1  # entries may be told to be damaged, and intact elsewhere
        path = rng.choice(paths)
        if kind == "spoil":
            media.spoil(path, rng.randrange(media.pages(path).cache.size))
        else:
            media.flip(path)
        if is_node:
            machine.kill(node=True)
        elif rng.random() < 0.5:
            machine.kill(bridge=True, node=rng.random() < 0.5)

    async def until_mended(self) -> None:
        """When all is healed the victim has everything again, each byte of it."""
        plan, seen = self._plan, self._seen
        if not plan.victim:
            return
        machine = self._machines[plan.victim]
        if not (seen.flips or machine.misread):
            return
        damages: list[object] = ["it was never read"]
        with trio.move_on_after(MENDED_SECONDS):
            while True:
                bridge = machine.bridge
                if machine.up and bridge is not None:
                    found = await bridge.store.scrub()
                    damages = [*owed(bridge, found)]
                    hurt = [n for n in bridge.repair.wounds if not _is_let_go(bridge, n)]
                    for scrub in machine.row.caches:
                        damages += await scrub(at_once)
                    if machine.bridge is bridge and not damages and not hurt and machine.knows_all:
                        if not found:  # or who meets what was let go is told of it
                            seen.flips, seen.troubled, machine.misread = 0, False, False
                        return
                    bridge.repair.suspect(found)
                await trio.sleep(0.5)
                machine.start()
        seen.problem("not-mended", f"machine {machine.id}: {damages[:3]}")


def owed(bridge: Bridge, found: Sequence[Damage]) -> list[Damage]:
    """Of what a scrub has found: what is to be whole again.

    Not by position: damage may belong to none, or to one that a later segment records, of which a
    scrub says nothing; and entries that are kept lie before the floor, too.
    """
    numbers = [(each, segment_number(each.file)) for each in found]  # an index is just made again
    return [each for each, n in numbers if n is not None and not _is_let_go(bridge, n)]


def _is_let_go(bridge: Bridge, number: int) -> bool:
    """The row does without what is damaged there: an image took its place, or nobody has it."""
    store, repair = bridge.store, bridge.repair
    wound, is_left = repair.wounds.get(number), store.images.left_behind(number)
    if wound is None:
        return is_left and number not in store.chronicle.held
    if wound.unfit:
        return is_left
    kept = bridge.member.neighbours.kept().values()
    floor = max(store.floor, min((each.floor for each in kept), default=0))
    return repair.asking.hopeless and bool(wound.lacking) and wound.highest < floor
