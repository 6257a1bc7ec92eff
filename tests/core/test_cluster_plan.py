"""What a local cluster consists of, before anything of it is there."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from duckrow.cluster.plan import NODES_MAX, Places, Plan, Wires, cluster_text, pairs_of
from duckrow.node.clusterfile import read_cluster
from duckrow.node.errors import Refused


def places_of(plan: Plan) -> Places:
    if plan.namespaces:
        return Places.in_namespaces(plan, "10.64.7")
    return Places.on_loopback(plan, range(20_001, 20_001 + plan.ports_wanted))


@pytest.mark.parametrize("topology", ["chain", "ring", "star", "mesh", "tree"])
def test_its_cluster_file_has_its_machines_and_links(topology: str) -> None:
    plan = Plan(nodes=4, topology=topology, durability="write")
    found = read_cluster(cluster_text(plan, places_of(plan), 0), "cluster.toml")

    assert [peer.name for peer in found.peers.values()] == ["m1", "m2", "m3", "m4"]
    assert found.links == {*plan.links}
    assert found.durability == "write"


def test_who_dials_over_a_wire_has_its_address_and_nobody_else() -> None:
    plan = Plan(nodes=3, topology="chain", wires=Wires())
    places = places_of(plan)

    def place(own: int, other: int) -> str:
        address = read_cluster(cluster_text(plan, places, own), "cluster.toml").peers[other].address
        return f"{address.host}:{address.port}"

    assert place(1, 2) == f"127.0.0.1:{places.wires[1, 2]}"
    assert place(2, 3) == f"127.0.0.1:{places.wires[2, 3]}"
    assert [place(own, own) for own in (1, 2, 3)] == [*places.bridges.values()]
    assert place(2, 1) == places.bridges[1]
    assert place(0, 2) == places.bridges[2]


def test_no_port_is_given_twice() -> None:
    plan = Plan(nodes=5, wires=Wires())
    places = places_of(plan)
    wires = [f"127.0.0.1:{port}" for port in places.wires.values()]
    given = [*places.nodes.values(), *places.bridges.values(), *wires]

    assert len({*given}) == plan.ports_wanted == 5 + 5 + 10


def test_in_namespaces_machines_have_addresses_of_their_own_and_no_ports_of_this_host() -> None:
    plan = Plan(nodes=3, namespaces=True, wires=Wires(is_flipped=0.1))
    places = places_of(plan)
    found = read_cluster(cluster_text(plan, places, 2, "0123456789abcdef"), "cluster.toml")

    assert plan.ports_wanted == 0
    assert [str(peer.address) for peer in found.peers.values()] == [
        "tcp://10.99.0.1:3826",
        "tcp://10.99.0.2:3826",
        "tcp://10.99.0.3:3826",
    ]
    assert places.nodes[3] == "10.64.7.14:3825"
    assert found.secret == b"0123456789abcdef"


def test_a_tree_branches_in_two_and_other_links_are_listed() -> None:
    assert Plan(nodes=5, topology="tree").links == ((1, 2), (1, 3), (2, 4), (2, 5))
    assert Plan(nodes=3, listed=((2, 3), (1, 3))).links == ((1, 3), (2, 3))


@pytest.mark.parametrize(
    ("topology", "way"),
    [("chain", (2, 3, 4, 5)), ("ring", (2, 1, 5)), ("star", (2, 1, 5)), ("mesh", (2, 5))],
)
def test_the_way_between_two_machines_is_a_shortest_one(
    topology: str, way: tuple[int, ...]
) -> None:
    plan = Plan(nodes=5, topology=topology)

    assert plan.way(2, 5) == way
    assert plan.way(5, 2) == way[::-1]
    assert plan.way(3, 3) == (3,)


def test_those_behind_the_voters_have_no_votes() -> None:
    plan = Plan(nodes=4, voters=3)
    found = read_cluster(cluster_text(plan, places_of(plan), 0), "cluster.toml")

    assert [peer.votes for peer in found.peers.values()] == [1, 1, 1, 0]


def test_a_plan_is_the_same_when_it_was_told() -> None:
    plan = Plan(nodes=3, listed=((1, 2), (2, 3)), wires=Wires(delay=0.01, loss=0.1), voters=2)

    assert Plan.told(json.loads(json.dumps(attrs.asdict(plan)))) == plan


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"listed": ((1, 4),)}, "no link between m1 and m4"),
        ({"listed": ((1, 2),)}, "do not reach m3"),
        ({"voters": 4}, "4 of 3 nodes cannot vote"),
        ({"wires": Wires(is_flipped=0.5)}, "only in namespaces"),
        ({"nodes": 21, "wires": Wires()}, "210 links are more than the 200"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        Plan(**{"nodes": 3, **wrong})


def test_a_link_that_is_made_worse_keeps_what_was_wrong_with_it() -> None:
    found = Wires(delay=0.5, rate=1e6, loss=0.5).worse(Wires(delay=0.25, jitter=0.01, loss=0.5))

    assert found == Wires(delay=0.75, jitter=0.01, rate=1e6, loss=0.75)
    assert Wires().worse(Wires(loss=0.25)).loss == 0.25


def test_no_link_loses_all() -> None:
    with pytest.raises(Refused, match="loss of links is 1"):
        Wires(loss=1.0)


@pytest.mark.parametrize("nodes", [0, NODES_MAX + 1])
def test_a_cluster_that_is_too_large_or_none_is_refused(nodes: int) -> None:
    with pytest.raises(Refused, match=f"not {nodes}"):
        Plan(nodes=nodes)


def test_a_topology_that_is_none_is_refused() -> None:
    with pytest.raises(Refused, match="'line' is no topology: mesh, chain, ring, star, tree"):
        Plan(topology="line")


def test_links_are_listed_as_people_write_them() -> None:
    assert pairs_of("m1-m2, m3-m2") == ((1, 2), (2, 3))


@pytest.mark.parametrize("text", ["", "m1", "m1-m1", "m1-x", "m1-m2,", "m1-m2-m3"])
def test_a_list_of_links_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="no link between two machines: write m1-m2,m2-m3"):
        pairs_of(text)
