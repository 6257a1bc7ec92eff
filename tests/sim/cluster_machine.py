"""A machine of a simulated cluster: a bridge and a node, two processes with a disk each.

`m1` is the bridge of machine 1, and `n1` its node, since a host of the simulation has one process.
What happens to the machine happens to both; the way between them is none that a cable is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import trio

from duckrow.bridge.attach import Attach
from duckrow.bridge.founding import Charter, Listed
from duckrow.bridge.links import Neighbour
from duckrow.bridge.options import BridgeOptions
from duckrow.bridge.process import Bridge
from duckrow.node.alone import Options
from duckrow.node.bridged import open_bridged
from duckrow.node.bridgedrow import BridgedRow, ReplacedError
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, DiskFailed
from duckrow.node.events import ERROR
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.rare import rare_store
from duckrow.node.segments import segment_number
from duckrow.node.storeoptions import StoreOptions

from .cluster_plan import ClusterPlan
from .service import serve
from .workload import Observed
from .world import Host, World

PEER_PORT, NODE_PORT = 4100, 4200
SECRET = b"a secret of the cluster"
SOCKET_SECONDS = 0.00003  # from a process to another one of the machine
NOTES = 400
UNREAD_STARTS = 4  # in a row that failed: then somebody reads the page about damage
# What processes of one build have no reason to say to each other, whatever dies.
NEVER_SAID = ("alarm", "link_broken", "message_too_large", "node_broken")
DAMAGED = "damaged"
OF_DAMAGE = (DAMAGED, "not_mended", "commands_lost")
NETWORK_ERRORS = ("simulated: ", "this stream was closed", "the stream ended")


class Machine:
    def __init__(self, world: World, plan: ClusterPlan, seen: Observed, id_: int) -> None:
        self.world, self.plan, self.seen, self.id = world, plan, seen, id_
        self.bridge_name, self.node_name = f"m{id_}", f"n{id_}"
        self.bridge_host: Host = world.host(self.bridge_name)
        self.node_host: Host = world.host(self.node_name)
        self.bridge: Bridge | None = None  # of its newest life
        self.node: Keeper | None = None
        self.stays_dead = False
        self.misread = False  # its bridge's disk did not give something, and may be told as damaged
        self._unreadable = False  # its disk has to be replaced
        self._unread = 0  # starts in a row that did not get what they have to read
        self.reboots: list[float] = []
        self.on_bridge: Callable[[Machine, Bridge], None] = lambda _machine, _bridge: None
        self.on_node: Callable[[Machine, Keeper], None] = lambda _machine, _node: None
        self.notes: list[str] = []
        self._leaving, self._stopping = trio.Event(), trio.Event()

    @property
    def holds_data(self) -> bool:
        return self.id not in self.plan.witnesses

    @property
    def active(self) -> bool:
        return self.bridge is not None and self.bridge_host.alive and self.bridge.status().active

    @property
    def up(self) -> bool:
        """Its node knows all that the bridge has, and runs."""
        node, bridge = self.node, self.bridge
        return (
            node is not None
            and bridge is not None
            and self.bridge_host.alive
            and self.node_host.alive
            and node.state.position == bridge.store.position
        )

    @property
    def disk_failed(self) -> bool:
        """The bridge has met it, and is about to end."""
        if self.bridge is None:
            return False
        try:
            self.bridge.store.check()
        except DiskFailed:
            return True
        return False

    @property
    def awaits_image(self) -> bool:
        return self.bridge is not None and self.bridge.member.standing.awaits_image

    @property
    def position(self) -> int:
        """Of its row; 0: nobody is there to say it."""
        return 0 if self.bridge is None else self.bridge.member.standing.position

    @property
    def is_damaged(self) -> bool:
        """A segment of its row is, and perhaps nobody has met it yet."""
        media = self.bridge_host.media
        return any(
            media.pages(path).damaged
            for path in media.paths()
            if segment_number(path.rpartition("/")[2]) is not None
        )

    @property
    def is_ending(self) -> bool:
        """A process of it runs that was told to end, or has to: with a slow disk that takes a while."""
        bridge_ends = self._leaving.is_set() or self.disk_failed
        return (self.bridge_host.alive and bridge_ends) or (
            self.node_host.alive and self._stopping.is_set()
        )

    @property
    def knows_all(self) -> bool:
        """Its node knows where each entry lies."""
        if self.node is None:
            return False
        state, numbers = self.node.state, self.node.numbers
        for topic in state.topics.rows.values():
            for partition in range(topic.policy.partitions):
                number, last = state.partition(topic.id, partition)[:2]
                while number <= last:
                    rows = numbers.rows(topic.id, partition, number, 1000)
                    if not rows:
                        return False
                    number = rows[-1].last + 1
        return True

    # -- processes ----------------------------------------------------------------------------

    def start(self) -> None:
        """What does not run of it."""
        if self.stays_dead:
            return
        if not self.bridge_host.alive:
            self.bridge = None
            if self._unreadable:
                self.lose_disks(bridge=True)
            self.world.start(self.bridge_name, self._run_bridge)
        if self.holds_data and not self.node_host.alive:
            self.node = None
            self.world.start(self.node_name, self._run_node)

    def kill(self, *, bridge: bool = False, node: bool = False) -> None:
        if bridge and self.bridge_host.alive:
            self.world.kill(self.bridge_name)
        if node and self.node_host.alive:
            self.world.kill(self.node_name)

    def power(self) -> None:
        self.reboots.append(trio.current_time())
        for host in (self.node_host, self.bridge_host):
            if host.starts:
                self.world.kill(host.name, power=True)

    def lose_disks(self, *, bridge: bool) -> None:
        """That of the node, or both; nothing of it runs any more."""
        self.kill(bridge=bridge, node=True)
        self.reboots.append(trio.current_time())  # it shows an older part of the row, at first
        self.node_host.media.wipe()
        if bridge:
            self.bridge_host.media.wipe()
            self._unreadable = False

    def leave(self) -> None:
        """The bridge ends in order."""
        self._leaving.set()

    def stop(self) -> None:
        """The node ends in order."""
        self._stopping.set()

    # -- what runs there ----------------------------------------------------------------------

    async def _run_bridge(self, env: Env) -> None:
        leaving = self._leaving = trio.Event()
        try:
            bridge = await Bridge.open(env, self._options(env), self._note)
        except Corrupt:
            if not self.seen.flips:
                raise
            self._unreadable = True
            return
        except DiskFailed:
            self._unread += 1
            if self._unread == UNREAD_STARTS:
                self._unread = 0
                self.bridge_host.media.copy_what_can_be_read()
            raise
        self._unread = 0
        try:
            attach = Attach(bridge, self._note)
            self.bridge = bridge
            self.on_bridge(self, bridge)
            async with trio.open_nursery() as nursery:
                await nursery.start(env.net.serve, attach.handle, NODE_PORT)
                await nursery.start(bridge.run)
                await leaving.wait()
                await bridge.leave()
                nursery.cancel_scope.cancel()
            await bridge.close()
        finally:
            bridge.abandon()

    def _options(self, env: Env) -> BridgeOptions:
        plan = self.plan
        founders = tuple((i, plan.weight(i), i not in plan.witnesses) for i in plan.founders)
        charter = Charter(founders, env.rng.randbytes(16), env.rng.getrandbits(63), plan.level)
        store = StoreOptions(
            level=plan.level,
            segment_bytes=plan.segment_bytes,
            followable_bytes=max(plan.segment_bytes, plan.followable_bytes),
            soft_reserve_bytes=16 * 1024,
            soft_reserve_fraction=0.0,
            hard_reserve_bytes=32 * 1024,
            window_bytes=64 * 1024,
            scrub_seconds=0,
        )
        return BridgeOptions(
            id=self.id,
            port=PEER_PORT,
            neighbours=_neighbours(plan.neighbours(self.id)),
            standby=_neighbours(plan.neighbours(self.id, plan.standby)),
            secret=SECRET,
            store=rare_store(env, store),
            charter=charter if self.id in plan.founders else None,
            listed={i: Listed(f"m{i}", plan.weight(i), i in plan.witnesses) for i in plan.ids},
        )

    async def _run_node(self, env: Env) -> None:
        stopping = self._stopping = trio.Event()
        housekeeping = HousekeepingOptions(
            snapshot_items=self.plan.snapshot_items,
            snapshot_bytes=1 << 20,
            followable_bytes=self.plan.segment_bytes,
        )
        options = Options(store=StoreOptions(scrub_seconds=0), housekeeping=housekeeping)
        while not stopping.is_set():
            try:
                async with open_bridged(
                    env, self.bridge_name, NODE_PORT, options, self._note
                ) as node:
                    self.node = node
                    self.on_node(self, node)
                    await serve(env, node, self._note, stopping)
            except* ReplacedError:
                self.node = None  # an image came, and it begins anew

    @property
    def row(self) -> BridgedRow:
        assert self.node is not None
        return cast(BridgedRow, self.node.row)

    def _note(
        self, level: int, template: str, /, *args: object, exc_info: BaseException | None = None
    ) -> None:
        text = f"{self.world.clock.now:.6f} {self.id} {template % args}"
        self.notes.append(text)
        del self.notes[:-NOTES]
        lost = template.startswith("bridge_lost")
        if level >= ERROR and not self._has_reason(template):
            self.seen.problem("handler", text)
        elif template.startswith(NEVER_SAID) or (lost and not _is_network(args[0])):
            self.seen.problem("misunderstood", text)

    def _has_reason(self, template: str) -> bool:
        """What the disk has not given may be told as damaged, too; but it is still there."""
        if self.seen.flips:
            return template.startswith(OF_DAMAGE)
        return self.misread and template.startswith(DAMAGED)


def _neighbours(ids: Iterable[int]) -> dict[int, Neighbour]:
    return {i: Neighbour(i, f"m{i}", PEER_PORT) for i in ids}


def _is_network(error: object) -> bool:
    return str(error).startswith(NETWORK_ERRORS)
