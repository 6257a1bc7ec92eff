"""How long the ordering takes, in simulated time: hops of 10 ms, syncs of 1 ms, nothing else.

So these are counts of hops and syncs, the same on every machine.  And what others notice of a node that
dies, restarts all the time, or has a bad link.
"""

from __future__ import annotations

import pytest

from duckrow.node import makers
from duckrow.node.makers import Turn
from sim.protocol_plan import Plan, lines
from sim.protocol_world import World

HOP, SYNC = 0.010, 0.001


def cluster(count: int, topology: str, hop: float = HOP) -> World:
    """Founded, and idle."""
    voters = tuple(range(1, count + 1))
    edges = tuple(sorted(lines(list(voters), topology)))
    plan = Plan(
        seed=1,
        profile="mixed",
        voters=voters,
        observers=(),
        topology=topology,
        edges=edges,
        level="fsync",
        weights=dict.fromkeys(voters, 1),
        witnesses=(),
        delays=dict.fromkeys(edges, (hop, hop)),
        sync=dict.fromkeys(voters, SYNC),
        grace=0.05,
        acks_overtake=False,
        slack=0,
        faults=(),
        pace=(1, 1),
        snipers={},
        fatal=0,
        seconds=0,
        producers=(),
    )
    world = World(plan)
    world.run_until(2.0)
    assert all(machine.up.standing.active for machine in world.machines.values())
    return world


class User:
    """Sends entries, one by one, and knows when each is ordered at its node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent = 0
        self.took: list[float] = []

    def produce(self, id_: int) -> None:
        self.sent += 1
        turn = Turn(self.sent.to_bytes(16, "big"), 1)
        command = makers.produce(turn, "t", b"%d" % self.sent, 1)
        machine, since = self.world.machines[id_], self.world.now
        machine.node.waits(command, lambda result: self.took.append(self.world.now - since))
        self.world.feed(id_, lambda member: member.submit([command]))


def hops(world: World, id_: int) -> list[float]:
    """From producing at this node until each node has it, in hops; the syncs taken off."""
    length = len(world.ledger.row)
    began = world.now
    User(world).produce(id_)
    seen: dict[int, float] = {}
    while len(seen) < len(world.machines):
        world.run_until(world.now + 0.0001)
        for each, machine in world.machines.items():
            if len(machine.row) > length:
                seen.setdefault(each, world.now)
    return [round((seen[each] - began - SYNC) / HOP, 1) for each in sorted(seen)]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_in_a_mesh_an_entry_is_everywhere_after_two_hops_and_a_sync(count: int) -> None:
    assert max(hops(cluster(count, "mesh"), 1)) == 2.0


def test_in_a_chain_the_way_there_and_back_counts() -> None:
    world = cluster(5, "chain")

    assert hops(world, 3) == [6.0, 5.0, 4.0, 5.0, 6.0]  # the acks of one end go to the other
    assert hops(world, 1)[0] == 8.0


def test_in_a_chain_the_far_end_is_first_to_know() -> None:
    """The acks of all ride along behind the entry: it is final where it ends."""
    assert hops(cluster(3, "chain"), 1)[2] < hops(cluster(3, "chain"), 1)[0]


@pytest.mark.parametrize("topology", ["mesh", "ring", "chain"])
def test_each_bundle_goes_over_as_few_links_as_there_are_others(topology: str) -> None:
    world = cluster(4, topology)
    before = world.net.sent["Bundle"]
    hops(world, 2)

    assert world.net.sent["Bundle"] - before == 3


def lost_time(world: World, fail: str) -> float:
    """How long an entry takes that is produced as another node fails."""
    user = User(world)
    world.kill(3, fail)
    if fail == "kill":
        world.after(0.02, world.start, 3)
    user.produce(1)
    while not user.took:
        world.run_until(world.now + 0.01)
    return user.took[0]


def test_a_restart_costs_a_view_change_and_no_patience() -> None:
    assert lost_time(cluster(3, "mesh", 0.001), "kill") < 0.6  # it would be missed after 0.8 s


def test_a_silent_death_is_noticed_and_mended_within_a_second_or_so() -> None:
    assert 0.8 < lost_time(cluster(3, "mesh", 0.001), "power") < 1.2


def test_one_that_restarts_all_the_time_does_not_stop_the_others() -> None:
    """Every return is a view change; what it drops is sent again, and the rest goes on between."""
    world = cluster(3, "mesh", 0.001)
    user = User(world)
    for _ in range(66):  # twenty seconds
        world.kill(3, "kill")
        world.after(0.02, world.start, 3)
        for _ in range(3):
            user.produce(1)
            user.produce(2)
            world.run_until(world.now + 0.1)
    world.run_until(world.now + 1.0)

    assert len(user.took) == user.sent
    assert sorted(user.took)[len(user.took) // 2] < 0.5
    assert max(user.took) < 3.0


@pytest.mark.parametrize("hop", [0.04, 0.05])
def test_who_comes_back_at_the_far_end_of_slow_links_is_let_in_and_views_come_to_rest(
    hop: float,
) -> None:
    """V3: There was no time to wait for it, so each view left it out, and it asked again (seed 790040)."""
    world = cluster(5, "chain", hop)
    world.kill(5, "kill")
    world.after(0.02, world.start, 5)
    world.run_until(world.now + 5.0)
    views = max(world.ledger.views)

    assert world.machines[5].up.standing.active
    assert views <= 4
    world.run_until(world.now + 5.0)
    assert max(world.ledger.views) == views


def test_a_link_that_comes_and_goes_removes_nobody() -> None:
    world = cluster(4, "ring", 0.001)
    user = User(world)
    for _ in range(100):  # ten seconds
        world.net.cut((1, 2), silent=False)
        user.produce(1)
        world.run_until(world.now + 0.05)
        world.net.mend((1, 2))
        user.produce(2)
        world.run_until(world.now + 0.05)
    world.run_until(world.now + 1.0)

    assert len(user.took) == user.sent
    assert max(world.ledger.views) == 1
