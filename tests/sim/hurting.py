"""What may hit the files of a machine at rest, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from duckrow.node.env import Env

from .alone import Machine

SECTOR = 512
CLAIM_BYTES = 128  # at the end of a file, more than a START: what says last how much was durable
HOW = ("flip", "flip", "flip", "spoil", "zeros", "zeros", "cut", "emptied", "lost")


class Hit(NamedTuple):
    path: str
    how: str
    first: int  # byte
    end: int

    @property
    def is_end(self) -> bool:
        return self.how in ("cut", "emptied", "lost")


def hurt(machine: Machine, rng: random.Random, paths: Sequence[str]) -> Hit | None:
    """One of these files, if one holds anything."""
    media = machine.media
    files = [path for path in paths if media.content(path)]
    if not files:
        return None
    path, how = rng.choice(files), rng.choice(HOW)
    pages, size = media.pages(path), len(media.content(path))
    at = rng.randrange(size)
    sector = at // SECTOR * SECTOR
    end = min(size, sector + SECTOR * rng.choice([1, 1, 2, 4]))
    if how == "flip":
        media.flip(path, at)
        return Hit(path, how, at, at + 1)
    if how == "spoil":
        media.spoil(path, at)
        media.evict(path)
        return Hit(path, how, sector, min(size, sector + SECTOR))
    if how == "zeros":
        pages.write(sector, bytes(end - sector))
        pages.sync(pages.count)
        return Hit(path, how, sector, end)
    if how == "lost":
        machine.run(partial(_unlink, path=path))
        return Hit(path, how, 0, size)
    at = 0 if how == "emptied" else at
    pages.truncate(at)
    pages.sync(pages.count)
    return Hit(path, how, at, size)


async def _unlink(env: Env, path: str) -> None:
    folder, name = path.split("/")
    await (await env.disk.folder(folder)).unlink(name)


def hits_claim(hits: Sequence[Hit], newest: str, size: int) -> bool:
    """What says last how much was durable may be gone: what lies before it may look like a torn tail then."""
    there = [hit for hit in hits if hit.path == newest]
    return len(there) > 1 or any(hit.is_end or hit.end > size - CLAIM_BYTES for hit in there)
