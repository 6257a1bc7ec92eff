"""Machines whose row is damaged: until there is something to damage, and until it is mended."""

from __future__ import annotations

import trio

from sim.pairkit import Split

KEEP = 100_000  # entries; with a limit, segments are small


async def until_mended(split: Split, id_: int, *, seconds: float = 30) -> None:
    with trio.fail_after(seconds):
        while not any(f"m{id_} mended" in note for note in split.notes):
            await trio.sleep(0.05)


def segments(split: Split, id_: int) -> list[str]:
    media = split.world.host(f"m{id_}").media
    return [name for name in media.paths() if name.endswith(".seg")]


async def busy(split: Split, *, count: int = 3) -> None:
    """Until there are some sealed segments."""
    split.start_all()
    await split.until()
    with trio.fail_after(60):
        while len(segments(split, 3)) <= count:
            await trio.sleep(0.2)
