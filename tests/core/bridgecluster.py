"""A few members side by side, with messages and syncs in the hand of the test.

    cluster = Cluster(1, 2, 3)          founded, all active
    cluster.submit(1, "a")
    cluster.settle()                    everything arrives and is synced, no time passes
    cluster.beats(9)                    0.9 seconds

Links are in order; `cut` loses what is on its way.  A node in `slow` finishes no sync.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

from core.bridgekit import disk as uuid_of
from core.bridgekit import run
from duckrow.bridge.effects import (
    Alarm,
    Effect,
    Hang,
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
from duckrow.bridge.messages import Acks, Change, Control, Follow, Message, Payload
from duckrow.bridge.timing import Timing
from duckrow.node.commands import Command
from duckrow.node.forms import Start
from duckrow.node.row import Bundle, Item, View
from sim.protocol_disk import Disk

Edge = tuple[int, int]


class Cluster:
    def __init__(
        self,
        *ids: int,
        edges: Iterable[Edge] | None = None,
        level: str = "fsync",
        witnesses: tuple[int, ...] = (),
        others: tuple[int, ...] = (),  # no voters
        weights: dict[int, int] | None = None,
        min_copies: int = 1,
    ) -> None:
        self.now = 0.0
        self.level = level
        self.members: dict[int, Member] = {}
        self.disks = {id_: Disk(uuid_of(id_)) for id_ in (*ids, *others)}
        self.rows: dict[int, list[Bundle | View]] = {}
        self.slow: set[int] = set()
        self.hangs: set[int] = set()  # nothing is ever synced there
        self.alarms: list[str] = []
        self.staged: list[Bundle] = []
        self.sent: list[tuple[int, int, Message]] = []  # everything, ever
        self.stops: Callable[[int, int, Message], bool] = lambda a, b, message: False
        self._syncs: dict[int, list[tuple[int, int]]] = {}  # tokens, and how much they cover
        self._ways: dict[Edge, deque[Message]] = {}  # links that are up
        self._served: dict[Edge, tuple[int, int]] = {}
        self._controls = 0  # made up by the test
        self._starts = dict.fromkeys(self.disks, 0)
        self._boots = dict.fromkeys(self.disks, 0)
        self._charter = Charter(
            tuple((id_, (weights or {}).get(id_, 1), id_ not in witnesses) for id_ in ids),
            b"c" * 16,
            7,
            level,
            min_copies,
        )
        self.edges = sorted(edges or combinations(self.disks, 2))
        for id_ in self.disks:
            self.start(id_)
        self.settle()
        self.beats(3)
        assert all(self.members[id_].standing.active for id_ in ids if id_ not in witnesses)
        self.sent.clear()

    # Processes and links.

    def start(self, id_: int) -> Member:
        disk, number = self.disks[id_], self._starts[id_]
        self._starts[id_] += 1
        count = 1 + max((start.start_count for start in disk.starts().values()), default=0)
        disk.write(
            Start(run(id_, number), f"boot {self._boots[id_]}", self.level, count, disk.uuid)
        )
        disk.durable = len(disk.records)
        self.rows[id_] = disk.row()
        self._syncs[id_] = []
        charter = self._charter if any(id_ == f[0] for f in self._charter.founders) else None
        recovered = disk.recovered(id_, run(id_, number))
        member = Member(recovered, self.now, random.Random(id_), TIMING, charter)
        self.members[id_] = member
        self._end(id_)
        for edge in self.edges:
            if id_ in edge:
                self.link(*edge)
        return member

    def stop(self, id_: int, *, power: bool = False) -> None:
        """`power`: what no sync covered is lost."""
        del self.members[id_]
        if power:
            self.disks[id_].cut(self.disks[id_].durable)
            self._boots[id_] += 1
        for edge in self.edges:
            if id_ in edge:
                self.cut(*edge)

    def wipe(self, id_: int) -> None:
        self.stop(id_)
        self.wipe_stopped(id_)

    def wipe_stopped(self, id_: int) -> None:
        self.disks[id_] = Disk(uuid_of(id_, self._starts[id_]))

    def link(self, a: int, b: int) -> None:
        if a in self.members and b in self.members and (a, b) not in self._ways:
            self._ways[a, b], self._ways[b, a] = deque(), deque()
            for x, y in ((a, b), (b, a)):
                self.members[x].link_up(y, self.now)
                self._end(x)

    def cut(self, a: int, b: int) -> None:
        for x, y in ((a, b), (b, a)):
            self._served.pop((x, y), None)
            if self._ways.pop((x, y), None) is not None and x in self.members:
                self.members[x].link_down(y, self.now)
                self._end(x)

    # Going on.

    def submit(self, id_: int, *words: str) -> None:
        self.members[id_].submit([Command(word.encode()) for word in words])
        self._end(id_)

    def receive(self, id_: int, peer: int, message: Message) -> None:
        self.members[id_].receive(peer, message, self.now)
        self._end(id_)

    def control(self, id_: int, source: int, payload: Payload) -> None:
        """As if it had come over some link."""
        self._controls += 1
        peer = next(b for a, b in self._ways if a == id_)
        self.receive(id_, peer, Control(source, 99, self._controls, id_, payload))

    def change(self, at: int, id_: int = 0, weight: int = 0, **more: Any) -> None:
        """An operator at one node wants something of the next view."""
        member = self.members[at]
        member.change(Change(self.view(at).id, id_, weight, **more), self.now)
        self._end(at)
        self.settle()

    def call(self, id_: int) -> None:
        """This node calls for a new view, without a reason."""
        self.members[id_].council.begin()
        self._end(id_)
        self.settle()

    def sync(self, id_: int, upto: int | None = None) -> None:
        for token, length in self._syncs[id_][:upto]:
            self._syncs[id_].pop(0)
            self.disks[id_].durable = max(self.disks[id_].durable, length)
            self.members[id_].synced(token, self.now)
            self._end(id_)

    def settle(self) -> None:
        """Until nothing is under way."""
        for _ in range(100_000):
            if not (self._deliver() or self._sync()):
                return
        raise AssertionError("it never comes to rest")

    def beats(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += TIMING.beat
            for id_ in list(self.members):
                self.members[id_].beat(self.now)
                self._end(id_)
            self.settle()

    def slow_beats(self, count: int, late: int) -> None:
        """Each sync of a disk takes so many beats."""
        self.slow = set(self.disks)
        due: dict[int, deque[int]] = {id_: deque() for id_ in self.disks}
        for tick in range(count):
            self.beats()
            for id_ in self.members.keys() - self.hangs:
                asked = len(self._syncs[id_]) - len(due[id_])
                due[id_].extend([tick + late] * asked)
                while due[id_] and due[id_][0] <= tick:
                    due[id_].popleft()
                    self.sync(id_, 1)
            self.settle()

    def _deliver(self) -> bool:
        moved = False
        for (a, b), queue in list(self._ways.items()):
            while queue and self._ways.get((a, b)) is queue:
                message = queue.popleft()
                if not self.stops(a, b, message):
                    self.receive(b, a, message)
                moved = True
        return moved

    def _sync(self) -> bool:
        due = [id_ for id_ in self.members if self._syncs[id_] and id_ not in self.slow]
        for id_ in due:
            self.sync(id_)
        return bool(due)

    def _end(self, id_: int) -> None:
        for effect in self.members[id_].take_effects(self.now, round(self.now * 1e6)):
            self._perform(id_, effect)

    def _perform(self, id_: int, effect: Effect) -> None:
        disk = self.disks[id_]
        if isinstance(effect, Journal | Place | Learned | Registered | Settled):
            disk.write(effect)
        if isinstance(effect, Place):
            self.rows[id_].append(disk.content(effect))
            for way in list(self._served):
                if way[0] == id_:
                    self._items(*way)
        elif isinstance(effect, Send):
            self.sent.append((id_, effect.peer, effect.message))
            if (id_, effect.peer) in self._ways:
                self._ways[id_, effect.peer].append(effect.message)
        elif isinstance(effect, Sync):
            self._syncs[id_].append((effect.token, len(disk.records)))
        elif isinstance(effect, Serve):
            self._served.pop((id_, effect.peer), None)
            if effect.follow is not None:
                self._served[id_, effect.peer] = effect.follow
                self._items(id_, effect.peer)
        elif isinstance(effect, Hang):
            self.cut(id_, effect.peer)
        elif isinstance(effect, Alarm):
            self.alarms.append(effect.text)
        elif isinstance(effect, Staged):
            self.staged.append(effect.bundle)

    def _items(self, a: int, b: int) -> None:
        generation, sent = self._served[a, b]
        for position in range(sent + 1, len(self.rows[a]) + 1):
            item = Item(position, 0, 0, self.rows[a][position - 1])
            self._ways[a, b].append(Follow(generation, item))
        self._served[a, b] = generation, max(sent, len(self.rows[a]))

    # Looking.

    def words(self, id_: int) -> list[str]:
        """All commands of its row, in order."""
        bundles = [content for content in self.rows[id_] if isinstance(content, Bundle)]
        return [bytes(c.head).decode() for bundle in bundles for c in bundle.commands]

    def view(self, id_: int) -> View:
        return self.members[id_].standing.newest

    def acting(self) -> list[int]:
        return [id_ for id_, member in self.members.items() if member.standing.active]

    def acks_of(self, id_: int) -> list[Acks]:
        return [m for a, _, m in self.sent if a == id_ and isinstance(m, Acks) and m.member == id_]

    def said(self, id_: int, kind: type) -> list[Payload]:
        """The control messages of a kind that it made, each once."""
        found = {
            m.n: m.payload
            for a, _, m in self.sent
            if a == id_ and isinstance(m, Control) and m.source == id_
        }
        return [payload for payload in found.values() if isinstance(payload, kind)]


TIMING = Timing()
