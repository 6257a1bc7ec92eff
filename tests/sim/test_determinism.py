"""One seed is one run: in this process, and in fresh ones with other hash seeds and addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim import toy

ROOT = Path(__file__).resolve().parents[2]


def fresh_process(number: int, *command: str) -> str:
    """What a new interpreter prints, with a hash seed and an environment size of its own."""
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}",
        "PYTHONHASHSEED": str(number) if number % 3 else "random",
        "PADDING" * (number % 7 + 1): "x" * (number * 997 % 20_000),
    }
    done = subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests(seed: int, processes: int) -> set[str]:
    # Not `-m sim.toy`: names of tasks are part of the trace, and hold the name of their module.
    code = f"from sim import toy; print(toy.run({seed}).trace.digest())"
    return {fresh_process(number, "-c", code) for number in range(processes)}


def test_fresh_processes_agree() -> None:
    assert digests(5, 3) == {toy.run(5).trace.digest() + "\n"}


@pytest.mark.long
@pytest.mark.parametrize("seed", [7, 11])
def test_forty_fresh_processes_agree(seed: int) -> None:
    assert len(digests(seed, 40)) == 1


@pytest.mark.long
def test_a_hundred_runs_in_one_process_agree() -> None:
    assert len({toy.run(3).trace.digest() for _ in range(100)}) == 1


PLANTED = """
import sys, trio
from sim.world import World

class Peer:
    def __init__(self, name): self.name = name

NAMES = ["alpha", "beta", "gamma", "delta", "epsilon"]

async def program(env):
    if sys.argv[1] == "set of strings":
        order = {name for name in NAMES}
    elif sys.argv[1] == "set of objects":
        padding = [bytearray(n * 64) for n in range(len(sys.argv[2]))]
        order = [peer.name for peer in {Peer(name) for name in NAMES}]
    elif sys.argv[1] == "by id":
        padding = bytearray(len(sys.argv[2]) * 48)
        order = [peer.name for peer in sorted((Peer(name) for name in NAMES), key=lambda p: id(p) * 2654435761 % 4294967291)]
    elif sys.argv[1] == "by hash":
        order = sorted(NAMES, key=hash)
    else:
        order = list(dict.fromkeys(NAMES))
    for name in order:
        await trio.sleep(0.1)
        await env.disk.open(name, create=True)

async def main(world):
    world.start("a", program)
    await trio.sleep(2)

world = World(1)
world.run(main)
print(world.trace.digest())
"""


@pytest.mark.parametrize("kind", ["set of strings", "set of objects", "by id", "by hash"])
def test_a_planted_order_of_hashes_or_addresses_shows_in_the_digests(kind: str) -> None:
    """What the lint cannot see (it looks at one file, and at names) fresh processes show."""
    found: set[str] = set()
    for number in range(1, 40):  # by chance some are alike; never so many
        found.add(fresh_process(number, "-c", PLANTED, kind, "x" * number * 31))
        if len(found) > 1:
            break

    assert len(found) > 1


def test_without_a_planted_order_the_digests_are_one() -> None:
    found = {
        fresh_process(number, "-c", PLANTED, "none", "x" * number * 31) for number in (1, 2, 3)
    }

    assert len(found) == 1
