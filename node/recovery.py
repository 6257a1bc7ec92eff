"""Recovery: what the bytes of a store mean, after whatever happened to it.

One pass over the records that no index file speaks for, and at each of them one question: is it
whole?  If it is not, the address up to which the store is known to have been durable decides:

    records   [ok][ok][ok][bad][ok][ok]           [ok][ok][ok][bad][ok].......
    durable   ---------------------^              ------------^
              damage: it was whole once;          torn: nobody was told of it;
              go on after it, and tell            cut everything from there on

The address is known before the pass, since the last valid record of the files claims the most.
Bodies are checked only beyond it: below, a damaged body spoils nobody's number, and whoever reads
it is told.

A process that was killed leaves everything that it wrote with the kernel, and in order.  So where the
machine has run on since, only what lies behind the last good record can be torn.  That matters where
answers do not wait for syncs.

What lay in a damaged stretch, and what is lost of the row by it, is decided in `evidence.py`.

Pure: `scan` is a generator that asks for (offset, length) and is sent bytes; `opening.py` reads,
and carries out what is decided here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from operator import itemgetter
from typing import Final, NamedTuple

import attrs

from .checksum import crc32c
from .chronicle import Opening, Waiting
from .damage import Damage
from .errors import Corrupt
from .evidence import Evidence, Next
from .findings import Stretch
from .forms import (
    IDENTITY,
    BaseForm,
    BundleForm,
    GapForm,
    ItemForm,
    SettledForm,
    Start,
    bodies,
    chain,
    number_in,
    split_heads,
)
from .glide import Glide
from .places import offset_of, place, segment_of
from .positions import LEFT_OUT, Column
from .records import (
    PREFIX_BYTES,
    REACH_MAX,
    Record,
    RecordKind,
    decode,
    padded,
)
from .search import next_record
from .segments import segment_file
from .storeoptions import FSYNC

EVERYTHING: Final = 1 << 62  # also as an address: all there is was durable
_offset_of: Final = itemgetter(Record._fields.index("offset"))


class Last(NamedTuple):
    """The last good record of all."""

    address: int
    start_count: int


@attrs.define
class Recovery(Evidence):
    """Fed with the segments that need reading, oldest first; then says what they come to."""

    boot_id: str = ""  # of the machine now; empty: what the kernel had may be gone
    last: Last | None = None
    whole: int = attrs.field(init=False)  # address: what lies below was whole once

    torn: bool = attrs.field(default=False, init=False)  # that segment ends in a torn tail
    records: int = attrs.field(default=0, init=False)
    _before: Column = attrs.field(init=False)  # of the segment before
    _left_out: list[Record] = attrs.field(factory=list, init=False)  # GAP records of the segment
    _start_count: int = attrs.field(default=0, init=False)  # of the last good record
    _claimed: int = attrs.field(default=0, init=False)  # by the last good record

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.whole, self._before = self.durable, self.column

    # -- the pass -------------------------------------------------------------------------

    def scan(
        self,
        segment: int,
        seed: int,
        size: int,
        window_bytes: int,
        *,
        before: int = 0,
        column: Column | None = None,
        offset: int = 0,
    ) -> Generator[tuple[int, int], bytes, int]:
        """Reads one file from `offset` on, `column` being its index up to there.

        `before` is where the file before it ended.  Returns where what is kept of this one ends.
        """
        durable = offset_in(segment, self.whole)
        window_bytes = max(window_bytes, REACH_MAX)
        self._before = self.column
        self.column = Column(self.chronicle.position + 1) if column is None else column
        self.torn = self.rewritten = False
        self._left_out.clear()
        window, base = b"", offset
        while offset < size:
            offset = self._glide(window, base, offset, durable, segment, seed)
            if offset == size:
                break
            record = decode(window, base, offset, seed)
            if record is None and base + len(window) < min(size, offset + REACH_MAX):
                window = yield offset, window_bytes
                base = offset
                record = decode(window, base, offset, seed)
            if record is not None and record.end > base + len(window):
                # Below `durable` a bundle's heads are enough, and of a stretch there is nothing to see.
                fragile = offset >= durable and record.kind == RecordKind.BUNDLE
                end = record.end if fragile else _heads_end(record)
                if base + len(window) < end <= size:
                    window = yield offset, max(window_bytes, end - offset)
                    base = offset
            if record is not None and self._take(record, segment, window, base, durable, size):
                self.records += 1
                self._start_count, self._claimed = record.start_count, record.durable
                offset = record.end
                durable = offset_in(segment, self.whole)  # a START may have moved it
                continue
            if offset >= durable:
                self.torn = True
                return offset
            found, window, base = yield from next_record(
                seed, size, offset + 8, window_bytes, self._start_count
            )
            end = padded(size) if found is None else found.offset
            stretch = Stretch(segment, offset, end - offset, seed, self._start_count, self._claimed)
            left = b"" if offset else (yield 0, min(end, REACH_MAX))
            if not self.copies_again(stretch, before, left):
                if offset == 0 and found is None:
                    self.lose_end(segment, size)
                else:
                    self.stretches.append(stretch)
            offset = end
        if offset < durable < EVERYTHING:
            stretch = Stretch(
                segment, offset, durable - offset, seed, self._start_count, self._claimed
            )
            self.stretches.append(stretch)
        elif not size and durable == EVERYTHING:
            self.lose_end(segment, size)
        return offset

    def ended(self, segment: int, seed: int, end: int, before: int) -> bool:
        """The next segment says that this one, kept up to `end`, was `before` bytes long.

        False: it is shorter because its tail was torn off, so the next one was never told of.
        """
        if end < before:
            if place(segment, end) >= self.whole:
                return False
            self.stretches.append(
                Stretch(segment, end, before - end, seed, self._start_count, self._claimed)
            )
        return True

    def _glide(
        self, window: bytes, base: int, offset: int, durable: int, segment: int, seed: int
    ) -> int:
        """Takes bundles with their items as long as they are what they nearly always are.

        Below `durable`, whole in the window, one after the other, and in order.  Returns where
        something else lies; whatever it is, `_take` looks at it.
        """
        chronicle = self.chronicle
        if self.stretches or chronicle.waiting or not self.anchored or chronicle.own is not None:
            return offset
        glide = Glide(
            chronicle.position, chronicle.digest, self.column.places, offset, self._start_count
        )
        glide.run(window, base, min(durable, base + len(window)), segment, seed)
        if glide.records:
            chronicle.position, chronicle.digest = glide.position, glide.digest
            chronicle.heard.update(glide.heard)
            self._claimed = glide.durable
            self.records += glide.records
        return glide.offset

    def finish(self) -> None:
        super().finish()
        # A START may be damaged where records behind it are whole: the next one must not go back.
        known = self.chronicle.start_count
        self.chronicle.start_count = max(known, self._start_count)

    # -- one record -----------------------------------------------------------------------

    def _take(
        self, record: Record, segment: int, window: bytes, base: int, durable: int, size: int
    ) -> bool:
        """False: it is not whole, or it does not make sense where it is."""
        kind = record.kind
        if (
            record.end > size
            or record.start_count < self._start_count
            or (record.offset == 0) != (kind == RecordKind.SEGMENT)
        ):
            return False
        try:
            if kind == RecordKind.BUNDLE:
                fragile = record.offset >= durable
                return self._on_bundle(record, segment, window, base, fragile)
            if kind == RecordKind.ITEM:
                return self._on_item(ItemForm.decode(record.head), segment, size)
            if kind == RecordKind.GAP:
                return self._on_gap(GapForm.decode(record.head), record, segment, size)
            return self._on_other(kind, record, segment)
        except Corrupt:
            return False

    def _on_bundle(
        self, record: Record, segment: int, window: bytes, base: int, fragile: bool
    ) -> bool:
        view, origin, s, lamport, stamp, commands, length, crc = BundleForm.decode(record.head)
        at = record.body_offset - base
        heads = window[at : at + length]
        where = place(segment, record.offset)
        identity = IDENTITY.pack(view, origin, s, lamport, stamp, commands)
        if crc32c(heads, crc32c(identity)) != crc:
            if fragile:
                return False
            what = f"the heads of a bundle of {commands:,} commands"
            self.spoilt[where] = Damage(segment_file(segment), record.body_offset, length, what)
        elif fragile:
            first = record.body_offset + padded(length)
            for start, body_length, body_crc in bodies(split_heads(heads, commands), first):
                at = start - base
                if crc32c(window[at : at + body_length]) != body_crc:
                    return False
        self.chronicle.received(where, Waiting(view, origin, s, crc))
        return True

    def _on_item(self, item: ItemForm, segment: int, size: int) -> bool:
        position, where, crc, digest = item
        chronicle = self.chronicle
        if not self.anchored:
            self.anchor(position)
        elif position != chronicle.position + 1 or self.stretches:
            if not 0 <= position - 1 - chronicle.position <= size // PREFIX_BYTES:
                return False
            self.settle(position - 1, segment, after=Next(where, position, crc, digest))
        elif chain(chronicle.digest, position, crc) != digest:
            self.lose(position, position, segment, where, "the digest of the row does not fit")
        content = chronicle.waiting.get(where)
        spoilt = self.spoilt.pop(where, None)
        if (hidden := self._gap_over(where, segment)) is not None:
            self.column.add(place(segment, hidden.offset) | LEFT_OUT, segment)
            chronicle.ordered(position, where, crc, digest)
            return True
        if spoilt is not None:
            self.hole(position, position, spoilt)
        elif (content is None and segment_of(where) == segment) or (content and content.crc != crc):
            self.lose(position, position, segment, where, "the bundle or view mark of an item")
            self.exposed = True
        chronicle.ordered(position, where, crc, digest)
        self.column.add(where, segment)
        return True

    def _on_gap(self, gap: GapForm, record: Record, segment: int, size: int) -> bool:
        """Everything it stands for lies below the floor, so nobody asks for more than this."""
        chronicle = self.chronicle
        if not self.anchored:
            self.anchor(gap.first)
        elif gap.first != chronicle.position + 1 or self.stretches:
            if not 0 <= gap.first - 1 - chronicle.position <= size // PREFIX_BYTES:
                return False
            self.settle(gap.first - 1, segment, digest=gap.before)
        elif chronicle.digest != gap.before:
            position = chronicle.position
            self.lose(position, position, segment, place(segment, 0), "the digest of the row")
        for where in gap.ordered:
            chronicle.waiting.pop(where, None)
            if (spoilt := self.spoilt.pop(where, None)) is not None:
                self.damages.append(spoilt)
        chronicle.position, chronicle.digest = gap.last, gap.digest
        chronicle.heard.update(gap.heard)
        mark = place(segment, record.offset) | LEFT_OUT
        self.column.places.extend([mark] * (gap.last + 1 - gap.first))
        self._left_out.append(record)
        return True

    def _gap_over(self, where: int, segment: int) -> Record | None:
        """The GAP record that took the place of the bundle there."""
        if not self._left_out or segment_of(where) != segment:
            return None
        index = bisect_right(self._left_out, offset_of(where), key=_offset_of) - 1
        found = self._left_out[index] if index >= 0 else None
        return found if found is not None and offset_of(where) < found.end else None

    def _on_other(self, kind: int, record: Record, segment: int) -> bool:
        chronicle, head = self.chronicle, record.head
        if kind == RecordKind.SEGMENT:
            return self._on_segment(Opening.decode(record), segment)
        if kind == RecordKind.START:
            chronicle.start(Start.decode(head))
            self._outlived()
        elif kind == RecordKind.CLEAN:
            chronicle.clean(number_in(head, "a clean end"))
        elif kind == RecordKind.VIEW:
            chronicle.decided(head, place(segment, record.offset), crc32c(head))
            self._outlived()
        elif kind == RecordKind.REGISTER:
            chronicle.register = head
        elif kind == RecordKind.FLOOR:
            chronicle.floor = max(chronicle.floor, number_in(head, "a floor"))
        elif kind == RecordKind.BASE:
            return self._on_base(BaseForm.decode(head))
        elif kind == RecordKind.SETTLED:
            chronicle.settled(SettledForm.decode(head))
        return True

    def _outlived(self) -> None:
        """What the last incarnation wrote is there, if the machine has run on since; it told of it, too.

        Unless that waited for a sync, by its own level and by that of a view which names it.
        """
        if self.last is None:
            return
        view = self.chronicle.newest_view
        named = {} if view is None else {each.incarnation: view.durability for each in view.members}
        for number, start in self.chronicle.starts.items():
            levels = start.level, named.get(number, FSYNC)
            if (
                start.start_count == self.last.start_count
                and start.boot_id == self.boot_id
                and levels != (FSYNC, FSYNC)
            ):
                self.whole = max(self.whole, self.last.address)

    def _on_base(self, base: BaseForm) -> bool:
        """It says where the row is, so nothing is left to be known of what came before."""
        if base.position < self.chronicle.position:
            return False
        for stretch in self.stretches:
            self.tell(stretch, "records of unknown kind")
            self.exposed = True
        self.stretches.clear()
        self.spoilt.clear()
        self.anchored = True
        self.chronicle.based(base)
        self.column = Column(base.position + 1)
        return True

    def _on_segment(self, opening: Opening, segment: int) -> bool:
        if opening.segment != segment or (
            self.anchored and opening.chronicle.position < self.chronicle.position
        ):
            return False
        self.column = self._before  # what is missing was recorded there
        if opening.is_of_image and self.anchored and segment == self.segment + 1:
            self.pass_on(opening.chronicle)
        else:
            self.adopt(opening.chronicle, segment)
        self._outlived()
        self.rewritten = opening.rewritten
        self.column = Column(self.chronicle.position + 1)
        return True


def offset_in(segment: int, address: int) -> int:
    """How much of a segment lies below an address."""
    if segment_of(address) == segment:
        return offset_of(address)
    return EVERYTHING if segment_of(address) > segment else 0


def _heads_end(record: Record) -> int:
    if record.kind != RecordKind.BUNDLE:
        return record.body_offset
    try:
        return min(record.end, record.body_offset + BundleForm.decode(record.head).heads_length)
    except Corrupt:
        return record.body_offset
