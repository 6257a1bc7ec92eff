"""A simulated disk for one test: written, and after a loss of power."""

from __future__ import annotations

from collections.abc import Callable

from duckrow.node.env import Env, File
from sim.alone import Machine
from sim.disk import Media


async def write_synced(env: Env, name: str, data: bytes) -> File:
    file = await env.disk.open(name, create=True)
    file.write(0, [data])
    await file.sync()
    await env.disk.sync_names()
    return file


def after_power_loss(seed: int, main: Callable[[Env], object]) -> Media:
    machine = Machine(seed)
    machine.run(main)  # type: ignore[arg-type]
    machine.media.power_loss()
    return machine.media
