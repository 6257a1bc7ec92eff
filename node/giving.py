"""Giving: what a node tells its bridge of the state, for a machine that was away too long (N5).

    header              position, lineage
    segments            numbers of those that hold something alive
    state               as in a snapshot
    rows                the whole index, file by file; before those that no file holds, the places of
                        bodies that wait for their numbers

All of it shows one moment.  The pieces are those of a snapshot's file (snapshots.py), so whoever takes
them knows that they are whole and in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from .capture import CHUNK_BYTES, capture
from .errors import Corrupt, NotFound
from .forms import encode_view
from .keeper import Keeper
from .limits import KIB
from .numberfile import NumberFile
from .numbergrowing import END, PART
from .places import segment_of
from .snapshots import Identity, encode
from .state import waiting_positions

SEND_BYTES = 64 * KIB  # made in one go: some milliseconds


class Given(NamedTuple):
    position: int
    view: bytes  # that of the last mark
    segments: tuple[int, ...]  # that are needed, of those that were there


Send = Callable[[Given | None, bytes], Awaitable[None]]


async def give(keeper: Keeper, send: Send) -> bool:
    """False: there is nothing to give, or no image can be made of it.

    Raises:
        Corrupt: rows of the index are damaged, or the bridge has no digest here; what was sent until then
            is no image, since it was not told what it is.
    """
    await keeper.at_rest()
    state, numbers, store = keeper.state, keeper.numbers, keeper.row.store
    view = state.view
    if view is None:
        return False
    waiting: dict[int, int] = {}
    while unknown := [each for each in waiting_positions(state) if each not in waiting]:
        for each in unknown:
            try:
                waiting[each] = await keeper.place_of(each)
            except (Corrupt, NotFound):
                return False
        await keeper.at_rest()
    position = state.position
    held = numbers.needed() | {segment_of(place) for place in waiting.values()}
    files = [file for number in numbers.installed if (file := numbers.file(number)) is not None]
    needed = [
        file
        for file in files  # the last one says how far they reach
        if file is files[-1] or numbers.usage.holders(file.cover.segment)
    ]
    given = Given(position, encode_view(view), tuple(sorted(held)))
    # From here to the captures there is no checkpoint: all of it shows the same moment.
    of_state = capture(state, CHUNK_BYTES)
    try:
        numbers.kept = waiting
        growing = numbers.capture()
        chunks = chain((("state", chunk) for chunk in of_state), _rows(needed), growing)
        identity = Identity(store.uuid, view.lineage, position, await store.digest_of(position))
        gathered = bytearray()
        for piece in encode(identity, chunks):
            gathered += piece
            if len(gathered) >= SEND_BYTES:
                await send(None, bytes(gathered))
                gathered.clear()
        if gathered:
            await send(None, bytes(gathered))
        await send(given, b"")
        await send(None, b"")  # the last
    finally:
        of_state.close()
    return True


def _rows(files: Iterable[NumberFile]) -> Iterator[tuple[str, bytes]]:
    for file in files:
        for piece in file.raw():
            yield PART, piece
        yield END, b""
