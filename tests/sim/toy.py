"""A small program with a bit of everything, for tests and figures of the rig itself.

    PYTHONPATH=src:tests python -m sim.toy SEED         the digest of one run, and its speed

Hosts echo frames of each other, write what they get to a file, sync it now and then, and are
killed, cut off and stopped.
"""

from __future__ import annotations

import sys
import time

import trio

from duckrow.node.env import Env
from sim.world import World

NAMES = ("a", "b", "c", "d")
PORT = 1


async def program(env: Env) -> None:
    file = await env.disk.open("log", create=True)
    end = file.size

    async def serve(stream: trio.abc.Stream) -> None:
        nonlocal end
        while frame := await stream.receive_some():
            file.write(end, [frame])
            end += len(frame)
            if env.rng.random() < 0.1:
                await file.sync()
            await stream.send_all(frame[:4])

    async def talk(peer: str) -> None:
        while True:
            try:
                async with await env.net.connect(peer, PORT) as stream:
                    while True:
                        with trio.fail_after(3):
                            await stream.send_all(bytes(env.rng.randrange(50, 2000)))
                            await stream.receive_some()
            except (OSError, trio.BrokenResourceError, trio.TooSlowError):
                await trio.sleep(env.rng.uniform(0.01, 0.1))

    async with trio.open_nursery() as nursery:
        await nursery.start(env.net.serve, serve, PORT)
        for peer in NAMES:
            if peer != env.name:
                nursery.start_soon(talk, peer)


async def main(world: World, rounds: int) -> None:
    rng = world.rng("fate")
    for name in NAMES:
        media = world.start(name, program).media
        media.latency, media.sync_latency, media.sync_jitter = 0.0001, 0.001, 0.0005
    for _ in range(rounds):
        await trio.sleep(0.4)
        name = rng.choice(NAMES)
        fault = rng.choice(("kill", "power", "cut", "stop"))
        if fault in ("kill", "power"):
            world.kill(name, power=fault == "power")
        elif fault == "cut":
            world.net.isolate(name)
        else:
            world.pause(name)
        await trio.sleep(0.1)
        world.net.heal()
        if not world.host(name).alive:
            world.start(name, program)
        elif fault == "stop":
            world.resume(name)


def run(seed: int, rounds: int = 1) -> World:
    world = World(seed)
    world.run(lambda world: main(world, rounds))
    return world


if __name__ == "__main__":
    started = time.process_time()
    done = run(int(sys.argv[1]), rounds=5)
    spent = time.process_time() - started
    print(f"{done.trace.digest()}: {done.steps} task steps, {done.trace.count} events")
    print(f"{spent:.2f} CPU s: {done.steps / spent:,.0f} steps a second")
