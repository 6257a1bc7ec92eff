"""Who votes is changed by an operator, at any machine, while all of them produce."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from duckrow.bridge.admin import Admin
from duckrow.bridge.founding import Listed
from duckrow.bridge.messages import Change
from duckrow.node.errors import Corrupt, NoQuorum, Refused, Timeout
from sim.clusterkit import Cluster, Links, mesh
from sim.pairkit import Split
from sim.test_cluster import play
from sim.world import World

OTHERS: Links = mesh(4)
SWAPPED: dict[int, str] = {1: "2", 2: "1", 3: "m3"}


async def ask(cluster: Cluster, id_: int, what: str, **asked: Any) -> dict[str, Any]:
    return await Admin(cluster.machines[id_].bridge).answer({"what": what, **asked})


def weights(found: dict[str, Any]) -> dict[str, int]:
    return {node["name"]: node["weight"] for node in found["nodes"]}


def with_an_observer(world: World) -> Cluster:
    return Cluster(world, OTHERS, observers=(4,))


def test_a_machine_is_added_replaced_weighed_and_retired_while_all_produce() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        found = await ask(cluster, 2, "add", node="m4", weight=1)
        assert weights(found) == {"m1": 1, "m2": 1, "m3": 1, "m4": 1}
        await cluster.until_active(1, 2, 3, 4)
        found = await ask(cluster, 4, "weight", node="m1", weight=3)
        assert weights(found)["m1"] == 3
        await cluster.until_active(1, 2, 3, 4)
        found = await ask(cluster, 3, "retire", node="m3")
        assert weights(found) == {"m1": 3, "m2": 1, "m3": 0, "m4": 1}
        await cluster.until_active(1, 2, 4)
        cluster.kill(2)
        found = await ask(cluster, 1, "replace", node="m3", instead_of="m2")
        assert weights(found) == {"m1": 3, "m2": 0, "m3": 1, "m4": 1}
        await cluster.until_active(1, 3, 4)
        for machine in cluster.machines.values():
            machine.producing = False
        await trio.sleep(2)
        cluster.check()
        assert {node["state"] for node in found["nodes"]} <= {"acts", "waits", "catches up", "away"}

    cluster = play(3, with_an_observer, script)
    assert len(cluster.answered) > 50


def test_the_file_and_the_view_are_shown_side_by_side() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(1)
        found = await ask(cluster, 3, "members")
        nodes = {node["name"]: node for node in found["nodes"]}
        assert [nodes[f"m{i}"]["state"] for i in range(1, 5)] == ["acts", "acts", "acts", "follows"]
        assert nodes["m4"]["listed"] == nodes["m4"]["weight"] == 0
        assert (found["min_copies"], found["durability"]) == (1, "fsync")
        await ask(cluster, 1, "retire", node="m3")
        await trio.sleep(0.5)
        cluster.kill(4)
        await trio.sleep(1)
        nodes = {node["name"]: node for node in (await ask(cluster, 1, "members"))["nodes"]}
        assert (nodes["m3"]["listed"], nodes["m3"]["weight"]) == (1, 0)
        assert nodes["m4"]["state"] == "away"
        cluster.kill(2)
        await trio.sleep(3)
        found = await ask(cluster, 1, "members")
        states = {node["name"]: node["state"] for node in found["nodes"]}
        assert not found["active"]
        assert (states["m1"], states["m2"]) == ("waits", "away"), "it does not act alone"

    play(4, with_an_observer, script)


REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("weight", {"node": "m4"}, "m4 has no vote"),
    ("retire", {"node": "m9"}, "no member 'm9': there are m1, m2, m3, m4"),
    ("add", {"node": "m2", "weight": 2}, "m2 has a vote already, of weight 1"),
    ("add", {"node": "m2", "witness": True}, "m2 has a vote already"),
    ("add", {"node": "m4", "weight": 0}, "a weight is 1 or more"),
    ("weight", {"node": "m1", "weight": 0}, "`member retire` takes the vote away"),
    ("weight", {"node": "m1", "weight": 9999}, "a weight is at most 1000"),
    ("replace", {"node": "m4", "instead_of": "m4"}, "m4 has no vote"),
    ("replace", {"node": "m1", "instead_of": "m2"}, "m1 has a vote already"),
    ("set", {"min_copies": 4}, "4 copies are the least"),
    ("set", {"durability": "paper"}, "'paper' is none of"),
    ("set", {}, "nothing is to be set"),
    ("promote", {"node": "m1"}, "'promote'"),
]


def test_what_may_not_be_is_refused_with_the_reason_and_changes_no_view() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        for what, asked, why in REFUSALS:
            with pytest.raises(Refused, match=why):
                await ask(cluster, 1, what, **asked)
        wrong: list[dict[str, Any]] = [{"seconds": -1}, {"seconds": "x"}, {"weight": "1"}]
        for asked in wrong:
            with pytest.raises(Corrupt):
                await ask(cluster, 1, "weight", node="m1", **asked)
        cluster.kill(4)
        await trio.sleep(1)
        with pytest.raises(Refused, match="m4 is not reached"):
            await ask(cluster, 1, "add", node="m4")
        assert (await ask(cluster, 1, "members"))["view"] == 1

    play(5, with_an_observer, script)


def test_a_machine_called_by_the_id_of_another_is_the_one_that_is_meant() -> None:
    """The other one lost its vote, and its place among those that keep what is acknowledged."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        bridge = cluster.machines[3].bridge
        listed = {id_: Listed(name, 1, witness=False) for id_, name in SWAPPED.items()}
        bridge.options = attrs.evolve(bridge.options, listed=listed)
        found = await ask(cluster, 3, "retire", node="1")
        assert weights(found) == {"1": 0, "2": 1, "m3": 1}
        assert weights(await ask(cluster, 3, "weight", node="3", weight=2))["m3"] == 2

    play(20, lambda world: Cluster(world, mesh(3)), script)


