"""What machines do that have nothing to do: as little as keeps them sure of each other."""

from __future__ import annotations

from itertools import pairwise

import trio

from duckrow.bridge.process import Bridge
from duckrow.bridge.timing import Timing
from sim.pairkit import Split, play

BEATS = 20
TIMING = Timing()


def beats_of(bridge: Bridge) -> list[float]:
    """When it beats from now on."""
    told: list[float] = []
    beat = bridge.member.beat

    def noted(now: float) -> None:
        told.append(now)
        beat(now)

    bridge.member.beat = noted  # type: ignore[method-assign]
    return told


def test_machines_that_rest_beat_together_and_as_often_as_they_should() -> None:
    """T4."""

    async def script(split: Split) -> None:
        for id_ in split.links:
            split.start_bridge(id_)
            await trio.sleep(0.033)  # so that they would not by themselves
        await trio.sleep(5)
        told = {id_: beats_of(bridge) for id_, bridge in split.bridges.items()}
        await trio.sleep(BEATS * TIMING.beat)
        for times in told.values():
            assert BEATS - 2 <= len(times) <= BEATS + 1
            longest = max(later - sooner for sooner, later in pairwise(times))
            assert longest < TIMING.beat + 2 * TIMING.beat_late
        apart = max(max(each) - min(each) for each in zip(*told.values(), strict=False))
        assert apart < TIMING.beat / 10

    play(5, script)
