"""Where bytes lie in the row store: a segment, an offset in it, a command of a bundle, in 64 bits.

    63        38 37            14 13         0
    segment      offset / 8       command

Places grow with the log, so they also serve as *addresses*: "durable up to here".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

NOWHERE = 0  # a place that is not known: no segment has this number
OFFSET_SHIFT = 14
SEGMENT_SHIFT = 38
_NEAR_SHIFT = OFFSET_SHIFT + 16  # half a mebibyte
COMMAND_MASK = (1 << OFFSET_SHIFT) - 1
OFFSET_MASK = (1 << (SEGMENT_SHIFT - OFFSET_SHIFT)) - 1


def place(segment: int, offset: int, command: int = 0) -> int:
    assert offset % 8 == 0, f"records start at multiples of 8, not at {offset}"
    return segment << SEGMENT_SHIFT | offset >> 3 << OFFSET_SHIFT | command


def segment_of(place: int) -> int:
    return place >> SEGMENT_SHIFT


def offset_of(place: int) -> int:
    return (place >> OFFSET_SHIFT & OFFSET_MASK) << 3


def bytes_between(place: int, later: int) -> int | None:
    """From one record to a later one; None: that is in another segment."""
    if place >> SEGMENT_SHIFT != later >> SEGMENT_SHIFT:
        return None
    return (later >> OFFSET_SHIFT) - (place >> OFFSET_SHIFT) << 3


def command_of(place: int) -> int:
    return place & COMMAND_MASK


def record_of(place: int) -> int:
    """The place without its command: where the record starts."""
    return place & ~COMMAND_MASK


class Places:
    """Any number of places, in sets of some thousand at most: one that holds them all would keep
    everybody waiting for some milliseconds when it grows, and again when it is let go."""

    def __init__(self, places: Iterable[int] = ()) -> None:
        self._near: dict[int, set[int]] = {}
        self.update(places)

    def update(self, places: Iterable[int]) -> None:
        near = self._near
        for place in places:
            region = place >> _NEAR_SHIFT
            if region not in near:
                near[region] = set()
            near[region].add(place)

    def __contains__(self, place: object) -> bool:
        assert isinstance(place, int)
        near = self._near.get(place >> _NEAR_SHIFT)
        return near is not None and place in near

    def __iter__(self) -> Iterator[int]:
        for region in sorted(self._near):
            yield from sorted(self._near[region])

    def __len__(self) -> int:
        return sum(map(len, self._near.values()))

    def shed(self) -> bool:
        """Lets some of them go.  False: there are none."""
        if self._near:
            self._near.popitem()
        return bool(self._near)