def test_without_a_majority_nothing_is_changed_and_the_reason_is_told() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start(1)
        await trio.sleep(0.5)
        with pytest.raises(NoQuorum, match="no cluster yet"):
            await ask(cluster, 1, "retire", node="3")
        for id_ in (2, 3):
            cluster.start(id_)
        await cluster.until_active()
        cluster.kill(2)
        cluster.kill(3)
        await trio.sleep(3)
        with pytest.raises(
            Refused, match="no majority would be left: of a weight of 2 voters with 1"
        ):
            await ask(cluster, 1, "retire", node="m3")

    play(6, lambda world: Cluster(world, mesh(3)), script)


def test_who_has_not_caught_up_is_not_added_yet_and_that_is_told() -> None:
    async def script(cluster: Cluster) -> None:
        for id_ in (1, 2, 3):
            cluster.start(id_)
        await cluster.until_active(1, 2, 3)
        for machine in cluster.machines.values():
            timing = attrs.evolve(machine.bridge.options.timing, lag_items=-1)
            machine.bridge.member.standing.timing = timing
        cluster.start(4)
        await trio.sleep(2)
        with pytest.raises(Timeout, match=r"m4 has come to position [\d,]+ of"):
            await ask(cluster, 1, "add", node="m4", seconds=2)

    play(8, with_an_observer, script)


def test_a_node_asks_its_bridge() -> None:
    async def script(world: World) -> None:
        split = Split(world, mesh(3))
        split.start_all()
        await trio.sleep(3)
        found = await split.nodes[2].row.administer({"what": "retire", "node": "m1"})
        assert weights(found) == {"m1": 0, "m2": 1, "m3": 1}
        with pytest.raises(Refused, match="m1 has no vote"):
            await split.nodes[3].row.administer({"what": "weight", "node": "m1"})

    World(9).run(script)


CHANGES: list[dict[str, Any]] = [
    {"what": "retire", "node": "m1"},
    {"what": "add", "node": "m1", "weight": 2},
    {"what": "retire", "node": "m3"},
    {"what": "replace", "node": "m3", "instead_of": "m1"},
]


def test_a_change_whose_answer_was_lost_with_the_bridge_is_told_as_done_when_it_is_asked_again() -> (
    None
):
    """It was refused: who was added had a vote already, and who was retired had none."""

    async def script(world: World) -> None:
        split = Split(world, mesh(3))
        split.start_all()
        await trio.sleep(3)
        told: list[dict[str, int]] = []

        async def administer(asked: dict[str, Any]) -> None:
            told.append(weights(await split.nodes[2].row.administer(asked)))

        for count, asked in enumerate(CHANGES):
            async with trio.open_nursery() as nursery:
                view = split.bridges[2].member.standing.newest.id
                nursery.start_soon(administer, asked)
                while split.bridges[2].member.standing.newest.id == view:
                    await trio.sleep(0.01)
                split.kill("m", 2)
                assert len(told) == count
                split.start_bridge(2)
            await trio.sleep(3)
        assert told[-1] == {"m1": 0, "m2": 1, "m3": 2}

    World(9).run(script)


def calm(world: World) -> Cluster:
    return Cluster(world, OTHERS, pause=0.1, observers=(4,))


async def disaster(cluster: Cluster) -> None:
    """Only 1 is left, and nobody can decide."""
    cluster.start_all()
    await cluster.until_active()
    await trio.sleep(1)
    for id_ in (2, 3, 4):
        cluster.kill(id_)
    await trio.sleep(3)


