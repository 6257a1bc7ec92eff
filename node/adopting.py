"""Adopting: a node takes the state that came with an image (N5), as if it had written it itself.

    image's file ─► state, rows of the open segment ─► a snapshot
                 └► rows of sealed segments         ─► files of the index

What was there speaks of a row that is no more, and goes first; so a crash in the middle leaves nothing
that could be believed, and the next start begins anew.  Last comes the file `adopted`, which names the
image: files beside another name, or none, are of a row that this one took the place of, even where
both end at one position.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from . import keptplaces, smallfile
from .env import Disk
from .errors import Corrupt
from .limits import KIB
from .numberfile import NumberFile, moved
from .numberfolder import NumberFolder
from .numbergrowing import END, PART
from .snapshots import Identity, Pieces, Snapshots

READ_BYTES = 256 * KIB
NAME = "adopted"
_NAME_BYTES_MAX = 64


class Part(NamedTuple):
    """Of the image's file."""

    size: int  # of the whole
    shift: int  # of the numbers of segments
    data: bytes


Read = Callable[[int, int], Awaitable[Part | None]]  # from an offset, so many bytes


async def adopted(disk: Disk) -> str | None:
    """The image with which the row began that the files here speak of; empty: with none.

    None: the disk does not give it, so nobody knows of which row they are.
    """
    try:
        return (await smallfile.get(disk, NAME, _NAME_BYTES_MAX)).decode(errors="replace")
    except OSError:
        return None


async def note_adopted(disk: Disk, image: str) -> bool:
    """False: the disk is full.

    Raises:
        DiskFailed: for any other error.
    """
    return await smallfile.put(disk, NAME, image.encode())


async def adopt(read: Read, store: bytes, snapshots: Snapshots, folder: NumberFolder) -> bool:
    """False: there is no image, or it does not fit on this disk.

    Raises:
        Corrupt: it is not what was given.
        DiskFailed.
    """
    first = await read(0, 0)
    if first is None:
        return False
    for position in await snapshots.positions():
        await snapshots.forget(position)
    await folder.clear()
    pieces, shift = Pieces(), first.shift
    places: dict[int, int] = {}
    state: list[tuple[str, bytes]] = []
    growing: list[tuple[str, bytes]] = []
    rows = bytearray()
    upto = 0  # of the row; what it does not speak of in between is dead
    offset = 0
    while offset < first.size:
        part = await read(offset, READ_BYTES)
        if part is None or not part.data:
            raise Corrupt("the state of an image went away while it was read")
        offset += len(part.data)
        for kind, chunk in pieces.take(part.data):
            if kind == "state":
                state.append((kind, chunk))
            elif kind == keptplaces.KIND:
                places |= keptplaces.restored([(kind, chunk)])
            elif kind == PART:
                rows += chunk
            elif kind == END:
                file = NumberFile(bytes(rows), captured=True)
                rows.clear()
                after, upto = upto, file.cover.upto
                here = moved(file, shift, store, after)
                if file.cover.sealed:
                    if not await folder.put(file.cover.segment + shift, here):
                        return False
                else:
                    growing += [(PART, piece) for piece in here]
                    growing.append((END, b""))
        await trio.lowlevel.checkpoint()
    if pieces.identity is None or not pieces.ended:
        raise Corrupt("the state of an image ends in the middle")
    identity: Identity = pieces.identity
    chunks = [*state, *growing, *keptplaces.chunks(places, shift)]
    return await snapshots.write(
        Identity(store, identity.lineage, identity.position, identity.digest),
        chunks,
        _settled,
        idle_share=0,
    )


async def _settled() -> None:
    """The BASE was synced."""
