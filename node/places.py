"""Where bytes lie in the row store: a segment, an offset in it, a command of a bundle, in 64 bits.

    63        38 37            14 13         0
    segment      offset / 8       command

Places grow with the log, so they also serve as *addresses*: "durable up to here".
"""

from __future__ import annotations

OFFSET_SHIFT = 14
SEGMENT_SHIFT = 38
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
