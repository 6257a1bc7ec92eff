"""A full disk in a cluster: that machine steps back, the others go on, and it comes back by itself."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio

from duckrow.bridge.imageforms import WantImage
from duckrow.node.errors import Full
from duckrow.node.giving import Given
from sim.pairkit import Split, play


def test_a_machine_whose_disk_is_full_steps_back_and_comes_back_when_there_is_room() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        media = split.world.host("m3").media
        media.capacity = media.used + 8192
        with trio.fail_after(60):
            while split.bridges[1].status().members != (1, 2):
                await trio.sleep(0.1)
        before = len(split.results)
        await trio.sleep(3)
        assert len(split.results) > before + 20, "nobody waits for it"
        assert split.world.host("m3").alive
        assert split.bridges[3].status().disk == "hard"
        media.capacity = 1 << 40
        await split.until()
        await trio.sleep(1)
        await split.end()

    play(1, script, keep=1000)


def test_an_image_for_another_machine_does_not_fill_the_disk() -> None:
    """It had taken what was left, and who gives it left the view, too: nobody could go on."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        bridge, media = split.bridges[3], split.world.host("m3").media
        reserve, spare = bridge.store.reserve, 1 << 20
        reserve._options = attrs.evolve(reserve._options, soft_reserve_bytes=spare)
        media.capacity = media.used + spare + (1 << 18)
        least, written = spare, 0

        async def large(write: Callable[[bytes], None]) -> Given | None:
            nonlocal least, written
            while True:
                write(bytes(1 << 16))
                written += 1 << 16
                least = min(least, media.capacity - media.used)
                await trio.sleep(0.001)

        bridge.giving.source = large
        bridge.giving.wanted(1, WantImage(0, 0, 0))
        with trio.fail_after(10):
            while not any("m3 image_not_given" in note for note in split.notes):
                await trio.sleep(0.01)
        assert written > 0
        assert least == spare
        await trio.sleep(2)
        assert bridge.status().disk == "ok"
        assert bridge.status().active
        assert "row/outgoing" not in media.paths()

    play(1, script)


def test_work_between_two_rounds_that_does_not_fit_ends_no_bridge() -> None:
    """Whoever wanted it done hears of it, and tries again."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        bridge = split.bridges[3]

        async def too_large() -> None:
            raise bridge.store.reserve.full()

        with pytest.raises(Full):
            await bridge._rounds.jobs.do(too_large)
        await trio.sleep(0.1)
        assert bridge.status().active

    play(1, script)


def test_an_image_goes_from_a_full_disk_though_it_is_asked_for_all_the_time() -> None:
    """With it goes what it keeps of the row."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        bridge, media = split.bridges[3], split.world.host("m3").media
        bridge.giving.wanted(1, WantImage(0, 0, 0))
        with trio.fail_after(10):
            while not any("m3 image_made" in note for note in split.notes):
                await trio.sleep(0.1)
        assert "row/outgoing" in media.paths()
        media.capacity = media.used + 8192
        with trio.fail_after(10):
            while "row/outgoing" in media.paths():
                bridge.giving.wanted(1, WantImage(0, 0, 0))
                await trio.sleep(0.5)

    play(1, script)


def test_what_was_left_of_an_image_that_was_given_goes_at_the_next_start() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        media = split.world.host("m3").media
        await split.bridges[3].store.disk.open("outgoing", create=True)
        split.kill("m", 3)
        assert "row/outgoing" in media.paths()
        split.start_bridge(3)
        await split.until()
        assert "row/outgoing" not in media.paths()

    play(1, script)
