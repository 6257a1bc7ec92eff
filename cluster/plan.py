"""Plans: what a cluster on one machine consists of, and the cluster files that say so.  Pure.

    on loopback      127.0.0.1, a port for each node and each bridge, and for each wire
    in namespaces    each machine has a network of its own, and two ways out of it:

        10.99.0.<id>           to the other machines, over what namespaces.py passes on
        <block>.<4 id + 2>     to this host, for clients; the host's end is <block>.<4 id + 1>

Between two machines on loopback there may be a wire (wire.py), a relay that can be cut and that delays.
Of two bridges the one with the lower id dials, so its cluster file has the address of the wire where
all others have that of the bridge; otherwise the files are the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Self

import attrs

from duckrow.node.addresses import PORT
from duckrow.node.clusterfile import PEER_PORT, SHAPES, Pair, shaped
from duckrow.node.errors import Refused

NODES_MAX: Final = 32
WIRES_MAX: Final = 200  # each has a listener and two sockets, and `select` takes 1,024 files
HOST: Final = "127.0.0.1"
PEERS: Final = "10.99.0"  # inside namespaces, so it may be the same in every cluster
TOPOLOGIES: Final = (*SHAPES, "tree")


@attrs.frozen(kw_only=True)
class Wires:
    """How the links between machines are, each way for itself; they need not be there at all."""

    delay: float = 0.0  # seconds
    jitter: float = 0.0  # seconds on top of it, drawn for each piece; nothing is overtaken
    rate: float = 0.0  # bytes a second; 0: no limit
    loss: float = 0.0  # the part of packets that do not arrive
    # In namespaces only, since these happen to packets: the part of them that
    overtakes: float = 0.0
    comes_twice: float = 0.0
    is_flipped: float = 0.0  # in one bit

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            part = name not in ("delay", "jitter", "rate")
            if not 0 <= value < (1 if part else float("inf")):
                raise Refused(f"{name} of links is {value:g}: it is 0 or more, a part less than 1")

    @property
    def needs_packets(self) -> bool:
        return bool(self.overtakes or self.comes_twice or self.is_flipped)

    def worse(self, by: Self) -> Self:
        """Later by so much, and of what came through so far so much less does; the rate is as it was."""
        late = {name: getattr(self, name) + getattr(by, name) for name in ("delay", "jitter")}
        parts = {
            name: 1 - (1 - getattr(self, name)) * (1 - getattr(by, name))
            for name in ("loss", "overtakes", "comes_twice", "is_flipped")
        }
        return attrs.evolve(self, **late, **parts)


@attrs.frozen(kw_only=True)
class Plan:
    nodes: int = 3
    topology: str = "mesh"
    listed: tuple[Pair, ...] = ()  # links, instead of a topology
    durability: str = "fsync"
    wires: Wires | None = None  # None: bridges on loopback are linked directly, and cannot be cut
    namespaces: bool = False
    voters: int = 0  # the first so many; 0: all

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise Refused(f"a local cluster has 1 to {NODES_MAX} nodes, not {self.nodes}")
        if self.topology not in TOPOLOGIES:
            raise Refused(f"{self.topology!r} is no topology: {', '.join(TOPOLOGIES)}")
        if not 0 <= self.voters <= self.nodes:
            raise Refused(f"{self.voters} of {self.nodes} nodes cannot vote")
        for pair in self.listed:
            if not 1 <= pair[0] < pair[1] <= self.nodes:
                names = " and ".join(map(name_of, pair))
                raise Refused(f"there is no link between {names}: there are m1 to m{self.nodes}")
        if lonely := _unreached(self.ids, self.links):
            raise Refused(f"the links do not reach {', '.join(map(name_of, lonely))}")
        if self.wires and self.wires.needs_packets and not self.namespaces:
            raise Refused("only in namespaces packets overtake, come twice or are flipped")
        if self.wires and not self.namespaces and len(self.links) > WIRES_MAX:
            raise Refused(
                f"{len(self.links)} links are more than the {WIRES_MAX} that can be delayed"
            )

    @classmethod
    def told(cls, fields: Mapping[str, Any]) -> Self:
        """From what `attrs.asdict` gave, as JSON has it."""
        wires, listed = fields["wires"], tuple((low, high) for low, high in fields["listed"])
        rest = {**fields, "listed": listed}
        return cls(**{**rest, "wires": None if wires is None else Wires(**wires)})

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.nodes + 1))

    @property
    def links(self) -> tuple[Pair, ...]:
        if self.listed:
            return tuple(sorted({*self.listed}))
        if self.topology == "tree":
            return tuple((id_ // 2, id_) for id_ in self.ids[1:])
        return tuple(sorted(shaped(self.topology, self.ids)))

    def way(self, one: int, other: int) -> tuple[int, ...]:
        return way_between(self.links, one, other)

    @property
    def has_wires(self) -> bool:
        return self.wires is not None or self.namespaces

    @property
    def ports_wanted(self) -> int:
        if self.namespaces:
            return 0
        return 2 * self.nodes + (len(self.links) if self.has_wires else 0)


@attrs.frozen(kw_only=True)
class Places:
    """Where everything listens, as host:port."""

    nodes: dict[int, str]
    bridges: dict[int, str]
    wires: dict[Pair, int]  # ports; where there are namespaces none are needed

    @classmethod
    def on_loopback(cls, plan: Plan, ports: Sequence[int]) -> Self:
        assert len(ports) == plan.ports_wanted
        count, found = plan.nodes, [f"{HOST}:{port}" for port in ports]
        return cls(
            nodes=dict(zip(plan.ids, found[:count], strict=True)),
            bridges=dict(zip(plan.ids, found[count : 2 * count], strict=True)),
            wires=dict(zip(plan.links if plan.wires else (), ports[2 * count :], strict=True)),
        )

    @classmethod
    def in_namespaces(cls, plan: Plan, block: str) -> Self:
        return cls(
            nodes={id_: f"{address_of(block, id_)}:{PORT}" for id_ in plan.ids},
            bridges={id_: f"{PEERS}.{id_}:{PEER_PORT}" for id_ in plan.ids},
            wires={},
        )


def way_between(links: Collection[Pair], one: int, other: int) -> tuple[int, ...]:
    """A shortest one, with both ends."""
    before, waiting = {one: 0}, [one]
    for each in waiting:
        for pair in links:
            for next_ in {*pair} - before.keys() if each in pair else ():
                before[next_] = each
                waiting.append(next_)
    found = [other]
    while found[-1] != one:
        found.append(before[found[-1]])
    return tuple(reversed(found))


def address_of(block: str, id_: int, *, host: bool = False) -> str:
    """Of a machine in a namespace, or of the host as that machine sees it."""
    return f"{block}.{4 * id_ + (1 if host else 2)}"


def name_of(id_: int) -> str:
    return f"m{id_}"


def pairs_of(text: str) -> tuple[Pair, ...]:
    """Links as people list them: m1-m2,m2-m3.

    Raises:
        Refused: they cannot be read.
    """
    found: list[Pair] = []
    for each in text.split(","):
        match = re.fullmatch(r"m(\d{1,3})-m(\d{1,3})", each.strip())
        if match is None or match[1] == match[2]:
            raise Refused(f"{each.strip()!r} is no link between two machines: write m1-m2,m2-m3")
        one, other = int(match[1]), int(match[2])
        found.append((min(one, other), max(one, other)))
    return tuple(found)


def cluster_text(plan: Plan, places: Places, own: int, secret: str = "") -> str:
    """The cluster file as machine `own` has it; 0: as it is without wires."""
    return "\n".join(_lines(plan, places, own, secret))


def _lines(plan: Plan, places: Places, own: int, secret: str) -> Iterator[str]:
    yield "[cluster]"
    yield f'durability = "{plan.durability}"'
    if secret:
        yield f'secret = "{secret}"'
    pairs = ", ".join(f'["{name_of(low)}", "{name_of(high)}"]' for low, high in plan.links)
    shape = plan.topology in SHAPES and not plan.listed
    yield f'links = "{plan.topology}"' if shape else f"links = [{pairs}]"
    for id_ in plan.ids:
        wire = places.wires.get((own, id_))
        yield ""
        yield f"[members.{name_of(id_)}]"
        yield f"id = {id_}"
        yield f'address = "tcp://{f"{HOST}:{wire}" if wire else places.bridges[id_]}"'
        yield f'url = "duck://{places.nodes[id_]}"'
        if plan.voters and id_ > plan.voters:
            yield "votes = 0"
    yield ""


def _unreached(ids: Sequence[int], links: Sequence[Pair]) -> list[int]:
    reached = {ids[0]}
    for _ in ids:  # no way is longer
        reached |= {each for pair in links if reached & {*pair} for each in pair}
    return [id_ for id_ in ids if id_ not in reached]
