"""Taking: an image in the place of a row that nobody here can follow any more (C4, N5).

    a neighbour that is ahead, and keeps nothing from behind our end   (catchup.py says which)
        ──► its offer ──► numbers that the journal leaves out ──► slices, one after the other
        ──► all of it synced ──► one record: it is the row

A link that is lost costs nothing if it comes back soon: the next slice is asked for again.  If another
neighbour is to be asked instead, or something that came is damaged, or the disk is full, what came goes,
and all begins anew: later each time, and somewhere else if there is somebody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from duckrow.node.env import Disk
from duckrow.node.errors import Corrupt, Full
from duckrow.node.events import INFO, WARNING, Note
from duckrow.node.forms import BaseForm, encode_view
from duckrow.node.images import discard
from duckrow.node.incoming import Incoming
from duckrow.node.rowstore import RowStore
from duckrow.node.segments import Segment
from duckrow.node.wakeup import Wakeup

from .imageforms import ImageMessage, ImageOffer, ImageSlice, NoImage, WantImage
from .links import Links

OFFER_SECONDS: Final = 90.0  # the other node has to write its state down
SLICE_SECONDS: Final = 5.0  # then it is asked for again
LINK_SECONDS: Final = 10.0  # for a link to come back
RETRY_SECONDS: Final = 0.5, 60.0  # after a failure; doubled each time

Between = Callable[[Callable[[], Awaitable[object]]], Awaitable[object]]
Become = Callable[[ImageOffer, BaseForm, list[Segment]], Awaitable[bool]]


class _GoneError(Exception):
    """Raised when that image is not to be had any more."""


class Taking:
    def __init__(
        self,
        disk: Disk,
        store: RowStore,
        links: Links,
        note: Note,
        between: Between,  # rounds: nobody else writes then
        become: Become,
        failed: Callable[[int], None],  # by whom it was not to be had
    ) -> None:
        self._disk, self._store, self._links, self._note = disk, store, links, note
        self._between, self._become, self._failed = between, become, failed
        self._peer: int | None = None  # to be asked
        self._work = Wakeup()
        self._asked: WantImage | None = None
        self._answer: ImageMessage | None = None
        self._changed = trio.Event()

    def take_from(self, peer: int | None) -> None:
        """None: from nobody, now."""
        self._peer = peer
        self._change()
        self._work.wake()

    def heard(self, peer: int, message: ImageMessage) -> None:
        asked = self._asked
        if asked is None or peer != self._peer or isinstance(message, WantImage):
            return
        offer = isinstance(message, ImageOffer | NoImage) and asked.image in (0, message.image)
        if offer or (isinstance(message, ImageSlice) and message[:3] == asked):
            self._answer = message
            self._change()

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            DiskFailed: in a group; the process has to end.
        """
        wait, longest = RETRY_SECONDS
        while True:
            peer = self._peer
            if peer is None:
                await self._work.wait()
                continue
            taken = False
            try:
                taken = await self._take(peer)
            except (_GoneError, Corrupt, Full, OSError) as error:
                self._note(WARNING, "image_not_taken peer=%d error=%s", peer, error)
            if taken:
                wait = RETRY_SECONDS[0]
            else:
                self._failed(peer)
                await trio.sleep(wait)
                wait = min(2 * wait, longest)

    async def _take(self, peer: int) -> bool:
        """False: it has none that is of use."""
        store = self._store
        offer = await self._ask(peer, WantImage(0, 0, store.position), OFFER_SECONDS)
        if not isinstance(offer, ImageOffer) or offer.image < store.position:
            return False
        self._note(INFO, "image_begins peer=%d position=%d", peer, offer.image)
        first, last = min(offer.segments, default=1), max(offer.segments, default=1)
        reserve = partial(store.images.reserve, offer.image, last + 1 - first, first)
        own = await self._between(reserve)
        assert isinstance(own, int)
        incoming = Incoming(self._disk, store.chronicle.copy(), offer.image, first, last, own)
        taken = False
        try:
            await self._receive(peer, offer, incoming)
            files, segments = await incoming.finish()
            heard = tuple(sorted(offer.delivered.items()))
            base = BaseForm(offer.image, offer.digest, encode_view(offer.view), files, heard)
            taken = bool(await self._between(partial(self._become, offer, base, segments)))
        finally:
            incoming.close()
            if not taken:
                await discard(self._disk)
        return taken

    async def _receive(self, peer: int, offer: ImageOffer, incoming: Incoming) -> None:
        offset = 0
        while offset < offer.size:
            given = await self._slice(peer, WantImage(offer.image, 0, offset), offer.size)
            await incoming.write_state(offset, given.data)
            offset = given.following
        for segment, length in sorted(offer.segments.items()):
            offset = 0
            while offset < length:
                given = await self._slice(peer, WantImage(offer.image, segment, offset), length)
                await incoming.write(segment, given.pieces)
                offset = given.following

    async def _slice(self, peer: int, want: WantImage, length: int) -> ImageSlice:
        given = await self._ask(peer, want, SLICE_SECONDS)
        if not isinstance(given, ImageSlice):
            raise _GoneError(f"node {peer} does not have the image at {want.image} any more")
        if not want.offset < given.following <= length:
            raise Corrupt(
                f"a slice of an image reaches from {want.offset:,} to {given.following:,}"
            )
        return given

    async def _ask(self, peer: int, want: WantImage, seconds: float) -> ImageMessage:
        """
        Raises:
            _GoneError: the link is lost, or another neighbour is to be asked.
        """
        self._asked, self._answer = want, None
        try:
            while True:
                with trio.move_on_after(LINK_SECONDS):
                    while self._peer is None:
                        await self._changed.wait()
                if self._peer != peer:
                    raise _GoneError(f"there is no link with node {peer}")
                self._links.put(peer, want)
                self._links.flush()
                with trio.move_on_after(seconds):
                    while self._answer is None and self._peer == peer:
                        await self._changed.wait()
                if self._answer is not None:
                    return self._answer
        finally:
            self._asked = None

    def _change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
