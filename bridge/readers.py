"""Readers: whoever reads what is damaged waits until it is mended, as long as somebody may have it.

    read ──► damaged ──► its segments are looked at and mended (repair.py) ──► read again
                    └──► nobody who is there has it: told, or waited for however long

What nobody keeps any more, and the node beside cannot go on without, comes with an image.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import trio

from duckrow.node.errors import Corrupt
from duckrow.node.events import WARNING, Note
from duckrow.node.places import segment_of
from duckrow.node.rowstore import RowStore

from .repair import Repair

TRIES: Final = 3  # of one read
AGAIN_SECONDS: Final = 5.0  # then who waits reads again, whether or not anything has changed

T = TypeVar("T")


class Readers:
    def __init__(self, store: RowStore, repair: Repair, note: Note) -> None:
        self._store, self._repair, self._note = store, repair, note

    async def read(
        self,
        segments: Callable[[], Awaitable[list[int]]],
        read: Callable[[], Awaitable[T]],
        is_vain: Callable[[], bool] = lambda: False,  # then it is not waited for
    ) -> T:
        """What it gives; where that is damaged, after it is mended.

        Raises:
            NotFound: as it does.
            Corrupt: it is damaged, and nobody who is there has it.
        """
        for _ in range(TRIES):
            try:
                return await read()
            except Corrupt:
                if not await self._mended(await segments(), is_vain):
                    raise
        return await read()

    async def read_segment(self, number: int, read: Callable[[], Awaitable[T]]) -> T:
        async def segments() -> list[int]:
            return [number]

        return await self.read(segments, read)

    async def read_place(
        self, place: int, read: Callable[[int], Awaitable[T]], *, is_live: bool
    ) -> T:
        """For the node.  `is_live`: an image has it where others keep no more than that of the items that
        would mend it.  It has nothing that is only pinned here, for the archive.
        """
        number = segment_of(place)
        try:
            return await self.read_segment(number, partial(read, place))
        except Corrupt:
            repair = self._repair
            wound = repair.wounds.get(number)
            hopeless = is_live and repair.asking.hopeless
            if wound is not None and hopeless and repair.are_dropped([wound]):
                repair.need_image()
            raise

    async def read_position(self, position: int, read: Callable[[int], Awaitable[T]]) -> T:
        return await self.read(partial(self._store.holders, position), partial(read, position))

    async def insist(
        self, position: int, read: Callable[[], Awaitable[T]], *, by_node: bool = False
    ) -> T:
        """As `read`, but waits however long nobody has it.

        `by_node`: the node beside cannot go on without it.  If no neighbour keeps the row from there
        on, the machine takes an image, behind which that node begins anew (N5).

        Raises:
            NotFound.
        """

        def is_vain() -> bool:
            return by_node and self._is_dropped(position)

        told = False
        while True:
            try:
                return await self.read(partial(self._store.holders, position), read, is_vain)
            except Corrupt as error:
                if not told:
                    self._note(WARNING, "waits_for_repair position=%d error=%s", position, error)
                told = True
                if is_vain():
                    self._repair.need_image()
                with trio.move_on_after(AGAIN_SECONDS):  # the disk may give by then what it did not
                    await self._repair.change()

    def _is_dropped(self, position: int) -> bool:
        """The row here still reaches back to it, and it will not be whole again: no neighbour who is there
        has it, or what else its segment lacks, which is written anew as a whole.
        """
        if position < self._store.floor:  # an image came while it was read
            return False
        together = [wound for wound in self._repair.wounds.values() if position in wound.wanted]
        return self._repair.are_dropped(together, position)

    async def _mended(self, segments: list[int], is_vain: Callable[[], bool]) -> bool:
        """When it is known: whether they are whole now."""
        repair = self._repair
        repair.look_at([number for number in segments if number not in repair.wounds])
        while True:
            if not repair.is_looked_at(segments):
                hurt = [repair.wounds[number] for number in segments if number in repair.wounds]
                if not hurt:
                    return bool(segments)
                if repair.asking.hopeless or any(wound.unfit for wound in hurt) or is_vain():
                    return False
            await repair.change()
