"""A simulated cluster of bridges: time, processes and disks; it performs what the protocol asks.

Discrete events in one queue; the members are the product's own, and so is the state that their
items are applied to (node/apply.py).  One seed decides everything.

    plan --> World --> machines: member, disk, node        net: links
               '-- load, faults                            ledger: what must hold
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import attrs

from duckrow.bridge.effects import (
    Alarm,
    Effect,
    Hang,
    Image,
    Journal,
    Learned,
    Place,
    Registered,
    Send,
    Serve,
    Settled,
    Staged,
    Sync,
)
from duckrow.bridge.founding import Charter
from duckrow.bridge.member import Member
from duckrow.bridge.messages import Accept, Accepted, Control, Decided, Follow, Message, Promise
from duckrow.bridge.timing import Timing
from duckrow.node.forms import Start
from duckrow.node.reserve import HARD
from duckrow.node.row import Bundle, Item, View
from duckrow.node.storeoptions import FSYNC, MEMORY

from .protocol_disk import Based, Disk
from .protocol_images import KINDS, Images
from .protocol_ledger import Broken, Ledger
from .protocol_net import Net
from .protocol_node import Node
from .protocol_plan import Plan

CLUSTER, EPOCH_US = b"c" * 16, 1_700_000_000_000_000
Event = tuple[Callable[..., None], tuple[Any, ...]]
MOMENTS: dict[type, str] = {Promise: "promised", Accept: "proposed", Accepted: "accepted"}


@attrs.define(eq=False)
class Machine:
    id: int
    disk: Disk
    boot: int = 0
    life: int = 0  # 0: its process does not run
    member: Member | None = None
    node: Node = attrs.field(factory=Node)
    row: list[Bundle | View] = attrs.field(factory=list)
    floor: int = 1  # what is below is pruned
    hurt: int = 0  # up to here nothing of the row can be read now
    is_full: bool = False
    is_uncounted: bool = False  # damage hides what of its view is in the row
    images: Images | None = None
    paused: list[Event] | None = None  # what came meanwhile
    served: dict[int, tuple[int, int]] = attrs.field(factory=dict)  # neighbour: generation, sent
    syncing: bool = False
    tokens: list[int] = attrs.field(factory=list)  # that wait for the next sync
    slowness: int = 1
    muted: bool = False  # what it sends from now on is lost
    acted: bool = False  # it was active after the last round
    round_due: bool = False

    @property
    def runs(self) -> bool:
        return self.member is not None and self.paused is None

    @property
    def up(self) -> Member:
        assert self.member is not None
        return self.member

    def lost(self, peer: int) -> None:
        """The link with it."""
        self.served.pop(peer, None)
        if self.images is not None:
            self.images.lost(peer)

    def counted(self) -> tuple[View | None, dict[int, int]]:
        """The view of the last mark in its row, and by origin what follows it there."""
        delivered: dict[int, int] = {}
        for content in reversed(self.row):
            if isinstance(content, View):
                return content, delivered
            delivered.setdefault(content.origin, content.s)
        return None, {}

    def rebase(self, row: list[Bundle | View], view: View, delivered: Mapping[int, int]) -> None:
        """An image is the row now, durably."""
        self.disk.write(Based(tuple(row), view, dict(delivered)))
        self.disk.durable = len(self.disk.records)
        self.row, self.floor, self.hurt = row, len(row) + 1, 0
        self.is_uncounted = False

    def told_floor(self) -> int:
        return max(self.floor, self.hurt + 1)


class World:
    def __init__(self, plan: Plan, story: list[str] | None = None) -> None:
        self.plan = plan
        self.chance = random.Random(f"run {plan.profile} {plan.seed}")
        self.now = 0.0
        self.story = story
        self.marks: Counter[str] = Counter()  # how often rare things happened
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._events = self._lives = 0
        self.timing = Timing(grace=plan.grace, lag_items=40, readmit_max=plan.readmit_max)
        self.ledger = Ledger()
        self.machines = {id_: Machine(id_, Disk(self.fresh_uuid())) for id_ in plan.ids}
        self.charter = Charter(
            founders=tuple((i, plan.weights[i], i not in plan.witnesses) for i in plan.voters),
            cluster=CLUSTER,
            lineage=1,
            durability=plan.level,
        )
        self.states: dict[int, list[bytes]] = {}  # by position, of which an image was given
        self.dead: set[int] = set()  # for good
        self.on_moment: Callable[[str, int], None] = lambda moment, id_: None
        self.net = Net(self)
        for id_ in plan.ids:
            self.start(id_)
        self.net.start()

    # Time.

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self._events += 1
        heapq.heappush(self._queue, (self.now + seconds, self._events, call, arguments))

    def run_until(self, end: float) -> None:
        while self._queue and self._queue[0][0] <= end:
            self.now, _, call, arguments = heapq.heappop(self._queue)
            call(*arguments)
        self.now = max(self.now, end)

    def tell(self, what: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.now:9.4f}  {what}")

    def fresh_uuid(self) -> bytes:
        return self.chance.randbytes(16)

    # Processes.

    def start(self, id_: int) -> None:
        machine = self.machines[id_]
        if machine.member is not None or id_ in self.dead:
            return
        disk, plan = machine.disk, self.plan
        self._lives += 1
        machine.life = self._lives
        machine.syncing, machine.tokens, machine.served = False, [], {}
        machine.muted = machine.acted = machine.round_due = False
        incarnation = self.chance.getrandbits(62)
        count = 1 + max((start.start_count for start in disk.starts().values()), default=0)
        disk.write(Start(incarnation, f"boot {machine.boot}", plan.level, count, disk.uuid))
        disk.durable = len(disk.records)  # recovery syncs what it kept, before it tells of it
        recovered = disk.recovered(id_, incarnation)
        if machine.is_uncounted:
            recovered = attrs.evolve(recovered, delivered=None, bundles=())
        machine.row = disk.row()
        machine.node.restart(machine.row)
        machine.member = Member(
            recovered,
            self.now,
            random.Random(self.chance.getrandbits(64)),
            self.timing,
            self.charter if id_ in plan.voters else None,
        )
        machine.images = Images(self, machine)
        self._tell_of_store(machine)
        self.tell(f"{id_} starts, view {recovered.newest and recovered.newest.id}")
        self.after(self.chance.uniform(0, self.timing.beat), self._beat, id_, machine.life)
        self.round(id_)

    def _tell_of_store(self, machine: Machine) -> None:
        """What a start finds there."""
        member = machine.up
        member.neighbours.floor = machine.told_floor()
        if machine.hurt:
            machine.hurt = min(machine.hurt, len(machine.row))
            member.hear_damage(machine.hurt, self.now)
        if machine.node.is_lost:
            member.need_image(self.now)
        if machine.is_full:
            member.hear_disk(HARD, self.now)

    def kill(self, id_: int, how: str) -> None:
        """`kill`: the machine runs on; `power`: what no sync covered may be lost; `wipe`: the disk."""
        machine = self.machines[id_]
        if machine.member is None:
            return
        self.tell(f"{id_} dies: {how}")
        self.marks[how] += 1
        machine.member, machine.paused, machine.life, machine.images = None, None, 0, None
        disk = machine.disk
        if how == "power" or (how == "kill" and self.plan.level == MEMORY):
            kept = self.chance.randint(disk.durable, len(disk.records))
            disk.cut(self.chance.choice([disk.durable, kept]))
        if how != "kill":
            machine.boot += 1
        if how == "wipe":
            self.wipe(id_)
        self.net.dead(id_, told=how == "kill")

    def wipe(self, id_: int) -> None:
        """A new disk for a machine that does not run."""
        machine = self.machines[id_]
        machine.disk = Disk(self.fresh_uuid())
        machine.floor, machine.hurt = 1, 0
        machine.is_full = machine.is_uncounted = False
        machine.node.wipe()

    def resume(self, id_: int, life: int) -> None:
        machine = self.machines[id_]
        if machine.life == life and machine.paused is not None:
            self.tell(f"{id_} resumes")
            held, machine.paused = machine.paused, None
            for call, arguments in held:
                call(*arguments)

    def _beat(self, id_: int, life: int) -> None:
        machine = self.machines[id_]
        if machine.life != life:
            return
        if machine.paused is not None:
            machine.paused.append((self._beat, (id_, life)))
            return
        machine.up.neighbours.floor = machine.told_floor()
        self.feed(id_, lambda member: member.beat(self.now))
        if self.plan.level != FSYNC and self.chance.random() < 0.3:
            self._want_sync(machine)
        self.after(self.timing.beat, self._beat, id_, life)

    # Rounds.

    def receive(self, id_: int, peer: int, message: Message) -> None:
        images = self.machines[id_].images

        def hear(member: Member) -> None:
            if isinstance(message, KINDS) and images is not None:
                self.round(id_)  # between two rounds
                images.heard(peer, message)
            member.receive(peer, message, self.now)

        self.feed(id_, hear)

    def feed(self, id_: int, call: Callable[[Member], object]) -> None:
        """An input; its round ends at once, or when a few more have come."""
        machine = self.machines[id_]
        if machine.paused is not None:
            machine.paused.append((self.feed, (id_, call)))
            return
        if machine.member is None:
            return
        call(machine.member)
        if not self.plan.slack:
            self.round(id_)
        elif not machine.round_due:
            machine.round_due = True
            self.after(self.chance.uniform(0, self.plan.slack), self._round, id_, machine.life)

    def _round(self, id_: int, life: int) -> None:
        machine = self.machines[id_]
        if machine.life == life and machine.paused is None:
            self.round(id_)
        elif machine.life == life and machine.paused is not None:
            machine.paused.append((self._round, (id_, life)))

    def round(self, id_: int) -> None:
        machine = self.machines[id_]
        machine.round_due = False
        effects = machine.up.take_effects(self.now, EPOCH_US + round(self.now * 1e6))
        for effect in effects:
            self._perform(machine, effect)
        active = machine.up.standing.active
        if active and not machine.acted:
            self.tell(f"{id_} acts in view {machine.up.standing.newest.id}")
            self.on_moment("active", id_)
        machine.acted = active

    def _perform(self, machine: Machine, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(machine, effect.peer, effect.message)
            case Journal():
                machine.disk.write(effect)
                if effect.bundle.origin == machine.id and effect.bundle.view:
                    self.ledger.makes(effect.bundle)
            case Place():
                machine.disk.write(effect)
                self._place(machine, effect)
            case Learned():
                machine.disk.write(effect)
                self.ledger.learns(machine.id, effect.view)
                self.tell(f"{machine.id} learns view {effect.view.id}")
            case Registered():
                machine.disk.write(effect)
                self.ledger.accepts(machine.id, effect)
            case Settled():
                machine.disk.write(effect)
            case Staged():
                for command in effect.bundle.commands:
                    machine.node.accepted(command)
            case Sync():
                machine.tokens.append(effect.token)
                self._want_sync(machine)
            case Serve():
                self._serve(machine, effect)
            case Image(peer):
                assert machine.images is not None
                machine.images.take_from(peer)
            case Hang():
                self.net.hang_up(machine.id, effect.peer)
            case Alarm():
                # What the dead have sent may come when a cluster has been forced.
                if not self.ledger.forced or "is in cluster" not in effect.text:
                    raise Broken("ALARM", effect.text)
            case _:
                assert_never(effect)

    def _send(self, machine: Machine, peer: int, message: Message) -> None:
        if isinstance(message, Control) and message.source == machine.id:
            self._notice(machine, message)
        if not machine.muted:
            self.net.send(machine.id, peer, message)

    def _notice(self, machine: Machine, control: Control) -> None:
        """Delicate moments, at which faults are aimed."""
        payload = control.payload
        moment = MOMENTS.get(type(payload), "")
        if isinstance(payload, Decided) and control.to is None:
            moment = "decided"
        if moment:
            self.on_moment(moment, machine.id)

    # Disks.

    def _want_sync(self, machine: Machine) -> None:
        if not machine.syncing:
            self._begin_sync(machine)

    def _begin_sync(self, machine: Machine) -> None:
        machine.syncing = True
        tokens, machine.tokens = machine.tokens, []
        seconds = self.chance.uniform(0.001, self.plan.sync[machine.id]) * machine.slowness
        length = len(machine.disk.records)
        self.after(seconds, self._end_sync, machine.id, machine.life, length, tokens)

    def _end_sync(self, id_: int, life: int, length: int, tokens: list[int]) -> None:
        machine = self.machines[id_]
        if machine.life != life:
            return
        if machine.paused is not None:
            machine.paused.append((self._end_sync, (id_, life, length, tokens)))
            return
        machine.disk.durable = max(machine.disk.durable, length)
        machine.syncing = False
        for token in tokens:
            self._synced(id_, token)
        if machine.life == life and machine.tokens:
            self._want_sync(machine)

    def _synced(self, id_: int, token: int) -> None:
        self.feed(id_, lambda member: member.synced(token, self.now))

    # The row.

    def _place(self, machine: Machine, place: Place) -> None:
        content = machine.disk.content(place)
        if isinstance(content, Bundle) and machine.up.standing.active:
            self._delivered(machine, content)
        machine.row.append(content)
        assert len(machine.row) == place.position
        effects, answers = machine.node.apply(Item(place.position, 0, 0, content))
        self.ledger.delivers(machine.id, place.position, content, effects)
        for call, result in answers:
            self.after(self.chance.uniform(0.001, 0.004), call, result)
        self.serve_on(machine)

    def _delivered(self, machine: Machine, bundle: Bundle) -> None:
        """By its own decision: every member of the view has to have it (O1)."""
        self.on_moment("stable", machine.id)
        if self.plan.level != FSYNC:
            return
        view = machine.up.standing.newest
        for voter in view.voters:
            disk = self.machines[voter[0]].disk
            listed = any(member.id == voter[0] for member in view.members)
            if listed and disk.uuid == voter[2] and not disk.holds_durably(bundle):
                raise Broken(
                    "COPIES",
                    f"{machine.id} delivers {bundle[:3]}, which {voter[0]} has not durably",
                )

    def _serve(self, machine: Machine, serve: Serve) -> None:
        if serve.follow is None:
            machine.served.pop(serve.peer, None)
        else:
            machine.served[serve.peer] = serve.follow
            self._send_items(machine, serve.peer)

    def serve_on(self, machine: Machine) -> None:
        """More of the row can be read."""
        for peer in machine.served:
            self._send_items(machine, peer)

    def _send_items(self, machine: Machine, peer: int) -> None:
        generation, sent = machine.served[peer]
        if sent + 1 < machine.floor or sent < machine.hurt:
            return
        for position in range(sent + 1, len(machine.row) + 1):
            item = Item(position, 0, 0, machine.row[position - 1])
            self._send(machine, peer, Follow(generation, item))
        machine.served[peer] = generation, max(sent, len(machine.row))
