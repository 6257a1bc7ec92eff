"""Giving: an image of the row for neighbours that were away longer than it is kept (C4, N5).

    node    ── the state and the whole index, of one moment ──►  outgoing, a file beside the row
    store   ── the segments with what is alive ──────────────►  slices, as they are asked for

One image at a time, for all who ask.  As long as one of them does, what it speaks of is *pinned*: those
segments, and the row behind it, which the taker will follow.  With the node dead there is none; on a
full disk, or as long as damage hides what the row has of the view, there is none either.  Who needs one
itself takes that first, or passes on another's (passing.py): what lacks here would lack there, and nobody
would know.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

import trio

from duckrow.node.env import Disk
from duckrow.node.errors import Corrupt, NotFound
from duckrow.node.events import INFO, WARNING, Note
from duckrow.node.forms import decode_view
from duckrow.node.giving import Given
from duckrow.node.incoming import Piece
from duckrow.node.journal import Journal
from duckrow.node.limits import KIB
from duckrow.node.reserve import OK
from duckrow.node.row import View
from duckrow.node.wakeup import Wakeup

from .imageforms import ImageMessage, ImageOffer, ImageSlice, NoImage, WantImage
from .links import Links
from .readers import Readers
from .standing import Standing

OUTGOING: Final = "outgoing"
SLICE_BYTES: Final = 256 * KIB
MAKE_SECONDS: Final = 60.0  # for the node to tell the next part of its state
KEEP_SECONDS: Final = 30.0  # after somebody asked for a part of it
MEND_SECONDS: Final = 20.0  # for what is damaged of it
OWN_SECONDS: Final = 60.0  # for an image that is needed here; then nobody may have a better one
READ_BYTES: Final = 256 * KIB
PIN: Final = 1
# Writes what the node tells with the function; None: it has nothing to tell.
Source = Callable[[Callable[[bytes], None]], Awaitable[Given | None]]


class _Wanted(NamedTuple):
    peer: int
    want: WantImage


class Giving:
    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        links: Links,
        readers: Readers,
        standing: Standing,
        note: Note,
    ) -> None:
        self.source: Source | None = None  # the node beside it, while there is one
        self._disk, self._journal, self._store = disk, journal, journal.store
        self._links, self._readers, self._standing, self._note = links, readers, standing, note
        self._offer: ImageOffer | None = None
        self._wanted: dict[_Wanted, None] = {}  # what is asked for again meanwhile is given once
        self._work = Wakeup()

    def wanted(self, peer: int, want: WantImage) -> None:
        self._wanted[_Wanted(peer, want)] = None
        self._work.wake()

    async def run(self) -> None:
        """Until cancelled."""
        await self._forget()  # what a process left that died
        while True:
            with trio.move_on_after(KEEP_SECONDS) as waiting:
                await self._work.wait()
            if self._offer is not None and (waiting.cancelled_caught or not self._has_room):
                await self._forget()
            while self._wanted:
                peer, want = wanted = next(iter(self._wanted))
                del self._wanted[wanted]
                try:
                    self._check()
                    answer = await self._answer(want)
                    self._check()  # it may just have turned out
                except (Corrupt, NotFound, OSError) as error:
                    self._note(WARNING, "image_not_given peer=%d error=%s", peer, error)
                    await self._forget()
                    answer = NoImage(want.image)
                self._links.put(peer, answer)
                self._links.flush()

    @property
    def is_needed_here(self) -> bool:
        """An image is to take the place of the row here first."""
        standing = self._standing
        since = trio.current_time() - standing.stateless_since
        return standing.stateless and (self.source is None or since < OWN_SECONDS)

    def _check(self) -> None:
        """
        Raises:
            Corrupt: nothing is given from here now.
        """
        if self.is_needed_here:
            raise Corrupt("an image is needed here, too")

    @property
    def _has_room(self) -> bool:
        return self._store.reserve.state == OK

    async def _answer(self, want: WantImage) -> ImageMessage:
        image, segment, offset = want
        if not image:
            if self._offer is not None and self._offer.image < offset:
                await self._forget()  # it is too old to be of use
            # What has its place in the row, of the view, is part of an image.
            if self._offer is None and self._has_room and not self._store.chronicle.is_uncounted:
                await self._make()
        offer = self._offer
        if offer is None or image not in (0, offer.image):
            return NoImage(image)
        if not image:
            return offer
        if segment:
            size = offer.segments.get(segment, 0)
            following, pieces = await self._pieces(segment, offset, size)
            return ImageSlice(image, segment, offset, following, pieces=tuple(pieces))
        file = await self._disk.open(OUTGOING)
        try:
            data = await file.read(offset, SLICE_BYTES)
        finally:
            file.close()
        return ImageSlice(image, segment, offset, offset + len(data), data)

    async def _pieces(self, segment: int, offset: int, size: int) -> tuple[int, list[Piece]]:
        """What is damaged here is given when it is mended: who takes it could never ask for it again.
        What nobody has any more is given as if it had been left out.

        Raises:
            Corrupt: it takes long; somebody else may have an image.
            NotFound: the segment was dropped.
        """
        read = partial(self._store.read_pieces, segment, offset, size, SLICE_BYTES)
        with trio.move_on_after(MEND_SECONDS):
            try:
                return await self._readers.read_segment(segment, partial(read, whole=True))
            except Corrupt:
                return await read(whole=False)
        raise Corrupt(f"segment {segment} is damaged, and not mended yet")

    async def _make(self) -> None:
        """
        Raises:
            Corrupt, NotFound: something of it is damaged.
            OSError: the disk is full, or fails.
        """
        if self.source is None:
            return
        store, size = self._store, 0
        store.pin(PIN, 0, ())  # everything, until it is known what is needed
        file = await self._disk.open(OUTGOING, create=True)

        def write(data: bytes) -> None:
            nonlocal size
            if not store.reserve.spares(len(data)):
                raise OSError(errno.ENOSPC, "what is left of the disk is kept for this machine")
            file.write(size, [data])
            size += len(data)
            patience.deadline = trio.current_time() + MAKE_SECONDS

        given = None
        try:
            file.truncate(0)
            with trio.move_on_after(MAKE_SECONDS) as patience:
                if self.source is not None:  # it may have gone meanwhile
                    given = await self.source(write)
        finally:
            file.close()
            if given is None:
                await self._forget()
        if given is None:
            return
        position, view = given.position, decode_view(given.view)
        segments = {
            each.number: each.bytes if each.number in given.segments else 0
            for each in store.segments()
        }
        newest = max(segments)  # the index may speak of it
        segments = {number: n for number, n in segments.items() if n or number == newest}
        store.pin(PIN, position, segments)
        digest, delivered = await store.digest_of(position), await self._delivered(position)
        self._offer = ImageOffer(position, digest, view, delivered, size, segments)
        self._note(INFO, "image_made position=%d bytes=%d", position, size)

    async def _delivered(self, position: int) -> dict[int, int]:
        """Of the view that is installed at that position: it may not be that of now."""
        store, delivered = self._store, self._journal.delivered()
        end, lowest = store.position, dict[int, int]()
        while position < end:
            for item in await store.read_items(position + 1, READ_BYTES, end=end):
                content, position = item.content, item.position
                if isinstance(content, View):
                    delivered, position = dict(content.cut), end  # what follows is of others
                    break
                lowest.setdefault(content.origin, content.s)
        return delivered | {origin: s - 1 for origin, s in lowest.items()}

    async def _forget(self) -> None:
        self._offer = None
        self._store.unpin(PIN)
        if await self._disk.exists(OUTGOING):
            await self._disk.unlink(OUTGOING)
