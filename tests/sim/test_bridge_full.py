"""A full disk in a cluster: that machine steps back, the others go on, and it comes back by itself."""

from __future__ import annotations

import trio

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
