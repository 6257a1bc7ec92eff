"""A program with a node inside, on the real disk, for tests that kill it.

python shop.py FOLDER TOPIC FIRST      produces FIRST, FIRST + 1 ... and says each when it is done
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import trio

from duckrow.node.alone import Options, open_node
from duckrow.node.producer import Producer
from duckrow.node.realio import real_env
from seeds.kit import Node

ROOT = Path(__file__).resolve().parents[2]


async def sell(folder: str, topic: str, first: int) -> None:
    async with open_node(real_env("shop", folder), Options()) as keeper:
        producer = Producer(keeper)
        for number in count(first):
            result = await producer.produce(topic, [b"%d" % number])
            print(number, result.first, flush=True)


@contextmanager
def shop(folder: Path, topic: str, first: int) -> Iterator[Callable[[], tuple[int, int]]]:
    """A process that sells until the block ends, and is then killed; gives its next answer."""
    with subprocess.Popen(
        [sys.executable, __file__, str(folder), topic, str(first)],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = process.stdout

        def answer() -> tuple[int, int]:
            value, number = lines.readline().split()
            return int(value), int(number)

        try:
            yield answer
        finally:
            process.kill()


def visit(folder: Path, topic: str, after: int = 0) -> list[tuple[int, int]]:
    """Value and number of all entries, as another process finds them."""

    async def look() -> list[tuple[int, int]]:
        env = real_env("shop", folder)
        async with open_node(env, Options()) as keeper:
            node, found, done = Node(env, keeper), list[tuple[int, int]](), after
            while entries := await node.entries(topic, done):
                found += [(int(entry.value), entry.number) for entry in entries]
                done = found[-1][1]
            return found

    return trio.run(look)


if __name__ == "__main__":
    trio.run(sell, sys.argv[1], sys.argv[2], int(sys.argv[3]))
