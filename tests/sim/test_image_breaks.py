"""Who gives an image and who takes it may die amid it, and so may the link between them (N5)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio

from duckrow.bridge.imageforms import ImageMessage, WantImage
from duckrow.node import housekeeping
from duckrow.node.giving import Given, Send, give
from duckrow.node.keeper import Keeper
from sim.imagekit import KEEP, away
from sim.pairkit import Split, play


def dies_amid_an_image(host_name: str, k: int, *, power: bool, level: str = "fsync") -> bool:
    """Machine 3 takes an image from 2; this process dies before its k-th operation, and comes back."""
    died = False

    async def script(split: Split) -> None:
        nonlocal died
        split.start_all()
        await split.until()
        await away(split, 3)
        host, linked = split.world.host(host_name), len(split.notes)
        with trio.fail_after(30):
            while not any("m3 link_up" in note for note in split.notes[linked:]):
                await trio.sleep(0.001)
        host.media.crash_before(k, part=k % 2 == 0)
        host.crash_is_power_loss = power
        with trio.move_on_after(2.0):
            while host.alive and split.bridges[3].store.chronicle.base is None:
                await trio.sleep(0.001)
            await trio.sleep(0.02)  # and what follows from it
        host.media.disarm()
        died = not host.alive
        if died:
            what, id_ = host_name[0], int(host_name[1])
            (split.bridges if what == "m" else split.nodes).pop(id_, None)
            split.busy.pop(id_, None) if what == "n" else None
            (split.start_bridge if what == "m" else split.start_node)(id_)
        await split.until()
        await trio.sleep(0.5)
        await split.end()

    try:
        play(k, script, level, links={1: (2,), 2: (1, 3), 3: (2,)}, keep=KEEP)
    except BaseException as error:
        error.add_note(f"{host_name} died before operation {k}, {power=}, {level}")
        raise
    return died


@pytest.mark.parametrize("who", ["m2", "n2", "m3", "n3"])
def test_giver_and_taker_may_die_amid_an_image(who: str) -> None:
    """N5."""
    for k in (9, 30):
        dies_amid_an_image(who, k, power=k % 3 == 0)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("who", ["m2", "n2", "m3", "n3"])
@pytest.mark.parametrize("power", [True, False])
def test_giver_and_taker_may_die_at_any_moment_of_an_image(who: str, power: bool) -> None:
    died = [dies_amid_an_image(who, k, power=power) for k in range(1, 70)]
    assert died.count(True) > 20


def test_an_image_that_was_begun_for_a_bridge_that_died_does_not_get_into_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each bridge counts its images from one, and a node goes on writing the old one down for a while."""
    goes_on, calls = trio.Event(), 0

    async def slowly(keeper: Keeper, send: Send) -> bool:
        nonlocal calls
        calls += 1
        if calls > 1:
            return await give(keeper, send)
        await goes_on.wait()
        await send(None, b"of the old one")
        await send(None, b"")
        return True

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        parts: list[bytes] = []
        async with trio.open_nursery() as nursery:

            async def take(write: Callable[[bytes], None]) -> None:
                source = split.bridges[1].giving.source
                assert source is not None
                found.append(await source(write))

            found: list[Given | None] = []
            nursery.start_soon(take, lambda _: None)
            await trio.sleep(0.1)
            split.kill("m", 1)
            split.start_bridge(1)
            await split.until()
            found.clear()  # the other one had nothing
            nursery.start_soon(take, parts.append)
            await trio.sleep(0.1)
            assert parts == []
            goes_on.set()
            with trio.fail_after(5):
                while not found:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert found[0] is not None
        assert b"of the old one" not in parts
        await split.end()

    monkeypatch.setattr(housekeeping, "give", slowly)
    play(1, script)


def test_an_image_is_asked_for_again_when_the_link_was_lost_and_is_back_before_that_is_heard() -> (
    None
):
    """A round may wait for the disk so long.  Nobody else was to be asked, so the machine waited for the answer
    a minute and a half.
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await away(split, 3)
        answered, giver = trio.Event(), split.bridges[2]
        answer = giver.giving._answer

        async def answer_late(want: WantImage) -> ImageMessage:
            found = await answer(want)
            made.set()
            await answered.wait()
            return found

        made = trio.Event()
        giver.giving._answer = answer_late  # type: ignore[method-assign]
        with trio.fail_after(5):
            await made.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(split.bridges[3]._rounds.jobs.do, partial(trio.sleep, 0.3))
            await trio.sleep(0.01)
            giver.links.hang_up(3, "as if it were lost")
            answered.set()
        with trio.fail_after(10):
            while not any("m3 image_taken" in note for note in split.notes):
                await trio.sleep(0.1)
        await split.until()
        await split.end()

    play(4, script, keep=KEEP, links={1: (2,), 2: (1, 3), 3: (2,)})


def test_a_node_may_go_just_when_its_bridge_begins_to_make_an_image() -> None:
    """The bridge ended with it."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        bridge, media = split.bridges[1], split.world.host("m1").media
        media.latency = 0.1
        bridge.giving.wanted(3, WantImage(0, 0, 0))
        await trio.sleep(0.05)
        split.kill("n", 1)
        await trio.sleep(0.3)
        media.latency = 0
        assert split.world.host("m1").alive
        split.start_node(1)
        await split.until()
        await split.end()

    play(5, script)
