"""Taking: an image in the place of a row that nobody here can follow any more (C4, N5).

    a neighbour that is ahead, and keeps nothing from behind our end   (catchup.py says which)
        ──► its offer ──► numbers that the journal leaves out ──► slices, one after the other
        ──► all of it synced ──► one record: it is the row

Small segments are asked for together: there may be thousands of them, and each alone would take as
long as the way to the neighbour and back.

A link that is lost costs nothing if it comes back soon: the next slice is asked for again.  If another
neighbour is to be asked instead, or something that came is damaged, or the disk is full, what came goes,
and all begins anew: later each time, and somewhere else if there is somebody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from duckrow.node.chronicle import Chronicle
from duckrow.node.env import Disk
from duckrow.node.errors import Corrupt, Full
from duckrow.node.events import INFO, WARNING, Note
from duckrow.node.forms import BaseForm, encode_view
from duckrow.node.images import discard
from duckrow.node.incoming import Incoming
from duckrow.node.limits import KIB
from duckrow.node.rowstore import RowStore
from duckrow.node.segments import Segment
from duckrow.node.wakeup import Wakeup

from .imageforms import ImageMessage, ImageOffer, ImageSlice, NoImage, WantImage
from .links import Links

OFFER_SECONDS: Final = 90.0  # the other node has to write its state down
SLICE_SECONDS: Final = 5.0  # then it is asked for again
TOGETHER_BYTES: Final = 64 * KIB  # of segments that are asked for at once; one may have more
LINK_SECONDS: Final = 10.0  # for a link to come back
RETRY_SECONDS: Final = 0.5, 60.0  # after a failure; doubled each time

Between = Callable[[Callable[[], Awaitable[object]]], Awaitable[object]]
Become = Callable[[ImageOffer, BaseForm, list[Segment]], Awaitable[bool]]


class _GoneError(Exception):
    """Raised when that image is not to be had any more."""


class _Reserved(NamedTuple):
    own: int  # the first of the numbers that the journal leaves out
    chronicle: Chronicle  # as it was there


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
        self._told = False  # whom, since something was asked
        self._work = Wakeup()
        self._asked: dict[WantImage, ImageMessage | None] = {}  # and what was answered
        self._changed = trio.Event()

    def take_from(self, peer: int | None) -> None:
        """None: from nobody, now.  The same again: the link with it is another one."""
        self._peer, self._told = peer, True
        self._change()
        self._work.wake()

    def heard(self, peer: int, message: ImageMessage) -> None:
        asked = self._asked
        match message:
            case ImageSlice():
                answered = [WantImage(*message[:3])]
            case NoImage(image):  # nor will anything else of it come
                answered = [want for want in asked if want.image == image]
            case ImageOffer():
                answered = [want for want in asked if not want.image]
            case _:
                return
        if peer == self._peer and asked.keys() >= {*answered}:
            asked.update(dict.fromkeys(answered, message))
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
        (offer,) = await self._ask(peer, [WantImage(0, 0, store.position)], OFFER_SECONDS)
        if not isinstance(offer, ImageOffer) or offer.image < store.position:
            return False
        self._note(INFO, "image_begins peer=%d position=%d", peer, offer.image)
        first, last = min(offer.segments, default=1), max(offer.segments, default=1)
        numbers = offer.image, first, last
        known = await self._between(partial(self._reserve, *numbers))
        assert isinstance(known, _Reserved)
        incoming = Incoming(self._disk, known.chronicle, *numbers, known.own)
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

    async def _reserve(self, image: int, first: int, last: int) -> _Reserved:
        """The round goes on before whoever waits for this does, and more may come into the row."""
        images = self._store.images
        own = await images.reserve(image, last + 1 - first, first)
        return _Reserved(own, self._store.chronicle.copy())

    async def _receive(self, peer: int, offer: ImageOffer, incoming: Incoming) -> None:
        offset = 0
        while offset < offer.size:
            (given,) = await self._slices(peer, offer, [0], offset)
            await incoming.write_state(offset, given.data)
            offset = given.following
        for segments in together(offer.segments):
            for given in await self._slices(peer, offer, segments):
                segment, following = given.segment, given.following
                await incoming.write(segment, given.pieces)
                while following < offer.segments[segment]:
                    (more,) = await self._slices(peer, offer, [segment], following)
                    await incoming.write(segment, more.pieces)
                    following = more.following

    async def _slices(
        self, peer: int, offer: ImageOffer, segments: Iterable[int], offset: int = 0
    ) -> list[ImageSlice]:
        """Of each of these, from that offset."""
        wants = [WantImage(offer.image, segment, offset) for segment in segments]
        slices: list[ImageSlice] = []
        for given in await self._ask(peer, wants, SLICE_SECONDS):
            if not isinstance(given, ImageSlice):
                raise _GoneError(f"node {peer} does not have the image at {offer.image} any more")
            length = offer.segments[given.segment] if given.segment else offer.size
            if not offset < given.following <= length:
                raise Corrupt(f"a slice of an image reaches from {offset:,} to {given.following:,}")
            slices.append(given)
        return slices

    async def _ask(
        self, peer: int, wants: Iterable[WantImage], seconds: float
    ) -> list[ImageMessage]:
        """The answer to each.

        Raises:
            _GoneError: the link is lost, or another neighbour is to be asked.
        """
        self._asked = asked = dict[WantImage, ImageMessage | None].fromkeys(wants)
        try:
            while True:
                with trio.move_on_after(LINK_SECONDS):
                    while self._peer is None:
                        await self._changed.wait()
                if self._peer != peer:
                    raise _GoneError(f"there is no link with node {peer}")
                self._told = False
                for want, answer in asked.items():
                    if answer is None:
                        self._links.put(peer, want)
                self._links.flush()
                with trio.move_on_after(seconds):
                    while None in asked.values() and not self._told:
                        await self._changed.wait()
                answers = [answer for answer in asked.values() if answer is not None]
                if len(answers) == len(asked):
                    return answers
        finally:
            self._asked = {}

    def _change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def together(segments: Mapping[int, int]) -> Iterator[list[int]]:
    """What is asked for at once, of segments with these lengths; of one that is longer, its first slice."""
    group: list[int] = []
    size = 0
    for segment, length in sorted(segments.items()):
        if group and size + length > TOGETHER_BYTES:
            yield group
            group, size = [], 0
        if length:
            group.append(segment)
            size += length
    if group:
        yield group
