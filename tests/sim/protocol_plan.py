"""What one seed of the protocol's simulation plays: nodes, links, level, load and faults.

Kinds of faults are switched on a few at a time, since all at once they hide each other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import Final

import attrs

Edge = tuple[int, int]  # the lower id first

FAULTS: Final = (
    "kill",
    "power",
    "kill all",
    "power all",
    "wipe",
    "cut",
    "hole",
    "part",
    "slow disk",
    "slow link",
    "pause",
    "voters",
    "duel",
    "duel",
)
MOMENTS: Final = ("promised", "proposed", "accepted", "decided", "active")
PROFILES: Final = ("mixed", "duel", "tail", "power", "house", "disaster", "images", "ruin")
OF_STORES: Final = ("images", "ruin")
STORES: Final = (
    "prune",
    "prune",
    "lose state",
    "lose state",
    "fill",
    "damage",
    "tear",
    "flap",
    "lose words",
)
HOUSE: Final = ("leave", "weight", "voters", "settings")


@attrs.frozen
class Plan:
    seed: int
    profile: str
    voters: tuple[int, ...]
    observers: tuple[int, ...]
    topology: str
    edges: tuple[Edge, ...]
    level: str
    weights: Mapping[int, int]
    witnesses: tuple[int, ...]
    delays: Mapping[Edge, tuple[float, float]]  # seconds
    sync: Mapping[int, float]  # seconds at most
    grace: float
    acks_overtake: bool  # they travel on a lane of their own (F7)
    slack: float  # of a round: further inputs may join it, seconds
    faults: tuple[str, ...]
    pace: tuple[float, float]  # between two of them, seconds
    snipers: Mapping[str, float]  # chance of a fault at each of these moments
    fatal: float  # chance that its victim stays dead
    seconds: float  # until everything heals
    producers: tuple[int, ...]  # their windows
    readmit_max: float = 300.0  # seconds
    calm: float = 1.5  # seconds without another view, at the end: longer than a member is missed
    slices: int = 1  # of an image

    @property
    def ids(self) -> tuple[int, ...]:
        return self.voters + self.observers

    def __str__(self) -> str:
        parts = [
            f"{len(self.voters)} voters in a {self.topology}",
            f"{len(self.observers)} observers",
            f"level {self.level}",
            f"witnesses {list(self.witnesses)}",
            f"weights {list(self.weights.values())}",
            f"faults {', '.join(self.faults)}",
        ]
        return f"seed {self.seed} ({self.profile}): {'; '.join(parts)}"


def draw(seed: int, profile: str = "mixed") -> Plan:
    chance = random.Random(f"{profile} {seed}")
    count = chance.choice([2, 3, 3, 3, 4, 5, 5])
    topology = chance.choice(["mesh", "mesh", "ring", "chain"])
    level = chance.choice(["fsync", "fsync", "fsync", "write", "memory"])
    voters = tuple(range(1, count + 1))
    weights = dict.fromkeys(voters, 1)
    witnesses: tuple[int, ...] = ()
    if count == 2 and chance.random() < 0.5:
        weights[1] = 2
    elif count == 3 and chance.random() < 0.25:
        witnesses = (3,)
    observers = (count + 1,) if chance.random() < 0.3 else ()
    order = [id_ for id_ in voters if id_ not in witnesses]
    chance.shuffle(order)
    order += witnesses  # keeps no row: in the middle of a chain nobody could follow through it
    edges = lines(order, topology)
    for observer in observers:
        neighbours = [id_ for id_ in order if id_ not in witnesses]
        for id_ in chance.sample(neighbours, chance.choice([1, min(2, len(neighbours))])):
            edges.add((id_, observer))
    faults = chance.sample(FAULTS, chance.randint(2, 6))
    faults += chance.choice([[], ["kill", "power"], ["part", "cut"]])
    snipers: dict[str, float] = {}
    if chance.random() < 0.6:
        snipers = {moment: chance.choice([0, 0.1, 0.3]) for moment in MOMENTS}
        snipers["stable"] = chance.choice([0, 0, 0.01])
    pace = chance.choice([(0.05, 0.4), (0.2, 1.2), (0.6, 2.5)])
    grace = chance.choice([0.005, 0.06, 0.06])
    fatal = chance.choice([0, 0.1, 0.3])
    stores = profile in OF_STORES
    if profile == "duel":
        faults = ["duel", "duel", "slow link", "slow link", "slow disk", "kill"]
        pace, grace = (0.04, 0.25), 0.005
    elif profile == "tail":
        faults = ["slow link", "slow link", "kill", "slow disk", "cut", "duel"]
        pace, fatal, level = (0.05, 0.4), 0.5, "fsync"
        snipers = dict.fromkeys(("decided", "proposed", "accepted", "active"), 0.2)
    elif profile == "power":
        faults, pace = ["power", "power", "duel", "pause"], (0.05, 0.5)
        snipers = {"active": 0.3}
    elif profile == "house":
        faults, pace = ["leave", "weight", "voters", "settings", "kill", "cut"], (0.1, 0.6)
    elif profile == "disaster":
        faults, pace = ["kill", "voters", "slow link", "slow disk", "duel"], (0.1, 0.6)
    elif stores:
        faults = ["prune", "lose state", *chance.sample(STORES, 3)]
        faults += [
            *chance.sample(FAULTS, chance.randint(1, 4)),
            *chance.sample(HOUSE, chance.randint(0, 2)),
        ]
        fatal = 0  # it might have had the only state
    return Plan(
        seed=seed,
        profile=profile,
        voters=voters,
        observers=observers,
        topology=topology,
        edges=tuple(sorted(edges)),
        level=level,
        weights=weights,
        witnesses=witnesses,
        delays={edge: (0.001, chance.choice([0.002, 0.005, 0.015])) for edge in sorted(edges)},
        sync={id_: chance.choice([0.001, 0.003, 0.008]) for id_ in voters + observers},
        grace=grace,
        acks_overtake=chance.random() < 0.3,
        slack=chance.choice([0, 0, 0.002]),
        faults=tuple(faults),
        pace=pace,
        snipers=snipers,
        fatal=fatal,
        seconds=chance.choice([2.5, 5.0, 8.0]),
        producers=tuple(chance.choice([1, 1, 3]) for _ in range(chance.choice([2, 3, 4]))),
        readmit_max=3.0 if stores else 300.0,  # or nothing is finished
        calm=4.0 if stores else 1.5,
        slices=chance.choice([1, 30, 100]) if stores else 1,
    )


def lines(order: list[int], topology: str) -> set[Edge]:
    pairs = list(combinations(order, 2)) if topology == "mesh" else list(pairwise(order))
    if topology == "ring" and len(order) > 2:
        pairs.append((order[0], order[-1]))
    return {(min(pair), max(pair)) for pair in pairs}
