"""What a local cluster consists of, before anything of it is there."""

from __future__ import annotations

import pytest

from duckrow.cluster.plan import NODES_MAX, Plan, Ports, Wires, cluster_text
from duckrow.node.clusterfile import read_cluster
from duckrow.node.errors import Refused


def ports_of(plan: Plan) -> Ports:
    return Ports.of(plan, range(20_001, 20_001 + plan.ports_wanted))


@pytest.mark.parametrize("topology", ["chain", "ring", "star", "mesh"])
def test_its_cluster_file_has_its_machines_and_links(topology: str) -> None:
    plan = Plan(nodes=4, topology=topology, durability="write")
    found = read_cluster(cluster_text(plan, ports_of(plan), 0), "cluster.toml")

    assert [peer.name for peer in found.peers.values()] == ["m1", "m2", "m3", "m4"]
    assert found.links == {*plan.links}
    assert found.durability == "write"


def test_who_dials_over_a_wire_has_its_address_and_nobody_else() -> None:
    plan = Plan(nodes=3, topology="chain", wires=Wires())
    ports = ports_of(plan)

    def port(own: int, other: int) -> int:
        file = read_cluster(cluster_text(plan, ports, own), "cluster.toml")
        return file.peers[other].address.port

    assert port(1, 2) == ports.wires[1, 2]
    assert port(2, 3) == ports.wires[2, 3]
    assert [port(own, own) for own in (1, 2, 3)] == [*ports.bridges.values()]
    assert port(2, 1) == ports.bridges[1]
    assert port(0, 2) == ports.bridges[2]


def test_no_port_is_given_twice() -> None:
    plan = Plan(nodes=5, wires=Wires())
    ports = ports_of(plan)
    given = [*ports.nodes.values(), *ports.bridges.values(), *ports.wires.values()]

    assert len({*given}) == plan.ports_wanted == 5 + 5 + 10


@pytest.mark.parametrize("nodes", [0, NODES_MAX + 1])
def test_a_cluster_that_is_too_large_or_none_is_refused(nodes: int) -> None:
    with pytest.raises(Refused, match=f"not {nodes}"):
        Plan(nodes=nodes)


def test_a_topology_that_is_none_is_refused() -> None:
    with pytest.raises(Refused, match="'line' is no topology: mesh, chain, ring, star"):
        Plan(topology="line")
