"""A node on a small disk, in a process of its own: fills it, prunes, goes on.  See test_full_disk.py.

`quota` bytes stand for a small disk where none could be mounted: 0 takes the disk as it is.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from duckrow.node import makers
from duckrow.node.alone import Options, open_node
from duckrow.node.env import Buffer
from duckrow.node.errors import Full
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.limits import KIB, MIB
from duckrow.node.producer import Producer
from duckrow.node.realio import real_env
from duckrow.node.storeoptions import StoreOptions

OPTIONS = Options(
    store=StoreOptions(
        segment_bytes=256 * KIB,
        followable_bytes=256 * KIB,
        soft_reserve_bytes=512 * KIB,
        soft_reserve_fraction=0.0,
        hard_reserve_bytes=512 * KIB,
        reserve_seconds=0.05,
    ),
    housekeeping=HousekeepingOptions(snapshot_bytes=1 * MIB, followable_bytes=256 * KIB),
)
PATIENCE = 60.0  # seconds; it takes a fraction of one


class QuotaFile:
    def __init__(self, file: Any, quota: Quota) -> None:
        self._file, self._quota = file, quota

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        more = offset + sum(map(len, buffers)) - self._file.size
        if more > self._quota.free()[0]:
            raise OSError(errno.ENOSPC, "the quota is used up")
        self._file.write(offset, buffers)


class Quota:
    """A folder that may hold so many bytes."""

    def __init__(self, disk: Any, root: Path, size: int) -> None:
        self._disk, self._root, self._size = disk, root, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    async def folder(self, name: str) -> Quota:
        return Quota(await self._disk.folder(name), self._root, self._size)

    async def open(self, name: str, *, create: bool = False) -> QuotaFile:
        return QuotaFile(await self._disk.open(name, create=create), self)

    async def reserve(self, name: str, size: int) -> None:
        if size > self.free()[0]:
            raise OSError(errno.ENOSPC, "the quota is used up")
        await self._disk.reserve(name, size)

    def free(self) -> tuple[int, int]:
        used = sum(map(_size, self._root.rglob("*")))
        return max(0, self._size - used), self._size


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # it was unlinked just now, by a thread
        return 0


async def live(node: Keeper, root: Path, disk: Any, *, to_the_last_byte: bool) -> None:
    producer = Producer(node)
    await producer.produce("kept", [b"kept"])
    try:
        while True:
            await producer.produce("t", [bytes(16_000)])
    except Full:
        pass
    stuffing = root / "stuffing"
    if to_the_last_byte:
        with stuffing.open("wb", buffering=0) as file:
            try:
                while room := min(disk.free()[0], 64 * KIB):
                    file.write(bytes(room))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
    turn = makers.Turn(node.fresh_pid(), 1, time=node.wall_us())
    await node.order(makers.prune(turn, "t", 10**9))
    with trio.fail_after(PATIENCE):
        while True:
            try:
                await producer.produce("t", [b"again"])
            except Full:
                await trio.sleep(0.02)
            else:
                break
    print("it goes on", node.row.status().disk, flush=True)


async def main(folder: str, quota: int, *, to_the_last_byte: bool) -> None:
    root = Path(folder)
    env = real_env("small", folder)
    if quota:
        env = attrs.evolve(env, disk=Quota(env.disk, root, quota))
    async with open_node(env, OPTIONS) as node:
        await live(node, root, env.disk, to_the_last_byte=to_the_last_byte)


if __name__ == "__main__":
    assert os.environ.get("PYTHONPATH")
    trio.run(lambda: main(sys.argv[1], int(sys.argv[2]), to_the_last_byte=sys.argv[3] == "last"))
