"""The simulated disk: what survives what."""

from __future__ import annotations

import errno

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.env import Env
from sim.alone import Machine
from sim.clock import SimDeadlock
from sim.park import SimCrashed


async def write_synced(env: Env, name: str, data: bytes) -> None:
    file = await env.disk.open(name, create=True)
    file.write(0, [data])
    await file.sync()
    await env.disk.sync_names()
    file.close()


def test_what_was_synced_survives_a_power_loss_and_what_was_not_may_go_in_any_way() -> None:
    tails = []
    for seed in range(60):
        machine = Machine(seed)

        async def main(env: Env) -> None:
            await write_synced(env, "log", b"A" * 1000)
            file = await env.disk.open("log")
            file.write(1000, [b"B" * 4000])

        machine.run(main)
        machine.media.power_loss()
        content = machine.media.content("log")
        assert content[:1000] == b"A" * 1000
        tails.append(content[1000:])

    assert b"" in tails
    assert b"B" * 4000 in tails
    assert any(0 < tail.count(b"B") < 4000 and tail.count(0) for tail in tails)


def test_a_kill_keeps_the_cache() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"one", bytearray(b"two"), memoryview(b"three")])
        await env.disk.rename("log", "other")

    machine.run(main)
    machine.media.kill()

    assert machine.media.content("other") == b"onetwothree"
    assert machine.media.paths() == ["other"]
