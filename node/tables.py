"""Tables: the rows of the state, and how a slow reader sees them all as they were at one moment.

A table is a dict whose values never change; a change puts another value.  While a capture is under
way, the first change of a row notes what it was, so that the capture, which goes over the rows in
slices, still finds every row as it was when it began:

    begun          {a: 1, b: 2, c: 3}     noted {}
    put(b, 7)      {a: 1, b: 7, c: 3}     noted {b: 2}          captured: a 1, b 2, c 3
    put(d, 4)      {..., d: 4}            d was not there when it began, so nobody will ask for it

Nothing is copied but the list of keys, and a table that nobody captures pays for one comparison.
What was noted is let go little by little, with the changes that follow: many thousand old values at
once would keep everybody waiting for some milliseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

LET_GO_AT_ONCE = 8  # rows that were noted, with a change of one

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """Rows whose order means nothing: nothing may be decided by it."""

    __slots__ = ("_capturing", "_noted", "rows")

    def __init__(self) -> None:
        self.rows: dict[K, V] = {}  # to read from; changed by `put` and `drop` only
        self._noted: dict[K, V] | None = None
        self._capturing = False

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, key: K, value: V) -> None:
        if self._noted is not None:
            self._note(key)
        self.rows[key] = value

    def drop(self, key: K) -> V:
        if self._noted is not None:
            self._note(key)
        return self.rows.pop(key)

    def begin(self, order: Callable[[list[K]], None] | None = None) -> Iterator[tuple[K, V]]:
        """The rows as they are now, however slowly they are taken; until `end`.

        `order` brings their keys into the order in which they are to come, when the first is taken.
        """
        assert not self._capturing, "a table is captured once at a time"
        self._capturing, self._noted = True, {}
        return self._as_begun(list(self.rows), self._noted, order)

    def end(self) -> None:
        self._capturing = False

    def _note(self, key: K) -> None:
        assert self._noted is not None
        if self._capturing:
            # A row that came after the beginning may get noted too; it is not in the list of keys.
            if key not in self._noted and key in self.rows:
                self._noted[key] = self.rows[key]
            return
        for _ in range(min(LET_GO_AT_ONCE, len(self._noted))):
            self._noted.popitem()
        if not self._noted:
            self._noted = None

    def _as_begun(
        self, keys: list[K], noted: dict[K, V], order: Callable[[list[K]], None] | None
    ) -> Iterator[tuple[K, V]]:
        if order is not None:
            order(keys)
        for key in keys:
            yield key, noted[key] if key in noted else self.rows[key]


class Recent(Table[K, V]):
    """A table whose order is state: what was renewed last stands last, and the first goes first.

    Not a plain dict from which rows are taken and put back: finding its first row again and again
    would mean stepping over all the gaps at the front.
    """

    __slots__ = ()

    rows: OrderedDict[K, V]

    def __init__(self) -> None:
        super().__init__()
        self.rows = OrderedDict()

    def renew(self, key: K, value: V) -> None:
        """Puts the row, and it stands last."""
        if self._noted is not None:
            self._note(key)
        self.rows[key] = value
        self.rows.move_to_end(key)

    def oldest(self) -> K:
        return next(iter(self.rows))
