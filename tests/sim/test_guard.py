"""Each source of chance and time is refused inside a simulation, and works again after it."""

# ruff: noqa: PTH102, PTH104, PTH107, PTH123, SIM115

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from duckrow.node.env import Env
from sim.guard import _BANNED, Nondeterminism, guarded
from sim.world import World


def fork_once() -> None:
    if not os.fork():
        os._exit(0)  # only if the guard failed


CALLS: dict[str, Callable[[], object]] = {
    "open for writing": lambda: open("/tmp/never", "w"),
    "open for reading": lambda: open("/etc/hostname"),
    "os.open": lambda: os.open("/etc/hostname", os.O_RDONLY),
    "os.mkdir": lambda: os.mkdir("/tmp/never"),
    "os.remove": lambda: os.remove("/tmp/never"),
    "os.rename": lambda: os.rename("/tmp/never", "/tmp/ever"),
    "os.truncate": lambda: os.truncate("/tmp/never", 0),
    "os.fork": fork_once,
    "os.system": lambda: os.system("true"),
    "os.posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "Path.touch": lambda: Path("/tmp/never").touch(),
    "Path.iterdir": lambda: list(Path("/").iterdir()),
    "shutil.rmtree": lambda: shutil.rmtree("/tmp/never"),
    "tempfile": tempfile.mkdtemp,
    "socket": socket.socket,
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 1),
    "subprocess": lambda: subprocess.Popen(["true"]),
    "thread": lambda: threading.Thread(target=print).start(),
    "_thread": lambda: __import__("_thread").start_new_thread(print, ()),
    "random.Random without a seed": lambda: random.Random(),
    "time through the module": lambda: sys.modules["time"].time(),
}


def in_a_simulation(call: Callable[[], object]) -> BaseException | None:
    caught: list[BaseException] = []

    async def program(_env: Env) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
            caught.append(error)

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)

    World(1).run(main)
    return caught[0] if caught else None


@pytest.mark.parametrize("name", CALLS)
def test_calls_below_python_are_refused(name: str) -> None:
    assert isinstance(in_a_simulation(CALLS[name]), Nondeterminism)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(owner, name, id=f"{owner.__name__}.{name}")
        for owner, names in _BANNED.items()
        for name in names
    ],
)
def test_banned_functions_are_refused_and_say_what_to_use(owner: object, name: str) -> None:
    error = in_a_simulation(lambda: getattr(owner, name)())

    assert isinstance(error, Nondeterminism)
    assert name in str(error)
    assert "inside the simulation: " in str(error)


def test_a_seeded_generator_is_allowed() -> None:
    assert in_a_simulation(lambda: random.Random(1).random()) is None


def test_an_import_that_comes_late_is_allowed() -> None:
    sys.modules.pop("colorsys", None)

    assert in_a_simulation(lambda: __import__("colorsys")) is None


def test_after_the_simulation_everything_works_again() -> None:
    before = (time.time, random.random, os.urandom, random.Random, threading.Thread.start)
    in_a_simulation(lambda: None)

    assert (
        time.time,
        random.random,
        os.urandom,
        random.Random,
        threading.Thread.start,
    ) == before
    assert uuid.uuid4() != uuid.uuid4()
    assert secrets.token_bytes(4)
    with open(__file__) as file:
        assert file.readline()


def test_one_simulation_at_a_time() -> None:
    with guarded(), pytest.raises(AssertionError, match="inside a simulation"), guarded():
        pass
