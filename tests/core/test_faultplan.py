"""Plans of faults: what a seed says, and what a cluster lets happen."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.cluster.faultplan import (
    HURT_SECONDS,
    KINDS,
    OF_DISKS,
    SCENARIOS,
    Ground,
    faults,
    possible,
)
from duckrow.node.clusterfile import shaped
from duckrow.node.errors import NotFound, Refused

NAMES = tuple(f"m{id_}" for id_ in range(1, 6))


def ground(nodes: int = 3, topology: str = "mesh", **impossible: str) -> Ground:
    ids = tuple(range(1, nodes + 1))
    why = {kind.replace("_", "-"): reason for kind, reason in impossible.items()}
    return Ground(NAMES[:nodes], tuple(shaped(topology, ids)), why)


def test_a_seed_is_one_plan() -> None:
    one, again = (list(islice(faults(7, "all", ground()), 200)) for _ in range(2))

    assert one == again
    assert one != list(islice(faults(8, "all", ground()), 200))


def test_what_is_impossible_is_left_out_of_a_plan_and_changes_nothing_else_of_it() -> None:
    all_of_it = list(islice(faults(7, "all", ground()), 200))
    without = list(islice(faults(7, "all", ground(flip="why not", one_way="why not")), 150))

    left = [fault for fault in all_of_it if fault.kind not in ("flip", "one-way")]
    assert len(left) < len(all_of_it)
    assert without[: len(left)] == left[: len(without)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_has_its_kinds_and_no_others(scenario: str) -> None:
    drawn = {fault.kind for fault in islice(faults(1, scenario, ground()), 500)}

    assert drawn == set(SCENARIOS[scenario])


def test_every_kind_is_in_a_scenario_of_its_own_or_in_one_with_its_like() -> None:
    others = [weights for name, weights in SCENARIOS.items() if name != "all"]

    assert set().union(*others) == set(KINDS) == set(SCENARIOS["all"])


@given(
    st.integers(0, 1 << 32),
    st.integers(3, 5),
    st.sampled_from(["mesh", "chain", "ring", "star"]),
)
def test_whatever_is_drawn_concerns_what_is_there_and_ends(
    seed: int, nodes: int, topology: str
) -> None:
    there = ground(nodes, topology)
    links = {(f"m{low}", f"m{high}") for low, high in there.links}
    for fault in islice(faults(seed, "all", there), 100):
        assert set(fault.machines) <= set(there.machines)
        assert 0 <= fault.hurt <= HURT_SECONDS
        assert all(pair in links or pair[::-1] in links for pair in fault.links)
        if fault.kind == "isolate":
            assert len(fault.machines) < nodes / 2


@given(st.integers(0, 1 << 32), st.integers(3, 5))
def test_disks_of_a_minority_alone_are_hurt(seed: int, nodes: int) -> None:
    hurt = {
        machine
        for fault in islice(faults(seed, "all", ground(nodes)), 300)
        if fault.kind in OF_DISKS
        for machine in fault.machines
    }

    assert len(hurt) < nodes / 2


def test_those_who_are_isolated_have_no_link_to_anybody_else() -> None:
    for fault in islice(faults(3, "isolate", ground(5, "chain")), 50):
        for one, other in (("m1", "m2"), ("m2", "m3"), ("m3", "m4"), ("m4", "m5")):
            leads_out = (one in fault.machines) != (other in fault.machines)
            assert leads_out == ((one, other) in fault.links)


def test_what_cannot_be_had_is_left_out_of_all_and_refused_by_itself() -> None:
    there = ground(disk_full="they share a disk")

    assert "disk-full" not in possible("all", there)
    with pytest.raises(Refused, match="disk-full cannot be had here: they share a disk"):
        possible("disk-full", there)


def test_two_machines_have_no_minority_to_be_hurt() -> None:
    assert "isolate" not in possible("all", ground(2))
    with pytest.raises(Refused, match="isolate cannot be had here: it needs three machines"):
        possible("isolate", ground(2))


def test_a_scenario_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(NotFound, match="no scenario 'flood': kill, power, pause"):
        possible("flood", ground())


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_says_in_a_sentence_what_it_does_to_whom(kind: str) -> None:
    fault = next(f for f in faults(5, "all", ground()) if f.kind == kind)

    assert kind == "power" or all(machine in str(fault) for machine in fault.machines)
