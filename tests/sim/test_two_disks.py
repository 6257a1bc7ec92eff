"""Two machines with one id, each over a link of its own: a machine was moved, and the old one still runs."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from duckrow.bridge.links import Neighbour
from duckrow.bridge.options import BridgeOptions
from sim import clusterkit
from sim.clusterkit import PORT, Cluster, OneMachine, mesh, name
from sim.test_cluster import play

MOVED = 33  # where 3 is now, as the file of 1 says; that of 2 says what it did
OPTIONS_OF = clusterkit.options_of


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Of these machines, in which 3 was moved."""
    found = set[int]()

    def options_of(env: Any, links: Any, id_: int, *rest: Any, **more: Any) -> BridgeOptions:
        options = OPTIONS_OF(env, links, 3 if id_ == MOVED else id_, *rest, **more)
        if id_ not in found:
            return options
        there = {3: Neighbour(3, name(MOVED), PORT)}
        return attrs.evolve(options, neighbours={**options.neighbours, **there})

    monkeypatch.setattr(clusterkit, "options_of", options_of)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_two_that_take_the_place_of_each_other_do_so_later_each_time(
    seed: int, files: set[int]
) -> None:
    """S6: There were three views a second, for ever, and nobody was told."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        files.add(1)
        cluster.world.start(name(MOVED), OneMachine(cluster, MOVED).main)
        cluster.kill(1)
        cluster.start(1)
        await trio.sleep(20)
        standing = cluster.machines[2].bridge.member.standing
        views, answered = standing.newest.id, len(cluster.answered)
        await trio.sleep(20)
        assert standing.newest.id < views + 15
        assert len(cluster.answered) > answered + 50
        said = "m2 alarm text=node 3 has a disk that it had before: two machines may have its id"
        assert any(said in each for each in cluster.notes)
        cluster.world.kill(name(3))
        cluster.machines.pop(3, None)
        files.add(2)
        cluster.kill(2)
        cluster.start(2)
        await cluster.until_active(1, 2, MOVED, seconds=60)

    play(seed, lambda world: Cluster(world, mesh(3), pause=0.2), script)


def test_a_disk_that_is_lost_again_and_again_is_taken_for_no_other_machine() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        for _ in range(3):
            cluster.kill(3)
            cluster.wipe(3)
            cluster.start(3)
            await cluster.until_active(seconds=3)
        await trio.sleep(1)
        await cluster.settled()
        assert not any("alarm" in each for each in cluster.notes)

    play(3, lambda world: Cluster(world, mesh(3), pause=0.2), script)
