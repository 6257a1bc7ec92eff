"""What will hurt a cluster, and when: drawn from a seed before anything happens.  Pure.

    seed, scenario, machines, links ──► calm 0.4 s, pause m2 for 2.1 s, calm 1.1 s, cut m1-m3 ...

The plan is the same whatever the machines make of it, so a run can be repeated with its seed as far as
processes can be.  Of the disks, those of the same minority are always hurt: what was acknowledged is
promised to survive that, and no more.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from duckrow.node.clusterfile import Pair
from duckrow.node.errors import NotFound, Refused

from .plan import name_of

CALM_SECONDS: Final = 1.5  # at most, between two faults
HURT_SECONDS: Final = 4.0  # at most, of a pause, a cut, or until what was killed starts again

# What each kind does, for people.
KINDS: Final[Mapping[str, str]] = {
    "kill-node": "kill -9 to the node of a machine",
    "kill-bridge": "kill -9 to its bridge",
    "kill": "kill -9 to both",
    "power": "kill -9 to everything at once",
    "pause": "a machine, or one of its processes, stands still",
    "cut": "a link carries nothing more",
    "one-way": "a link carries nothing more in one direction",
    "isolate": "a minority reaches nobody else",
    "slow-link": "links are late, and lose some",
    "disk-full": "the disk of a machine has no room",
    "failed-syncs": "the disk of a machine fails to sync",
    "flip": "bits on the disk of a machine change",
    "churn": "a machine loses its vote, and is given it again",
    "rolling-restart": "all machines are stopped in order and started again, one after the other",
}

# How often each kind comes.
SCENARIOS: Final[Mapping[str, Mapping[str, int]]] = {
    "kill": {"kill-node": 4, "kill-bridge": 4, "kill": 3},
    "power": {"power": 1},
    "pause": {"pause": 1},
    "cut": {"cut": 1},
    "one-way": {"one-way": 1},
    "isolate": {"isolate": 1},
    "slow-link": {"slow-link": 1},
    "disk-full": {"disk-full": 1},
    "failed-syncs": {"failed-syncs": 1},
    "flip": {"flip": 1},
    "churn": {"churn": 1},
    "rolling-restart": {"rolling-restart": 1},
    "all": {
        "kill-node": 4,
        "kill-bridge": 4,
        "kill": 3,
        "power": 1,
        "pause": 3,
        "cut": 2,
        "one-way": 2,
        "isolate": 2,
        "slow-link": 2,
        "disk-full": 1,
        "failed-syncs": 2,
        "flip": 2,
        "churn": 1,
        "rolling-restart": 1,
    },
}
OF_LINKS: Final = frozenset({"cut", "one-way", "isolate", "slow-link"})
OF_DISKS: Final = frozenset({"disk-full", "failed-syncs", "flip"})
OF_SEVERAL: Final = frozenset({"churn", *OF_LINKS, *OF_DISKS})  # where there are no others
PROCESSES: Final = ((), ("node",), ("bridge",))  # what stands still; empty: all of the machine


@attrs.frozen
class Fault:
    kind: str
    machines: tuple[str, ...]  # whom it concerns, in the order in which it does
    links: tuple[tuple[str, str], ...] = ()  # from, to
    one_way: bool = False
    processes: tuple[str, ...] = ()  # of a pause
    calm: float = 0.0  # seconds before it
    hurt: float = 0.0  # seconds until it is undone
    seed: int = 0  # of what is drawn when it happens: which bits

    def __str__(self) -> str:
        whom = " and ".join(self.machines)
        match self.kind:
            case "kill-node" | "kill-bridge":
                return f"kill -9 to the {self.kind.removeprefix('kill-')} of {whom}"
            case "kill":
                return f"kill -9 to {whom}"
            case "power":
                return "kill -9 to everything"
            case "pause":
                part = f"the {self.processes[0]} of " if self.processes else ""
                return f"{part}{whom} stands still for {self.hurt:g} s"
            case "cut":
                return f"the link between {whom} is cut for {self.hurt:g} s"
            case "one-way":
                return f"nothing goes from {' to '.join(self.machines)} for {self.hurt:g} s"
            case "isolate":
                reach = "reach" if len(self.machines) > 1 else "reaches"
                return f"{whom} {reach} nobody else for {self.hurt:g} s"
            case "slow-link":
                return f"the link between {whom} is slow for {self.hurt:g} s"
            case "disk-full":
                return f"the disk of {whom} is full for {self.hurt:g} s"
            case "failed-syncs":
                return f"syncs of {whom} fail for {self.hurt:g} s"
            case "flip":
                return f"bits change on the disk of {whom}"
            case "churn":
                return f"{whom} has no vote for {self.hurt:g} s"
            case _:
                return f"{self.kind} of {whom}"


@attrs.frozen
class Ground:
    """What there is to be hurt."""

    machines: tuple[str, ...]
    links: tuple[Pair, ...]
    impossible: Mapping[str, str] = attrs.field(factory=dict)  # kinds, and why

    @property
    def few(self) -> int:
        """As many as the others can go on without."""
        return (len(self.machines) - 1) // 2


def weights_of(scenario: str) -> Mapping[str, int]:
    """How often each kind comes.

    Raises:
        NotFound: there is no such scenario.
    """
    if scenario not in SCENARIOS:
        raise NotFound(f"there is no scenario {scenario!r}: {', '.join(SCENARIOS)}")
    return SCENARIOS[scenario]


def possible(scenario: str, ground: Ground) -> dict[str, int]:
    """How often each kind comes on this ground.

    Raises:
        NotFound: there is no such scenario.
        Refused: none of its kinds can be had here; says why.
    """
    weights = weights_of(scenario)
    lonely = ground.few == 0
    found = {
        kind: weight
        for kind, weight in weights.items()
        if kind not in ground.impossible and not (lonely and kind in OF_SEVERAL)
    }
    if not found:
        why = next((ground.impossible[kind] for kind in weights if kind in ground.impossible), "")
        raise Refused(f"{scenario} cannot be had here: {why or 'it needs three machines'}")
    return found


def faults(seed: int, scenario: str, ground: Ground) -> Iterator[Fault]:
    """Without end.  What is impossible on this ground is left out, and all others are as without that.

    Raises:
        NotFound, Refused: see `possible`.
    """
    there, weights = possible(scenario, ground), weights_of(scenario)
    chance = random.Random(seed)
    victims = sorted(chance.sample(ground.machines, ground.few))  # whose disks are hurt
    drawn = _drawn(chance, weights)
    return (_fault(own, kind, ground, victims) for kind, own in drawn if kind in there)


def _drawn(
    chance: random.Random, weights: Mapping[str, int]
) -> Iterator[tuple[str, random.Random]]:
    while True:
        (kind,) = chance.choices([*weights], [*weights.values()])
        yield kind, random.Random(chance.getrandbits(64))


def _fault(chance: random.Random, kind: str, ground: Ground, victims: Sequence[str]) -> Fault:
    return attrs.evolve(
        _one(chance, kind, ground, victims),
        calm=round(chance.uniform(0, CALM_SECONDS), 2),
        hurt=round(chance.uniform(0, HURT_SECONDS), 2),
        seed=chance.getrandbits(32),
    )


def _one(chance: random.Random, kind: str, ground: Ground, victims: Sequence[str]) -> Fault:
    everybody = chance.sample(ground.machines, len(ground.machines))
    match kind:
        case "power" | "rolling-restart":
            return Fault(kind, tuple(everybody))
        case "pause":
            return Fault(kind, (everybody[0],), processes=chance.choice(PROCESSES))
        case "cut" | "one-way" | "slow-link":
            low, high = chance.choice(ground.links)
            pair = [name_of(low), name_of(high)]
            chance.shuffle(pair)
            link = pair[0], pair[1]
            return Fault(kind, link, (link,), one_way=kind == "one-way")
        case "isolate":
            inside = everybody[: chance.randint(1, ground.few)]
            return Fault(kind, tuple(inside), _around(inside, ground.links))
        case "disk-full" | "failed-syncs" | "flip":
            return Fault(kind, (chance.choice(victims),))
        case _:
            return Fault(kind, (everybody[0],))


def _around(inside: Sequence[str], links: Sequence[Pair]) -> tuple[tuple[str, str], ...]:
    """The links that lead out of there."""
    named = [(name_of(low), name_of(high)) for low, high in links]
    return tuple(pair for pair in named if len({*pair} & {*inside}) == 1)
