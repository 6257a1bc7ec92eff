"""Answers: what a node asks of its bridge (N4), which asks the neighbours for what is damaged.

Each question is a task of its own, and may wait.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import trio

from duckrow.node import bridgewire as wire
from duckrow.node.bridgewire import What
from duckrow.node.env import Buffer
from duckrow.node.errors import Corrupt
from duckrow.node.places import segment_of
from duckrow.node.rowwire import encode_heads

from .admin import Admin
from .process import Bridge

PLACE_SECONDS: Final = 10.0  # after a start, for somebody to come who has what is damaged


class Answers:
    def __init__(self, bridge: Bridge) -> None:
        self._bridge, self._admin = bridge, Admin(bridge)
        self._alone_until = trio.current_time() + PLACE_SECONDS  # for all places together

    async def to(
        self, reference: int, what: int, arguments: list[Any], body: Buffer
    ) -> list[Buffer]:
        """
        Raises:
            DuckrowError: for who asks.
        """
        store, answer = self._bridge.store, partial(wire.answer, reference)
        repair, readers = self._bridge.repair, self._bridge.readers
        if what == What.DROP:
            await store.drop(arguments[0])
            there = {segment.number for segment in store.segments()}
            # Also those that a bridge had dropped which died before it could say so.
            return answer([number for number in arguments[0] if number not in there])
        if what == What.PLACE:
            return answer(await self._place_of(arguments[0]))
        if what == What.DIGEST:
            return answer(await readers.read_position(arguments[0], store.digest_of))
        if what == What.HEADS:
            place = arguments[0]
            stored = await readers.read_segment(segment_of(place), partial(store.read_heads, place))
            head, block = encode_heads(stored.bundle)
            return answer(head, *block)
        if what == What.BODY:
            place, *is_live = arguments
            found = await readers.read_place(place, store.read_body, is_live=is_live == [True])
            return answer(None, found)
        if what == What.SYNC:
            await store.sync()
            return answer(None)
        if what == What.MEMBER:
            return answer(await self._admin.answer(arguments[0]))
        if what == What.IMAGE:
            return await self._answer_image(reference, *arguments)
        if what == What.REWRITE:
            freed = await store.rewrite(arguments[0], wire.places_of(body))
            repair.look_again_at(arguments[0])
            return answer(freed)
        raise Corrupt(f"a node asks {what} of its bridge")

    async def _place_of(self, position: int) -> int:
        """Asked once, when a batch that waited gets its numbers: where it is not known then, it takes an
        image.  So at a start it is waited for neighbours, too.
        """
        readers, find = self._bridge.readers, self._bridge.store.place_of
        with trio.move_on_at(self._alone_until):
            return await readers.insist(position, partial(find, position), by_node=True)
        return await readers.read_position(position, find)

    async def _answer_image(self, reference: int, offset: int, length: int) -> list[Buffer]:
        """It has no state, or would not ask."""
        images = self._bridge.store.images
        part = await images.read_state(offset, length) if images.leads_on else None
        if part is None:
            self._bridge.need_image()
            return wire.answer(reference, None)
        size, shift, data = part
        return wire.answer(reference, [size, shift], data)
