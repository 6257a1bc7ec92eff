"""Before: which commands have a place in front of the others on this disk, when all of it is read again.

    on the disk   3   2   3   4   3        of one lane
                  |       '-- its place: in the first one it is refused, as 2 is missing before it (D3)
                  '-- no place                    and the last one is a copy, which is not needed

Pure.
"""

from __future__ import annotations

from duckrow.node.commands import decode_head
from duckrow.node.errors import Corrupt, LimitExceeded

Lane = tuple[bytes, int, str, int]  # of one epoch


class Before:
    def __init__(self) -> None:
        self._heads: set[bytes] = set()
        self._lanes: dict[Lane, dict[int, bytes]] = {}  # heads by seq, the highest last

    def __contains__(self, head: bytes) -> bool:
        return head in self._heads

    def add(self, head: bytes) -> None:
        """It comes next; what is there behind it in its lane has no place."""
        if head in self._heads:
            return
        self._heads.add(head)
        found, seq = lane_of(head)
        if found is None:
            return
        lane = self._lanes.setdefault(found, {})
        while lane and (highest := next(reversed(lane))) > seq:
            self._heads.discard(lane.pop(highest))
        lane[seq] = head


def lane_of(head: bytes) -> tuple[Lane | None, int]:
    """And its seq there; None: it belongs to no lane."""
    try:
        found = decode_head(head)
    except (Corrupt, LimitExceeded):
        return None, 0
    return (found.pid, found.epoch, found.topic, found.partition), found.seq
