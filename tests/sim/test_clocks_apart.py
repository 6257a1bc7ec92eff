"""Clocks of a cluster that are apart: what grows old does so by the time of the row, at little cost."""

from __future__ import annotations

import trio

from duckrow.node import makers
from sim.clusterkit import BODY
from sim.pairkit import Split, play

APART_US = 5_000_000


def test_a_clock_that_is_ahead_does_not_order_its_time_again_and_again() -> None:
    """What is due by it is not due by the row, which others have to come to, and say so."""

    async def script(split: Split) -> None:
        for what in "mn":
            split.world.host(f"{what}1").skew_us = APART_US
        split.start_all()
        split.producing = False
        await split.until()
        node = split.nodes[2]
        pid = node.fresh_pid()
        first = makers.Turn(pid, 1, time=node.wall_us())
        await node.order(makers.create(first, "old", {"max_age": 1_000_000}))
        second = makers.Turn(pid, 1, time=node.wall_us())  # the first of its lane
        assert (await node.order(makers.produce(second, "old", BODY, 3))).first == 1
        begin = split.bridges[1].store.position
        await trio.sleep(0.9 + 3)
        assert split.bridges[1].store.position - begin < 20
        with trio.fail_after(5):
            topic = node.state.topic("old")
            assert topic is not None
            while node.state.partition(topic.id, 0).first == 1:
                await trio.sleep(0.1)

    play(1, script)
