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

*Gaps* are damaged stretches of which it is not known what lay there.  They wait for the next
*evidence*, a record that says how far the row had come: a later ITEM, or the SEGMENT record of the
next file.  Evidence can prove what was lost: ITEM records are made again if the chain of digests
then fits.  What cannot be made again is a *hole* in the row.

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
from .chronicle import Chronicle, Opening, Waiting, encode_opening
from .damage import Damage
from .errors import Corrupt
from .forms import (
    IDENTITY,
    BaseForm,
    BundleForm,
    GapForm,
    ItemForm,
    Start,
    bodies,
    chain,
    number_in,
    split_heads,
)
from .glide import Glide
from .places import offset_of, place, segment_of
from .positions import LEFT_OUT, LOST, Column
from .records import (
    PREFIX_BYTES,
    REACH_MAX,
    Record,
    RecordKind,
    decode,
    encode,
    padded,
    size_of,
)
from .search import next_record
from .segments import segment_file

# A bundle of one command and its item are at least this long: in less, no item can have been lost.
ITEM_LOSS_MIN: Final = size_of(14, 40) + size_of(28, 0)
EVERYTHING: Final = 1 << 62  # also as an address: all there is was durable
_offset_of: Final = itemgetter(Record._fields.index("offset"))


class Hole(NamedTuple):
    """Positions whose content is lost; `last` 0: whatever came from `first` on."""

    first: int
    last: int
    damage: Damage


class Repair(NamedTuple):
    """Bytes that are proven to have been there."""

    segment: int
    offset: int
    content: bytes


class _Gap(NamedTuple):
    segment: int
    offset: int
    length: int
    seed: int
    start_count: int  # of the record before it; `durable` too
    durable: int


class _Next(NamedTuple):
    """The item behind the place where evidence is asked for."""

    place: int
    position: int
    crc: int
    digest: bytes


