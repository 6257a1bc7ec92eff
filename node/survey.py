"""Survey: a scrub of one segment that also finds out what is needed to put back what is damaged.

    [BUNDLE a][ITEM 5][#### stretch ####][BUNDLE c][ITEM 8][BUNDLE d, a body of it is bad][ITEM 9]
                       items 6 and 7, with            it is   9 is hurt: its item crc is in the
                       bundles that others have       whole   record of its place

What was in a stretch follows from what the index says lies there, and from the items that are missing
between the ones before and behind it.  Pure.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from .errors import Corrupt
from .forms import BundleForm, GapForm, ItemForm
from .places import offset_of, segment_of
from .records import Record, RecordKind
from .scrub import Scrubbing


class Lost(NamedTuple):
    """A stretch in which no record is whole."""

    offset: int
    end: int
    start_count: int  # of the record before it; `durable` too
    durable: int
    after: int  # position of the last item that is recorded before it


class Missing(NamedTuple):
    """Items that nothing records any more, in order."""

    first: int
    last: int
    before: bytes  # the digest of the row before the first; empty: not known
    following: ItemForm | None  # the record behind them; None: it is not in this segment


@attrs.define
class Survey(Scrubbing):
    seeks: bool = False  # where bundles lie whose place is not known
    stretches: list[Lost] = attrs.field(factory=list, init=False)
    spoilt: dict[int, Record] = attrs.field(factory=dict, init=False)  # bundles, by offset
    hurt: dict[int, ItemForm] = attrs.field(factory=dict, init=False)  # by position: these bundles'
    missing: list[Missing] = attrs.field(factory=list, init=False)
    loose: dict[int, int] = attrs.field(factory=dict, init=False)  # item crc: offset of the bundle
    unfit: str = attrs.field(default="", init=False)  # why it cannot be put back
    _seen: tuple[int, bytes] = attrs.field(init=False)  # the last item that is recorded, its digest
    _last: tuple[int, int] = attrs.field(default=(0, 0), init=False)  # start count and durable
    _record: Record | None = attrs.field(default=None, init=False)  # that is looked at

    def __attrs_post_init__(self) -> None:
        self._seen = self.segment.first - 1, b""

    def finish(self, last: int) -> None:
        """All of it was read, and it should record the items up to that position."""
        if self._seen[0] < last:
            self._miss(last + 1, None)

    @property
    def is_clean(self) -> bool:
        return not (self.damages or self.missing)

    def holds(self, offset: int) -> bool:
        """Whether a record that began there is not whole any more."""
        return offset in self.spoilt or any(s.offset <= offset < s.end for s in self.stretches)

    def _lost(self, offset: int, end: int) -> None:
        self.stretches.append(Lost(offset, end, *self._last, self._seen[0]))
        Scrubbing._lost(self, offset, end)

    def _check(self, record: Record, window: bytes, base: int) -> None:
        self._record = record
        Scrubbing._check(self, record, window, base)
        self._record = None
        self._last = record.start_count, record.durable
        if record.kind in (RecordKind.SEGMENT, RecordKind.BASE) and self._digest:
            self._seen = self._position, self._digest
        if self.seeks and record.kind == RecordKind.BUNDLE and record.offset not in self.spoilt:
            self.loose[BundleForm.decode(record.head).crc] = record.offset

    def _check_item(self, record: Record) -> None:
        Scrubbing._check_item(self, record)
        item = ItemForm.decode(record.head)
        if item.position > self._seen[0] + 1:
            self._miss(item.position, item)
        if segment_of(item.place) == self.segment.number and self.holds(offset_of(item.place)):
            self.hurt[item.position] = item
        self._seen = item.position, item.digest

    def _tell_hollow(self, record: Record, topics: tuple[str, ...]) -> None:
        item, self._record = self._record, record
        Scrubbing._tell_hollow(self, record, topics)
        self._record = item

    def _check_gap(self, record: Record) -> None:
        Scrubbing._check_gap(self, record)
        gap = GapForm.decode(record.head)
        if gap.first > self._seen[0] + 1:
            self.unfit = f"what lay before a gap at {record.offset:,} is not known"
        self._seen = gap.last, gap.digest

    def _miss(self, until: int, following: ItemForm | None) -> None:
        position, digest = self._seen
        self.missing.append(Missing(position + 1, until - 1, digest, following))

    def _tell(
        self,
        offset: int,
        length: int,
        what: str,
        *,
        topics: tuple[str, ...] = (),
        mended: bool = False,
    ) -> None:
        Scrubbing._tell(self, offset, length, what, topics=topics, mended=mended)
        record = self._record
        if record is None:
            return
        if record.kind == RecordKind.BUNDLE and _is_form(record):
            self.spoilt[record.offset] = record
        else:
            self.unfit = f"{what} at {offset:,}"


def _is_form(record: Record) -> bool:
    try:
        BundleForm.decode(record.head)
    except Corrupt:
        return False
    return True
