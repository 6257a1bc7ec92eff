"""Passing: an image from one neighbour for another, where there is none here (C4).

    4 ── WantImage ──► 3 has to act, and its node has no state ── WantImage ──► 2
      ◄──────────────────────── offer, slices, or none ──────────────────────────

Who acts takes no image, and whoever is needed for a majority goes on acting (member.py).  It may be needed
just because somebody waits for an image who has nobody else to ask.  So what that one asks is asked
further on, and what is answered is passed back: then there is a majority without this machine.

One neighbour at a time may ask for the same, or in a ring of such machines a question would never end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .catchup import ImageSource
from .imageforms import ImageMessage, ImageOffer, ImageSlice, NoImage, WantImage
from .neighbours import Neighbours

_OFFER: Final = WantImage(0, 0, 0)  # whatever the least position is


class Passing:
    def __init__(self, neighbours: Neighbours, put: Callable[[int, ImageMessage], None]) -> None:
        self._neighbours, self._put = neighbours, put
        self._source = ImageSource()
        self._asked: dict[WantImage, int] = {}  # by whom

    def wanted(self, peer: int, want: WantImage) -> bool:
        """Where one is needed here, too.  False: nobody else is asked."""
        neighbours = self._neighbours
        if not neighbours.standing.active:
            return False  # it takes one now
        # From here it is followed on, so an image from before the row here would be of no use.
        least, kept = neighbours.floor - 1, neighbours.kept().items()
        self._source.choose(
            {id_: keeps.position for id_, keeps in kept if id_ != peer and keeps.position >= least}
        )
        source, asked = self._source.peer, want if want.image else _OFFER
        if source is None or self._asked.setdefault(asked, peer) != peer:
            return False
        offset = want.offset if want.image else max(want.offset, least)
        self._put(source, want._replace(offset=offset))
        return True

    def heard(self, peer: int, message: ImageOffer | ImageSlice | NoImage) -> None:
        """What was asked for here may have been answered."""
        if peer != self._source.peer:
            return
        match message:
            case ImageSlice():
                answered = [WantImage(*message[:3])]
            case ImageOffer():
                answered = [_OFFER]
            case NoImage(image):
                answered = [want for want in self._asked if want.image == image]
                if answered:
                    self._source.failed(peer)
        askers = [self._asked.pop(want) for want in answered if want in self._asked]
        for asker in dict.fromkeys(askers):
            self._put(asker, message)

    def lost(self, peer: int) -> None:
        """The link: nothing comes from there, or goes there."""
        is_source = peer == self._source.peer
        gone = {want: asker for want, asker in self._asked.items() if is_source or asker == peer}
        for want, asker in gone.items():
            del self._asked[want]
            self._put(asker, NoImage(want.image))
