"""Machines that need an image: those that were away, those that took one, those whose index is old."""

from __future__ import annotations

import trio

from sim.pairkit import Split

KEEP = 100  # entries; a row is forgotten within seconds


LONG = 1000  # entries: their index is older than both snapshots


async def forgotten(split: Split, *others: int) -> None:
    """Until these keep nothing of what there is now."""
    end = split.bridges[others[0]].store.position
    with trio.fail_after(120):
        while min(split.bridges[each].store.floor for each in others) <= end + 1:
            await trio.sleep(0.2)


async def aged(split: Split, *others: int, producing: bool = True) -> None:
    """All go on until these keep nothing of the beginning; without `producing`, all is then at rest."""
    split.start_all()
    await split.until()
    await forgotten(split, *others)
    if not producing:
        split.producing = False
        await trio.sleep(1)


async def away(split: Split, *ids: int) -> None:
    """These are killed, and come back when nobody keeps what comes next there."""
    for id_ in ids:
        split.kill("m", id_)
        split.kill("n", id_)
    await forgotten(split, *split.bridges)
    for id_ in ids:
        split.start_bridge(id_)
        split.start_node(id_)


async def old_index(split: Split, id_: int) -> str:
    """A file of the index of that node: some of it is wanted, and no replay begins before it."""
    with trio.fail_after(300):
        while True:
            await trio.sleep(0.2)
            node, bridge = split.nodes.get(id_), split.bridges[id_]
            if node is None or bridge.store.floor == 1:
                continue
            for segment in node.numbers.installed:
                file = node.numbers.file(segment)
                live = node.numbers.usage.holders(segment)
                if file is not None and live and file.cover.upto + 150 < node.state.position:
                    return f"numbers/{segment:08d}.numbers"


async def imaged(split: Split) -> list[str]:
    """Machine 3 has taken an image, all is at rest; the files of the segments that came with it."""
    split.start_all()
    await split.until()
    await trio.sleep(1)
    await away(split, 3)
    await split.until()
    split.producing = False
    await trio.sleep(2)
    base = split.bridges[3].store.chronicle.base
    assert base is not None
    first, last = map(int, base.files[1].split("-"))
    return [f"row/{number:08d}.seg" for number in range(first, last + 1)]