def test_one_machine_goes_on_when_the_others_are_gone_and_they_come_back_wiped() -> None:
    async def script(cluster: Cluster) -> None:
        await disaster(cluster)
        found = await ask(cluster, 1, "members")
        assert found["waits"] == "of a weight of 3 voters with 1 seem to run: m2, m3 are missing"
        assert found["exact"]
        before = len(cluster.answered)
        after = await ask(cluster, 1, "force-view", node="m1", view=found["view"])
        assert weights(after) == {"m1": 1, "m2": 0, "m3": 0, "m4": 0}
        assert after["cluster"] != found["cluster"]
        assert after["lineage"] != found["lineage"]
        await trio.sleep(1)
        assert len(cluster.answered) > before + 3
        cluster.start(2)  # as it was
        await trio.sleep(3)
        assert any("m2" in note and "belongs to cluster" in note for note in cluster.notes)
        assert cluster.machines[2].end < cluster.machines[1].end
        cluster.kill(2)
        cluster.kill(1)
        cluster.start(1)
        for id_ in (2, 3, 4):
            cluster.wipe(id_)
            cluster.start(id_)
        await cluster.until_active(1)
        await trio.sleep(2)
        for id_ in (2, 3):
            await ask(cluster, 1, "add", node=f"m{id_}")
            await cluster.until_active(1, id_)
        assert (await ask(cluster, 3, "members"))["waits"] == ""
        await trio.sleep(1)
        await cluster.settled()

    play(11, calm, script)


def test_nothing_is_forced_where_it_need_not_be_or_is_not_meant() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start(1)
        await trio.sleep(0.5)
        with pytest.raises(Refused, match="no row to go on with"):
            await ask(cluster, 1, "force-view", node="m1", view=0)
        cluster.kill(1)
        await disaster(cluster)
        view = (await ask(cluster, 1, "members"))["view"]
        for node, number, why in (("m2", view, "this is m1"), ("m1", view + 1, "look again")):
            with pytest.raises(Refused, match=why):
                await ask(cluster, 1, "force-view", node=node, view=number)
        cluster.start(2)
        await cluster.until_active(1)
        with pytest.raises(Refused, match="nothing has to be forced"):
            await ask(cluster, 1, "force-view", node="m1", view=view)

    play(12, calm, script)


def test_who_follows_machines_that_act_cannot_be_forced_away_from_them() -> None:
    """It began a cluster of its own beside one that was well, and its disk had to be wiped."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(1)
        view = (await ask(cluster, 4, "members"))["view"]
        with pytest.raises(Refused, match=f"m1, m2, m3 act in view {view}, so nothing has to be"):
            await ask(cluster, 4, "force-view", node="m4", view=view)
        for id_ in (1, 2, 3):
            cluster.kill(id_)
        await trio.sleep(1)
        found = await ask(cluster, 4, "force-view", node="m4", view=view)
        assert weights(found) == {"m1": 0, "m2": 0, "m3": 0, "m4": 1}
        await cluster.until_active(4)

    play(19, with_an_observer, script)


def test_with_too_few_copies_nothing_is_ordered_and_that_is_told() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        await ask(cluster, 1, "set", min_copies=3)
        await cluster.until_active()
        cluster.kill(3)
        await trio.sleep(3)
        answered, found = len(cluster.answered), await ask(cluster, 2, "members")
        assert found["waits"] == "3 copies are the least that may be: m3 is missing"
        await trio.sleep(5)
        assert len(cluster.answered) == answered
        again = await ask(cluster, 2, "members")
        assert (again["view"], again["position"]) == (found["view"], found["position"])
        await ask(cluster, 2, "set", min_copies=2)
        await cluster.until_active(1, 2)
        await trio.sleep(0.5)
        assert len(cluster.answered) > answered
        cluster.start(3)
        await cluster.until_active()
        await trio.sleep(1)
        await cluster.settled()

    play(13, calm, script)


WISHES: list[tuple[str, dict[str, Any], str]] = [
    ("retire", {"node": "m2"}, "no majority would be left: of a weight of 2 voters with 1"),
    ("weight", {"node": "m3", "weight": 5}, "no majority would be left: of a weight of 7 voters"),
    ("set", {"min_copies": 3}, "only 2 of the voters that keep the row run, and have caught up"),
]


@pytest.mark.parametrize(("what", "asked", "why"), WISHES)
def test_what_needs_a_machine_that_still_catches_up_is_refused_and_changes_no_view(
    what: str, asked: dict[str, Any], why: str
) -> None:
    """It runs, and cannot be a member of the next view: each ballot ended in one without the wish."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        cluster.kill(3)
        await trio.sleep(2)
        for machine in cluster.machines.values():
            timing = attrs.evolve(machine.bridge.options.timing, lag_items=-1)
            machine.bridge.member.standing.timing = timing
        cluster.start(3)
        await trio.sleep(2)
        found = await ask(cluster, 1, "members")
        assert [node["state"] for node in found["nodes"]] == ["acts", "acts", "catches up"]
        with pytest.raises(Refused, match=why):
            await ask(cluster, 1, what, **asked)
        calling = cluster.machines[1].bridge.member.calling
        for _ in range(8):  # somebody who sees less asks all the same
            calling.hear_change(Change(found["view"], 2))
            await trio.sleep(0.25)
        assert (await ask(cluster, 1, "members"))["view"] == found["view"]

    play(14, lambda world: Cluster(world, mesh(3)), script)


