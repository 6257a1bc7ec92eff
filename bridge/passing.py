"""Passing: an image from one neighbour for another, where there is none here (C4).

    4 ── WantImage ──► 3 has to act, and its node has no state ── WantImage ──► 2
      ◄──────────────────────── offer, slices, or none ──────────────────────────

Who acts takes no image, and whoever is needed for a majority goes on acting (member.py).  It may be needed
just because somebody waits for an image who has nobody else to ask.  So what that one asks is asked
further on, and what is answered is passed back: then there is a majority without this machine.

One neighbour at a time may ask for the same, or in a ring of such machines a question would never end.
And all of an image comes from who offered it: that of another machine may be of the same position, and
what lies where in it is not the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from .catchup import ImageSource
from .imageforms import ImageMessage, ImageOffer, ImageSlice, NoImage, WantImage
from .neighbours import Neighbours

_OFFER: Final = WantImage(0, 0, 0)  # whatever the least position is


class _Way(NamedTuple):
    asker: int
    source: int  # who was asked: another one may be chosen before it answers


class Passing:
    def __init__(self, neighbours: Neighbours, put: Callable[[int, ImageMessage], None]) -> None:
        self._neighbours, self._put = neighbours, put
        self._source = ImageSource()
        self._asked: dict[WantImage, _Way] = {}
        self._offered: dict[int, tuple[int, int]] = {}  # by asker: which image, and by whom

    def wanted(self, peer: int, want: WantImage) -> bool:
        """Where one is needed here, too.  False: nobody else is asked."""
        neighbours = self._neighbours
        if not neighbours.standing.active:
            return False  # it takes one now
        asked = want if want.image else _OFFER
        if (way := self._asked.get(asked)) is not None and way.asker != peer:
            return False
        # From here it is followed on, so an image from before the row here would be of no use.
        least = neighbours.floor - 1
        source = self._offered_by(peer, want.image) if want.image else self._choose(peer, least)
        if source is None:
            return False
        self._asked[asked] = _Way(peer, source)
        offset = want.offset if want.image else max(want.offset, least)
        self._put(source, want._replace(offset=offset))
        return True

    def _offered_by(self, peer: int, image: int) -> int | None:
        offered, source = self._offered.get(peer, (0, None))
        return source if offered == image else None

    def _choose(self, peer: int, least: int) -> int | None:
        kept = self._neighbours.kept().items()
        self._source.choose(
            {id_: keeps.position for id_, keeps in kept if id_ != peer and keeps.position >= least}
        )
        return self._source.peer

    def heard(self, peer: int, message: ImageOffer | ImageSlice | NoImage) -> None:
        """What was asked for here may have been answered."""
        match message:
            case ImageSlice():
                answered = [WantImage(*message[:3])]
            case ImageOffer():
                answered = [_OFFER]
            case NoImage(image):  # nor will anything else of it come
                answered = [want for want in self._asked if want.image == image]
        answered = [want for want in answered if self._source_of(want) == peer]
        if answered and isinstance(message, NoImage):
            self._source.failed(peer)
        askers = [self._asked.pop(want).asker for want in answered]
        for asker in dict.fromkeys(askers):
            if isinstance(message, ImageOffer):
                self._offered[asker] = message.image, peer
                # What it had asked for was of another image, perhaps of the same position.
                self._asked = {want: way for want, way in self._asked.items() if way.asker != asker}
            self._put(asker, message)

    def lost(self, peer: int) -> None:
        """The link: nothing comes from there, or goes there."""
        gone = {want: way.asker for want, way in self._asked.items() if peer in way}
        for want, asker in gone.items():
            del self._asked[want]
            self._put(asker, NoImage(want.image))
        self._offered = {
            asker: (image, source)
            for asker, (image, source) in self._offered.items()
            if peer not in (asker, source)
        }

    def _source_of(self, want: WantImage) -> int | None:
        way = self._asked.get(want)
        return None if way is None else way.source
