"""A machine that was away longer than the row is kept comes back by an image (C4, N4, N5)."""

from __future__ import annotations

import pytest
import trio

from duckrow.bridge.messages import Change
from duckrow.node.images import came_with
from sim.clusterkit import chain, mesh
from sim.imagekit import KEEP, LONG, aged, away, forgotten
from sim.pairkit import Split, play


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
def test_every_machine_forgets_what_was_pruned_whether_it_votes_or_not(level: str) -> None:
    async def script(split: Split) -> None:
        await aged(split, 1, 2, 3)
        await split.end()
        sizes = [len(bridge.store.segments()) for bridge in split.bridges.values()]
        assert max(sizes) < 2 * min(sizes)

    play(9, script, level, keep=KEEP, observers=(3,))


def test_who_was_away_too_long_takes_an_image_and_goes_on() -> None:
    """C4."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        await away(split, 3)
        await split.until()
        assert split.bridges[3].store.chronicle.base is not None
        await trio.sleep(1)
        await split.end()

    split = play(1, script, keep=KEEP)
    assert any("image_taken" in note for note in split.notes)


def test_a_bridge_that_was_cut_off_too_long_begins_anew_and_so_does_its_node() -> None:
    """What its clients asked meanwhile is staged, and ordered once."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        split.world.net.partition(["m3"], ["m1", "m2"])
        await trio.sleep(0.5)
        await forgotten(split, 1, 2)
        assert split.busy[3] is None
        split.world.net.heal()
        await split.until()
        assert split.replaced == [3]
        await trio.sleep(1)
        await split.end()

    play(2, script, keep=KEEP)


def test_a_node_that_lost_its_state_gets_it_from_another_machine() -> None:
    """N4: Its bridge leaves, takes an image, and acts again (N4)."""

    async def script(split: Split) -> None:
        await aged(split, 2)
        split.kill("n", 2)
        split.lose_disk("n2")
        split.start_node(2)
        await trio.sleep(0.1)
        await split.until()
        await trio.sleep(1)
        await split.end()

    split = play(3, script, keep=KEEP)
    assert any("m2 image_taken" in note for note in split.notes)


def test_a_node_that_lost_its_state_gets_it_where_nothing_else_happens() -> None:
    async def script(split: Split) -> None:
        await aged(split, 2, producing=False)
        split.kill("n", 2)
        split.lose_disk("n2")
        split.start_node(2)
        await trio.sleep(0.1)
        await split.until()
        await split.end()

    play(4, script, keep=KEEP)


def test_of_two_equal_machines_one_whose_node_lost_its_state_gets_it_while_the_other_has_more_weight() -> (
    None
):
    """N8: The other one alone is no majority, so till then it goes on acting, and its node has nothing."""

    async def script(split: Split) -> None:
        def weighs(weight: int) -> None:
            bridge = split.bridges[1]
            bridge.wish(Change(bridge.member.standing.newest.id, 1, weight))

        await aged(split, 2)
        split.kill("n", 2)
        split.lose_disk("n2")
        split.start_node(2)
        await trio.sleep(10)
        assert 2 not in split.nodes
        assert split.bridges[1].status().active
        weighs(2)
        await split.until()
        weighs(1)
        await trio.sleep(1)
        await split.end()

    split = play(3, script, keep=KEEP, links=mesh(2))
    assert sum("m2 image_taken" in note for note in split.notes) == 1


def test_a_machine_whose_disks_are_new_gets_all_that_is_kept() -> None:
    async def script(split: Split) -> None:
        await aged(split, 2)
        for what in "mn":
            split.kill(what, 2)
            split.lose_disk(f"{what}2")
        split.start_bridge(2)
        split.start_node(2)
        await split.until()
        await trio.sleep(1)
        await split.end()

    play(5, script, keep=KEEP)


def test_an_image_of_many_small_segments_does_not_take_the_way_to_the_giver_for_each() -> None:
    way = 0.1  # seconds

    async def script(split: Split) -> None:
        await aged(split, 2, producing=False)
        for edge in (("m1", "m2"), ("m2", "m1"), ("m2", "m3"), ("m3", "m2")):
            split.world.net.link(*edge).delay = way
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await trio.sleep(0.1)
        await split.until()
        await split.end()

    split = play(3, script, links=chain(3), keep=LONG)
    times = [
        float(note.split()[0])
        for what in ("m3 image_begins", "m3 image_taken")
        for note in split.notes
        if what in note
    ]
    store, (began, taken) = split.bridges[3].store, times
    came = [each for each in store.segments() if came_with(store.chronicle.base, each.number)]
    assert len(came) > 8
    assert taken - began < len(came) * 2 * way / 2


def test_an_image_goes_down_a_chain_hop_by_hop() -> None:
    """The middle of three: who is behind it can only have one from there."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        await away(split, 3, 4)
        await split.until(seconds=60)
        await trio.sleep(1)
        await split.end()

    links = {1: (2, 5), 2: (1, 3), 3: (2, 4), 4: (3,), 5: (1,)}
    play(6, script, keep=KEEP, links=links)


def test_who_has_to_act_without_a_state_passes_on_an_image_for_who_is_behind_it() -> None:
    """C4: Two of four are no majority, the fourth waited for an image of the third, and that one for the
    fourth, to leave and take one itself: for ever (seed 770007).
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.kill("m", 4)
        split.kill("n", 4)
        await forgotten(split, 1, 2, 3)
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await trio.sleep(2)
        assert 3 not in split.nodes
        assert split.bridges[3].status().active
        split.start_bridge(4)
        split.start_node(4)
        await split.until()
        await trio.sleep(1)
        await split.end()

    split = play(3, script, keep=KEEP, links=chain(4))
    taken = [note.split()[1] for note in split.notes if "image_taken" in note]
    assert taken == ["m4", "m3"]
