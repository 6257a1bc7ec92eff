"""What a seed decides of a cluster before anything happens: machines, links, level, clients, faults.

Kinds of faults are switched on a few at a time, since all at once they hide each other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import attrs

from duckrow.node.storeoptions import FSYNC, MEMORY, WRITE

from . import plan as alone
from .net import WINDOW
from .plan import Plan

Edge = tuple[int, int]  # the lower id first

SHAPES = ("mesh", "chain", "ring", "star", "tree")
KINDS = (
    "kill-bridge",
    "kill-node",
    "kill-both",
    "power",
    "kill-all",
    "power-all",
    "kill-all-bridges",
    "kill-all-nodes",
    "in-a-row",
    "crash-bridge",
    "crash-node",
    "pause-bridge",
    "pause-node",
    "pause-machine",
    "stop-bridge",
    "stop-node",
    "cut",
    "one-way",
    "isolate",
    "partition",
    "reset",
    "lossy",
    "slow-link",
    "slow-sync",
    "sync-error",
    "node-sync-error",
    "write-error",
    "node-write-error",
    "names-error",
    "node-read-error",
    "full",
    "node-full",
    "away",
    "skew",
    "client-kill",
    "client-pause",
    "client-cut",
)
# What one machine of a seed has to get back from the others.
DAMAGE = ("flip", "spoil", "read-error", "wipe", "node-flip", "node-wipe")
HEAVY_BYTES = 1000  # of a batch
FAR_SECONDS = 0.01  # from machine to machine
HOUSE = ("voters",)  # who votes changes
SETTINGS = "settings"  # what the cluster promises does
# Who comes back from it may need an image, if the others keep little enough of the row.
FORGOTTEN = ("away", "wipe", "node-wipe")
# Aimed at what a process does at that very moment.
BRIDGE_MOMENTS = (
    "promised",
    "accepted",
    "learned",
    "mark",
    "placed",
    "staged",
    "settled",
    "synced",
)
NODE_MOMENTS = ("told-staged", "applied", "mark-applied")


@attrs.frozen(kw_only=True)
class ClusterPlan(Plan):
    machines: int = 3
    shape: str = "mesh"
    edges: tuple[Edge, ...] = ((1, 2), (1, 3), (2, 3))
    weights: tuple[int, ...] = ()  # by machine; empty: one each
    witnesses: tuple[int, ...] = ()
    delays: Mapping[Edge, float] = attrs.field(factory=dict)
    snipers: Mapping[str, float] = attrs.field(factory=dict)  # probability at each moment
    observers: tuple[int, ...] = ()  # have no vote, till they are given one
    standby: tuple[Edge, ...] = ()  # links that are there while others are not
    victim: int = 0  # whose disks may be damaged, or lost; 0: nobody's
    followable_bytes: int = 256 * 1024  # of the row stay; who was away for longer gets an image
    guests: int = 0
    doors: int = 3  # nodes that a client knows, at most
    changes: float = 0.0  # mean seconds between changes of a topic; 0: there is no such topic
    waits: bool = False  # batches wait for room in it, now and then
    stays_dead: bool = False  # a minority, when all else is healed

    @property
    def ids(self) -> range:
        return range(1, self.machines + 1)

    @property
    def founders(self) -> list[int]:
        return [id_ for id_ in self.ids if id_ not in self.observers]

    def weight(self, id_: int) -> int:
        if id_ in self.observers:
            return 0
        return self.weights[id_ - 1] if self.weights else 1

    def neighbours(self, id_: int, edges: Sequence[Edge] | None = None) -> list[int]:
        return [a + b - id_ for a, b in (self.edges if edges is None else edges) if id_ in (a, b)]

    def connected(self, ids: Sequence[int]) -> bool:
        seen, todo = {ids[0]: None}, [ids[0]]
        while todo:
            for peer in self.neighbours(todo.pop()):
                if peer in ids and peer not in seen:
                    seen[peer] = None
                    todo.append(peer)
        return len(seen) == len(ids)

    def minorities(self) -> list[list[int]]:
        """Without any of these, the others are a connected majority, and one of them has the data."""
        found = []
        total = sum(map(self.weight, self.ids))
        for count in range(1, self.machines // 2 + 1):
            for dead in combinations(self.ids, count):
                left = [i for i in self.ids if i not in dead]
                enough = 2 * sum(map(self.weight, left)) > total
                if enough and self.connected(left) and any(i not in self.witnesses for i in left):
                    found.append(list(dead))
        return found


def drawn(rng: random.Random, seconds: float = 10.0) -> ClusterPlan:
    base = alone.drawn(rng, seconds)
    machines = rng.choice((3, 3, 3, 3, 4, 5))
    shape = rng.choice(("mesh", *SHAPES))
    witnesses = (machines,) if rng.random() < 0.1 else ()
    edges = links(shape, machines, witnesses, rng)
    level = rng.choice((FSYNC, FSYNC, FSYNC, WRITE, MEMORY))
    weights = (2, *[1] * (machines - 1)) if rng.random() < 0.1 else ()
    pace = rng.choice((0.0003, 0.0003, 0.002, 0.01))
    snipers: dict[str, float] = {}
    if rng.random() < 0.6:
        moments = [*BRIDGE_MOMENTS, *NODE_MOMENTS]
        often = rng.choice((0.3, 1.0))
        for moment in rng.sample(moments, rng.randint(1, 4)):
            rare = moment in ("placed", "applied", "told-staged", "staged", "settled", "synced")
            snipers[moment] = often * (0.01 if rare else 0.3)
    faults = rng.sample(KINDS, rng.randint(0, 8))
    # At a time one of these: each takes from what has to be left.
    more = rng.choice(("", "dead for good", "house", "damage"))
    observers: tuple[int, ...] = ()
    victim = 0
    if more == "house":
        faults += HOUSE * rng.randint(1, 4)
        if rng.random() < 0.5 and machines < 5:  # one that is added when all goes on already
            machines += 1
            observers = (machines,)
            there = [i for i in range(1, machines) if i not in witnesses]
            ends = rng.sample(there, rng.randint(1, 2))
            edges = tuple(sorted((*edges, *((end, machines) for end in ends))))
            weights = (*weights, 1) if weights else ()
    elif more == "damage":
        faults += rng.sample(DAMAGE, rng.randint(1, 3))
        if witnesses and machines == 3:
            weights = (2, 1, 1)  # else the victim and the witness go on alone, with the only copy
        light = machines - 1 if witnesses else machines  # of weight 1, and keeps the row
        victim = light if weights else rng.randint(1, light)
    keeps_little = bool({*faults} & {*FORGOTTEN})
    most_bytes, most_items = (16 * 1024, 50) if keeps_little else (1024 * 1024, 300)
    missing = [pair for pair in combinations(range(1, machines + 1), 2) if pair not in edges]
    keepers = [pair for pair in missing if not {*pair} & {*witnesses}]
    standby = (rng.choice(keepers),) if keepers and rng.random() < 0.4 else ()
    made = {field.name: getattr(base, field.name) for field in attrs.fields(Plan)}
    # Links that carry less in a second than what producers have under way order nothing in time; how
    # they come through all the same, test_cluster_waits has.
    is_heavy = base.batch * base.value_bytes > HEAVY_BYTES and pace >= FAR_SECONDS
    made["stream_bytes"] = WINDOW if is_heavy else base.stream_bytes
    for topic in base.topics:
        topic.policy.pop("partitions", None) if level == MEMORY else None
    plan = ClusterPlan(
        **{
            **made,
            "level": level,
            "segment_bytes": min(rng.choice((16, 64, 1024)) * 1024, most_bytes),
            # Little load leaves more of a second for faults: what each entry costs, it costs thrice.
            "gap": base.producers * rng.choice((0.02, 0.05, 0.1, 0.2)),
            "snapshot_items": min(rng.choice((15, 50, 50, 300)), most_items),
            "consumers": min(base.consumers, 2),
            "faults": tuple(faults),
        },
        machines=machines,
        shape=shape,
        edges=edges,
        weights=weights,
        witnesses=witnesses,
        delays={edge: pace * rng.choice((1, 1, 3)) for edge in (*edges, *standby)},
        snipers=snipers,
        observers=observers,
        standby=standby,
        victim=victim,
        followable_bytes=min(rng.choice((16, 256)) * 1024, most_bytes),
        doors=rng.choice((1, 2, machines)),
        guests=1 if base.accepted else 0,
        stays_dead=more == "dead for good" and level == FSYNC,
        changes=rng.choice((0.0, 0.0, 0.0, 0.2, 1.0)),
        waits=rng.random() < 0.5,
    )
    plan = attrs.evolve(plan, again=rng.random() < 0.5)
    if more in ("", "house") and rng.random() < 0.3:
        more_faults = SETTINGS, SETTINGS, *rng.sample(("power", "power-all", "kill-all"), 2)
        plan = attrs.evolve(plan, faults=(*plan.faults, *more_faults))
    return plan


def links(
    shape: str, machines: int, witnesses: Sequence[int], rng: random.Random
) -> tuple[Edge, ...]:
    """A witness keeps no row, so nobody can follow through it: it is at an end."""
    order = [i for i in range(1, machines + 1) if i not in witnesses]
    rng.shuffle(order)
    order += witnesses
    if shape == "mesh":
        pairs = list(combinations(order, 2))
    elif shape == "star":
        pairs = [(order[0], other) for other in order[1:]]
    elif shape == "tree":
        pairs = [(order[(n - 1) // 2], order[n]) for n in range(1, machines)]
    else:
        pairs = list(pairwise(order))
        if shape == "ring" and machines > 2:
            pairs.append((order[0], order[-1]))
    return tuple(sorted((min(pair), max(pair)) for pair in pairs))