def test_a_weight_for_a_machine_that_another_operator_retires_gives_it_no_vote_again() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        bridge = cluster.machines[2].bridge
        wish = bridge.wish

        def late(change: Change) -> None:
            if change.view > 1:  # what it says before goes astray
                wish(change)

        bridge.wish = late  # type: ignore[method-assign]

        async def weigh() -> None:
            with pytest.raises(Refused, match="m3 has no vote in view 2"):
                await ask(cluster, 2, "weight", node="m3", weight=2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(weigh)
            await trio.sleep(0.01)
            await ask(cluster, 1, "retire", node="m3")
        await trio.sleep(2)
        assert weights(await ask(cluster, 1, "members"))["m3"] == 0

    play(15, lambda world: Cluster(world, mesh(3)), script)


def test_what_has_been_asked_for_and_may_still_come_is_not_told_as_refused() -> None:
    """Its machine is cut off while the others decide on it, and sees no majority any more."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)

        async def weigh() -> None:
            with pytest.raises(Timeout, match=r"no majority would be left.*it may still come"):
                await ask(cluster, 3, "weight", node="m1", weight=3, seconds=5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(weigh)
            while cluster.machines[1].bridge.member.calling.change() is None:
                await trio.sleep(0.001)
            cluster.world.net.partition(["m3"], ["m1", "m2"])
        assert weights(await ask(cluster, 1, "members"))["m1"] == 3
        assert weights(await ask(cluster, 3, "members"))["m1"] == 1

    play(16, lambda world: Cluster(world, mesh(3)), script)


def test_who_came_with_an_empty_disk_is_no_voter_that_runs() -> None:
    """All three were there, nothing could ever be ordered again, and nobody was told why."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        for id_ in (2, 3):
            cluster.kill(id_)
        for id_ in (2, 3):
            cluster.wipe(id_)
            cluster.start(id_)
        await trio.sleep(3)
        found = await ask(cluster, 1, "members")
        came = "m2, m3 came with another disk than before"
        assert found["waits"] == f"of a weight of 3 voters with 1 seem to run: {came}"
        assert (await ask(cluster, 2, "members"))["waits"] == found["waits"]
        status = cluster.machines[1].bridge.status()
        assert not status.active
        assert status.missing == ("m2 with its former disk", "m3 with its former disk")

    play(17, lambda world: Cluster(world, mesh(3)), script)


def test_where_nobody_has_all_that_was_ordered_that_is_told() -> None:
    """All three were there and nothing was ever ordered again, and nobody was told why (X1)."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        for id_ in (1, 2, 3):
            cluster.kill(id_, power=True)
        for id_ in (1, 2, 3):
            cluster.start(id_)
        await trio.sleep(5)
        for id_ in (1, 2, 3):
            found = await ask(cluster, id_, "members")
            known = "nobody that runs is known to have all that was ordered in view 1"
            assert found["waits"].startswith(f"{known}, and durability memory keeps no more")
        cluster.kill(3)
        await trio.sleep(3)
        assert (await ask(cluster, 1, "members"))["waits"] == f"{known}: m3 is missing"

    play(21, lambda world: Cluster(world, mesh(3), level="memory"), script)


@pytest.mark.parametrize("level", ["write", "memory"])
def test_all_bridges_may_be_killed_at_once_while_the_machines_run_on(level: str) -> None:
    """X1: At level memory nothing was lost, and nothing was ever ordered again."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        for id_ in (1, 2, 3):
            cluster.kill(id_)
        for id_ in (1, 2, 3):
            cluster.start(id_)
        await cluster.until_active()
        await trio.sleep(1)
        await cluster.settled()

    play(22, lambda world: Cluster(world, mesh(3), level=level), script)


def test_a_founder_that_is_none_by_its_own_file_is_named_as_what_is_missing() -> None:
    """All had met, nothing was ever founded, and it was told that the others are missing."""

    async def script(cluster: Cluster) -> None:
        cluster.start(1)
        cluster.start(2)
        await trio.sleep(0.5)
        assert cluster.machines[1].bridge.status().missing == ("m3",)
        cluster.observers = (3,)
        cluster.start(3)
        await trio.sleep(2)
        for id_ in (1, 2):
            assert cluster.machines[id_].bridge.status().missing == ("m3 as a founder",)

    play(18, lambda world: Cluster(world, mesh(3)), script)
