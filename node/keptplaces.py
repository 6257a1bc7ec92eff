"""Kept places: where bodies lie that waited when an image was made, and for which no item here stands.

They came with the image (images.py), and travel on in every snapshot until they have their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from . import cbor
from .places import SEGMENT_SHIFT

KIND: Final = "places"
_AT_ONCE: Final = 512


def chunks(places: Mapping[int, int], shift: int = 0) -> Iterator[tuple[str, bytes]]:
    """For a snapshot; of segments whose numbers are so much higher."""
    pairs = [[position, place + (shift << SEGMENT_SHIFT)] for position, place in places.items()]
    for at in range(0, len(pairs), _AT_ONCE):
        yield KIND, cbor.dumps(pairs[at : at + _AT_ONCE])


def restored(found: Iterable[tuple[str, bytes]]) -> dict[int, int]:
    """
    Raises:
        Corrupt: these are no places.
    """
    return {
        position: place
        for kind, chunk in found
        if kind == KIND
        for position, place in cbor.loads_own(chunk)
    }