@attrs.define
class Recovery:
    """Fed with the segments that need reading, oldest first; then says what they come to."""

    durable: int  # address
    chronicle: Chronicle  # as it was where the first of them begins
    anchored: bool  # False: nothing is known of it, the first evidence says where the row is
    segment: int = 0  # the chronicle is that at the end of this one; the reader counts it up
    column: Column = attrs.field(init=False)  # of the segment that was read last
    rewritten: bool = attrs.field(default=False, init=False)  # that segment was
    torn: bool = attrs.field(default=False, init=False)  # that segment ends in a torn tail
    records: int = attrs.field(default=0, init=False)
    damages: list[Damage] = attrs.field(factory=list, init=False)
    holes: list[Hole] = attrs.field(factory=list, init=False)
    repairs: list[Repair] = attrs.field(factory=list, init=False)
    # Damage may have hit a start, a view or a promise: the store has to take a fresh uuid (N6).
    exposed: bool = attrs.field(default=False, init=False)
    _gaps: list[_Gap] = attrs.field(factory=list, init=False)
    _spoilt: dict[int, Damage] = attrs.field(factory=dict, init=False)  # bundles, by place
    _left_out: list[Record] = attrs.field(factory=list, init=False)  # GAP records of the segment
    _lost_end: Damage | None = attrs.field(default=None, init=False)  # nobody knows what was there
    _start_count: int = attrs.field(default=0, init=False)  # of the last good record
    _claimed: int = attrs.field(default=0, init=False)  # by the last good record

    def __attrs_post_init__(self) -> None:
        self.column = Column(self.chronicle.position + 1)

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
        durable = offset_in(segment, self.durable)
        window_bytes = max(window_bytes, REACH_MAX)
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
                # Below `durable` a bundle's heads are enough, and of a gap there is nothing to see.
                fragile = offset >= durable and record.kind == RecordKind.BUNDLE
                end = record.end if fragile else _heads_end(record)
                if base + len(window) < end <= size:
                    window = yield offset, max(window_bytes, end - offset)
                    base = offset
            if record is not None and self._take(record, segment, window, base, durable, size):
                self.records += 1
                self._start_count, self._claimed = record.start_count, record.durable
                offset = record.end
                continue
            if offset >= durable:
                self.torn = True
                return offset
            found, window, base = yield from next_record(
                seed, size, offset + 8, window_bytes, self._start_count
            )
            end = padded(size) if found is None else found.offset
            gap = _Gap(segment, offset, end - offset, seed, self._start_count, self._claimed)
            if not self._copies_again(gap, before):
                if offset == 0 and found is None:
                    self.lose_end(segment, size)
                else:
                    self._gaps.append(gap)
            offset = end
        if offset < durable < EVERYTHING:
            gap = _Gap(segment, offset, durable - offset, seed, self._start_count, self._claimed)
            self._gaps.append(gap)
        return offset

    def ended(self, segment: int, seed: int, end: int, before: int) -> bool:
        """The next segment says that this one, kept up to `end`, was `before` bytes long.

        False: it is shorter because its tail was torn off, so the next one was never told of.
        """
        if end < before:
            if place(segment, end) >= self.durable:
                return False
            self._gaps.append(
                _Gap(segment, end, before - end, seed, self._start_count, self._claimed)
            )
        return True

    def lose_end(self, segment: int, length: int) -> None:
        """A segment that was there once has nothing in it that can be read."""
        self._lost_end = Damage(segment_file(segment), 0, length, "the whole file")
        self.damages.append(self._lost_end)
        self.exposed = True

    def lose_until(self, position: int, segment: int) -> None:
        """Later segments are known to begin after `position`, and this one does not come so far."""
        self._settle(position, segment)

    def finish(self) -> None:
        """Nothing follows: what is to be said of the gaps since the last evidence."""
        waiting = [self._item_size(place_) for place_ in self.chronicle.in_order()]
        for position, place_ in enumerate(self.chronicle.in_order(), self.chronicle.position + 1):
            if (spoilt := self._spoilt.pop(place_, None)) is not None:
                self._hole(position, position, spoilt)
        lost = 0
        for gap in self._gaps:
            if self._is_mark(gap):
                continue
            if waiting and gap.length == waiting[0]:
                # Alone, what waits is ordered next: as it was.
                waiting.pop(0)
                self._tell(gap, "the place of an item, which is known", mended=True)
            else:
                lost += gap.length
                damage = self._tell(gap, "records of unknown kind")
                self.exposed = True
        self._gaps.clear()
        if lost >= ITEM_LOSS_MIN or self._lost_end is not None:
            damage = self._lost_end or damage
            self.holes.append(Hole(self.chronicle.position + 1, 0, damage))

    def _glide(
        self, window: bytes, base: int, offset: int, durable: int, segment: int, seed: int
    ) -> int:
        """Takes bundles with their items as long as they are what they nearly always are.

        Below `durable`, whole in the window, one after the other, and in order.  Returns where
        something else lies; whatever it is, `_take` looks at it.
        """
        chronicle = self.chronicle
        if self._gaps or chronicle.waiting or not self.anchored:
            return offset
        glide = Glide(
            chronicle.position, chronicle.digest, self.column.places, offset, self._start_count
        )
        glide.run(window, base, min(durable, base + len(window)), segment, seed)
        if glide.records:
            if glide.s:
                chronicle.position, chronicle.digest = glide.position, glide.digest
                chronicle.heard[glide.origin] = glide.s
            self._claimed = glide.durable
            self.records += glide.records
        return glide.offset

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
            self._spoilt[where] = Damage(segment_file(segment), record.body_offset, length, what)
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
            self._anchor(position)
        elif position != chronicle.position + 1 or self._gaps:
            if not 0 <= position - 1 - chronicle.position <= size // PREFIX_BYTES:
                return False
            self._settle(position - 1, segment, after=_Next(where, position, crc, digest))
        elif chain(chronicle.digest, position, crc) != digest:
            self._lose(position, position, segment, where, "the digest of the row does not fit")
        content = chronicle.waiting.get(where)
        spoilt = self._spoilt.pop(where, None)
        if (hidden := self._gap_over(where, segment)) is not None:
            self.column.add(place(segment, hidden.offset) | LEFT_OUT, segment)
            chronicle.ordered(position, where, crc, digest)
            return True
        if spoilt is not None:
            self._hole(position, position, spoilt)
        elif (content is None and segment_of(where) == segment) or (content and content.crc != crc):
            self._lose(position, position, segment, where, "the bundle or view mark of an item")
            self.exposed = True
        chronicle.ordered(position, where, crc, digest)
        self.column.add(where, segment)
        return True

    def _on_gap(self, gap: GapForm, record: Record, segment: int, size: int) -> bool:
        """Everything it stands for lies below the floor, so nobody asks for more than this."""
        chronicle = self.chronicle
        if not self.anchored:
            self._anchor(gap.first)
        elif gap.first != chronicle.position + 1 or self._gaps:
            if not 0 <= gap.first - 1 - chronicle.position <= size // PREFIX_BYTES:
                return False
            self._settle(gap.first - 1, segment, digest=gap.before)
        elif chronicle.digest != gap.before:
            position = chronicle.position
            self._lose(position, position, segment, place(segment, 0), "the digest of the row")
        for where in gap.ordered:
            chronicle.waiting.pop(where, None)
            if (spoilt := self._spoilt.pop(where, None)) is not None:
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

    def _anchor(self, position: int) -> None:
        """The beginning of the row is lost with the copies: it begins here."""
        chronicle = self.chronicle
        chronicle.position, self.anchored, self.exposed = position - 1, True, True
        chronicle.floor = self.column.first = position
        for gap in self._gaps:
            self._tell(gap, "records of unknown kind")
        self._gaps.clear()

    def _on_other(self, kind: int, record: Record, segment: int) -> bool:
        chronicle, head = self.chronicle, record.head
        if kind == RecordKind.SEGMENT:
            return self._on_segment(Opening.decode(record), segment)
        if kind == RecordKind.START:
            chronicle.start(Start.decode(head))
        elif kind == RecordKind.CLEAN:
            chronicle.clean(number_in(head, "a clean end"))
        elif kind == RecordKind.VIEW:
            chronicle.decided(head, place(segment, record.offset), crc32c(head))
        elif kind == RecordKind.REGISTER:
            chronicle.register = head
        elif kind == RecordKind.FLOOR:
            chronicle.floor = max(chronicle.floor, number_in(head, "a floor"))
        elif kind == RecordKind.BASE:
            chronicle.based(BaseForm.decode(head))
            self.column = Column(chronicle.position + 1)
        return True

    def _on_segment(self, opening: Opening, segment: int) -> bool:
        if opening.segment != segment or (
            self.anchored and opening.chronicle.position < self.chronicle.position
        ):
            return False
        self.adopt(opening.chronicle, segment)
        self.rewritten = opening.rewritten
        self.column = Column(self.chronicle.position + 1)
        return True

    def adopt(self, copies: Chronicle, segment: int, first: int | None = None) -> None:
        """Takes the word of whole copies for everything before them.

        They stand at the beginning of `segment`, or speak of a part of it whose items begin with
        `first`.
        """
        if self.anchored and segment <= self.segment + 1:
            if first is None:
                self._settle(copies.position, self.segment, digest=copies.digest)
            else:
                self._settle(first - 1, self.segment)
        for gap in self._gaps:
            # A file between was dropped, or is lost: nothing can be said about what is missing.
            self._tell(gap, "records of unknown kind")
        self._gaps.clear()
        self._spoilt.clear()
        self._lost_end = None
        # Whatever damage hid, the copies have it.
        self.anchored, self.exposed, self.chronicle = True, False, copies

    # -- damage ---------------------------------------------------------------------------

    def _copies_again(self, gap: _Gap, before: int) -> bool:
        """The copies at the beginning of a file say what is known from the file before."""
        if gap.offset or not self.anchored or gap.segment != self.segment + 1:
            return False
        head = encode_opening(self.chronicle, gap.segment, before)
        if size_of(len(head), 0) != gap.length:
            return False
        self._repair(gap, RecordKind.SEGMENT, head, "the beginning of the segment")
        return True

    def _settle(
        self, upto: int, segment: int, *, digest: bytes | None = None, after: _Next | None = None
    ) -> None:
        """There is evidence that the row had come to `upto` here.

        With the evidence comes the digest there, or the item that follows; or neither.
        """
        chronicle = self.chronicle
        first, missing = chronicle.position + 1, upto - chronicle.position
        # Alone, bundles come into the row in the order of the file: what waits before the evidence
        # is what is missing.
        lost = [p for p in chronicle.in_order() if after is None or p != after.place]
        lost = lost if missing else []
        found = chronicle.digest
        for position, place_ in enumerate(lost, first):
            found = chain(found, position, chronicle.waiting[place_].crc)
        if after is not None:
            found, digest = chain(found, after.position, after.crc), after.digest
        proven: list[ItemForm] = []
        if len(lost) == missing and found == digest:
            for place_ in lost:
                position, crc, chained = chronicle.order_next(place_)
                proven.append(ItemForm(position, place_, crc, chained))
                self.column.add(place_, segment)
                if (spoilt := self._spoilt.pop(place_, None)) is not None:
                    self._hole(position, position, spoilt)
        elif not missing and digest is not None:
            self._lose(upto, upto, segment, place(segment, 0), "the digest of the row")
        for gap in self._gaps:
            if self._is_mark(gap):
                continue
            head = proven[0].encode() if proven else b""
            if proven and gap.length == size_of(len(head), 0):
                proven.pop(0)
                self._repair(gap, RecordKind.ITEM, head, "the place of an item, which is known")
            elif after is None or place(gap.segment, gap.offset) != after.place:
                self._tell(gap, "records of unknown kind")
                self.exposed = True
        self._gaps.clear()
        if chronicle.position < upto:
            for _ in range(chronicle.position, upto):
                self.column.add(LOST, segment)
            self._lose(first, upto, segment, place(segment, 0), "items, with their places")
            self.exposed = True
            for place_ in lost:
                del chronicle.waiting[place_]
            chronicle.position, chronicle.digest = upto, digest or b""

    def _is_mark(self, gap: _Gap) -> bool:
        """Every other kind of record is longer."""
        if gap.length != PREFIX_BYTES:
            return False
        self._repair(gap, RecordKind.MARK, b"", "how much had been durable")
        return True

    def _item_size(self, place_: int) -> int:
        waiting = self.chronicle.waiting[place_]
        item = ItemForm(self.chronicle.position + 1, place_, waiting.crc, self.chronicle.digest)
        return size_of(len(item.encode()), 0)

    def _repair(self, gap: _Gap, kind: int, head: bytes, what: str) -> None:
        content = encode(
            kind,
            head,
            seed=gap.seed,
            offset=gap.offset,
            start_count=gap.start_count,
            durable=gap.durable,
        )
        assert len(content) == gap.length
        self.repairs.append(Repair(gap.segment, gap.offset, content))
        self._tell(gap, what, mended=True)

    def _tell(self, gap: _Gap, what: str, *, mended: bool = False) -> Damage:
        file = segment_file(gap.segment)
        damage = Damage(file, gap.offset, gap.length, what, mended=mended)
        self.damages.append(damage)
        return damage

    def _lose(self, first: int, last: int, segment: int, where: int, what: str) -> None:
        file = segment_file(segment_of(where) or segment)
        self._hole(first, last, Damage(file, offset_of(where), PREFIX_BYTES, what))

    def _hole(self, first: int, last: int, damage: Damage) -> None:
        damage = attrs.evolve(damage, first=first, last=last)
        self.damages.append(damage)
        self.holes.append(Hole(first, last, damage))


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
