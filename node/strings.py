"""Many byte strings end to end, and where each ends: how values, keys and headers are kept.

    data  a p p l e p e a r f i g
    ends          5       9     12          string i is data[ends[i-1]:ends[i]], string 0 data[:5]

Nothing here looks at strings one by one but `joined`, and `slices`, if their lengths differ.  Ends
of a part of the column, or of several columns behind one another, are the old ends plus a constant:
they are added to all at once, as one large number whose 32-bit digits they are.  That is five times
faster than a loop, and linear.  Ends are compared with their neighbours in the same way.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

_WORTH_LOOKING: Final = 16  # strings, whether they all have the same length


class Strings(NamedTuple):
    ends: memoryview  # of 'I': u32
    data: memoryview

    def span(self, lo: int, hi: int) -> tuple[int, int]:
        """Where strings lo <= i < hi lie in `data`."""
        return self.ends[lo - 1] if lo else 0, self.ends[hi - 1]

    def slices(self, lo: int, hi: int) -> list[bytes]:
        """Strings lo <= i < hi."""
        start, stop = self.span(lo, hi)
        each = self._length_of_each()
        if each:
            # As fixed columns of a record: no Python code runs for a single one.
            return [*struct.Struct(f"{each}s" * (hi - lo)).unpack(self.data[start:stop])]
        ends = self.ends[lo:hi].tolist()
        if start:
            ends = [end - start for end in ends]
        # One copy of all, since slices of bytes are twice as fast as slices of a view.
        data = bytes(self.data[start:stop])
        return [data[a:b] for a, b in pairwise([0, *ends])]

    def sizes(self) -> list[int]:
        return [b - a for a, b in pairwise([0, *self.ends.tolist()])]

    def _length_of_each(self) -> int:
        """0: they differ, or it is not worth looking."""
        count, size = len(self.ends), len(self.data)
        each = self.ends[0]
        if not each or count < _WORTH_LOOKING or each * count != size:
            return 0
        return each if self.ends.tobytes() == even(range(each, size + 1, each)).tobytes() else 0

    def whole(self) -> bool:
        """Whether the ends are what ends must be, so that no access can leave the data."""
        count, size = len(self.ends), len(self.data)
        if self.ends[-1] != size or count == 1:
            return self.ends[-1] == size
        digits = int.from_bytes(self.ends.cast("B"), "little")
        tops = _tops(count)
        if digits & tops:
            return False
        # In each digit 2^31 + an end - the one before it, which keeps 2^31 if it is not negative.
        before = digits ^ size << 32 * (count - 1)
        tops >>= 32
        return (digits >> 32 | tops) - before & tops == tops


@functools.lru_cache(maxsize=4)
def even(ends: range) -> array[int]:
    """The ends of strings that all have the same length, as they often do."""
    return array("I", ends)


@functools.lru_cache(maxsize=4)  # most batches have as many entries as the one before
def _tops(count: int) -> int:
    """The highest bit of each digit; no end has it, since columns are smaller."""
    return int.from_bytes(b"\0\0\0\x80" * count, "little")


def joined(pieces: Iterable[bytes]) -> Strings:
    """A column of strings that are in no column yet."""
    found = [*pieces]
    ends = array("I", accumulate(map(len, found)))
    return Strings(memoryview(ends), memoryview(b"".join(found)))


def shifted(ends: memoryview, by: int) -> bytes:
    """All of `ends` plus `by`, which may be negative; none may leave 0 <= end < 2^32."""
    size = ends.nbytes
    if by == 0:
        return bytes(ends)
    ones = int.from_bytes(b"\1\0\0\0" * (size // 4), "little")
    return (int.from_bytes(ends.cast("B"), "little") + by * ones).to_bytes(size, "little")
