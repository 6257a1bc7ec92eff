"""Plans: what a cluster on one machine consists of, and the cluster files that say so.  Pure.

Between two machines there may be a wire (wire.py), a relay that can be cut and that delays.  Of two
bridges the one with the lower id dials, so its cluster file has the address of the wire where all
others have that of the bridge; otherwise the files are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from duckrow.node.clusterfile import SHAPES, Pair, shaped
from duckrow.node.errors import Refused

NODES_MAX: Final = 32
HOST: Final = "127.0.0.1"


@attrs.frozen(kw_only=True)
class Wires:
    """How the links between machines are; they need not be there at all."""

    delay: float = 0.0  # seconds, one way
    jitter: float = 0.0  # seconds on top of it, drawn for each piece; nothing is overtaken
    rate: float = 0.0  # bytes a second, one way; 0: no limit


@attrs.frozen(kw_only=True)
class Plan:
    nodes: int = 3
    topology: str = "mesh"
    durability: str = "fsync"
    wires: Wires | None = None  # None: bridges are linked directly

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise Refused(f"a local cluster has 1 to {NODES_MAX} nodes, not {self.nodes}")
        if self.topology not in SHAPES:
            raise Refused(f"{self.topology!r} is no topology: {', '.join(SHAPES)}")

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.nodes + 1))

    @property
    def links(self) -> tuple[Pair, ...]:
        return tuple(sorted(shaped(self.topology, self.ids)))

    @property
    def ports_wanted(self) -> int:
        return 2 * self.nodes + (0 if self.wires is None else len(self.links))


@attrs.frozen(kw_only=True)
class Ports:
    """Where everything listens."""

    nodes: dict[int, int]
    bridges: dict[int, int]
    wires: dict[Pair, int]

    @classmethod
    def of(cls, plan: Plan, ports: Sequence[int]) -> Ports:
        assert len(ports) == plan.ports_wanted
        count = plan.nodes
        return cls(
            nodes=dict(zip(plan.ids, ports[:count], strict=True)),
            bridges=dict(zip(plan.ids, ports[count : 2 * count], strict=True)),
            wires=dict(zip(plan.links if plan.wires else (), ports[2 * count :], strict=True)),
        )


def name_of(id_: int) -> str:
    return f"m{id_}"


def cluster_text(plan: Plan, ports: Ports, own: int) -> str:
    """The cluster file as machine `own` has it; 0: as it is without wires."""
    return "\n".join(_lines(plan, ports, own))


def _lines(plan: Plan, ports: Ports, own: int) -> Iterator[str]:
    yield "[cluster]"
    yield f'durability = "{plan.durability}"'
    yield f'links = "{plan.topology}"'
    for id_ in plan.ids:
        dialled = ports.wires.get((own, id_), ports.bridges[id_])
        yield ""
        yield f"[members.{name_of(id_)}]"
        yield f"id = {id_}"
        yield f'address = "tcp://{HOST}:{dialled}"'
        yield f'url = "duck://{HOST}:{ports.nodes[id_]}"'
    yield ""
