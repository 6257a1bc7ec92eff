"""When something falls due: a heap of (time, key) with one wake-up for each key.

It is an index, so it may be late to learn that something was put off, never that it came nearer:
whoever takes the first key looks again when that key is really due, and puts it back if it is not
yet.  So what is due comes in the order of (time, key), whatever the heap went through before, and
a heap that was built anew from the tables gives the same order.
"""

from __future__ import annotations

from heapq import heappop, heappush


class DueHeap:
    __slots__ = ("_heap", "at")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self.at: dict[int, int] = {}  # key: its wake-up; not after it is really due

    def put(self, key: int, time: int) -> None:
        """In place of the wake-up it had."""
        if self.at.get(key) != time:
            self.at[key] = time
            heappush(self._heap, (time, key))
            if len(self._heap) > 2 * len(self.at) + 1_000:  # more replaced ones than real ones
                self._heap = sorted((at, key) for key, at in self.at.items())

    def drop(self, key: int) -> None:
        self.at.pop(key, None)

    def first(self) -> tuple[int, int] | None:
        """The earliest (time, key)."""
        heap = self._heap
        while heap and self.at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)  # was replaced or dropped
        return heap[0] if heap else None
