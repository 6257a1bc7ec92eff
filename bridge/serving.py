"""Serving: the row from a position on, to neighbours that follow it (C2, F10).

A cursor for each and no queue: items are read from the store when the link has taken what it was
given before, so a neighbour that stands still costs nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs
import trio

from duckrow.node.errors import NotFound
from duckrow.node.events import WARNING, Note
from duckrow.node.limits import KIB, MIB
from duckrow.node.rowstore import RowStore
from duckrow.node.wakeup import Wakeup

from .links import Links
from .messages import Follow
from .readers import Readers

READ_BYTES: Final = 256 * KIB
AHEAD_BYTES: Final = 1 * MIB  # that wait in a link; more would not be faster


@attrs.define(eq=False)
class _Served:
    generation: int
    position: int  # the last that was sent
    wakeup: Wakeup = attrs.field(factory=Wakeup)
    ended: bool = False


class Serving:
    def __init__(self, store: RowStore, links: Links, readers: Readers, note: Note) -> None:
        self._store, self._links, self._readers, self._note = store, links, readers, note
        self._served: dict[int, _Served] = {}
        self._nursery: trio.Nursery | None = None
        links.on_sent = self._on_sent

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def serve(self, peer: int, follow: tuple[int, int] | None) -> None:
        """From now on that, instead of what was before."""
        self.stop(peer)
        if follow is not None:
            assert self._nursery is not None
            served = self._served[peer] = _Served(*follow)
            self._nursery.start_soon(self._serve, peer, served)

    def stop(self, peer: int) -> None:
        before = self._served.pop(peer, None)
        if before is not None:
            before.ended = True
            before.wakeup.wake()

    def placed(self) -> None:
        """The row is longer."""
        for served in self._served.values():
            served.wakeup.wake()

    def _on_sent(self, peer: int) -> None:
        if (served := self._served.get(peer)) is not None:
            served.wakeup.wake()

    async def _serve(self, peer: int, served: _Served) -> None:
        store, links = self._store, self._links
        while not served.ended:
            if served.position >= store.position or links.waiting_bytes(peer) > AHEAD_BYTES:
                await served.wakeup.wait()
                continue
            following = served.position + 1
            read = partial(store.read_items, following, READ_BYTES, bodies=True)
            try:
                items = await self._readers.insist(following, read)
            except NotFound as error:
                # It needs an image, or another neighbour.
                self._note(WARNING, "cannot_serve peer=%d error=%s", peer, error)
                return
            if served.ended:
                return
            for item in items:
                links.put(peer, Follow(served.generation, item))
            served.position = items[-1].position
            links.flush()
