"""Evidence: how far the row had come, and so what damaged stretches were.

Stretches wait for the next record that says how far the row had come there: an ITEM, or the SEGMENT
record of the next file.  With it comes a digest, and the chain of digests proves what was lost:

    [BUNDLE 5][#######][BUNDLE 6][ITEM 6]      the stretch was ITEM 5, if the digest of 6 follows
    [BUNDLE 5][#################][ITEM 7]      positions 5 and 6 were here; 6 is lost, a hole
    [BUNDLE 5][#################] (the end)    nobody knows; the row cannot go on

Where nothing follows, a stretch that could have held an item ends the row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs

from .chronicle import Chronicle, encode_opening
from .damage import Damage
from .findings import Findings, Hole, Stretch
from .forms import ItemForm, chain
from .places import place
from .positions import LOST, Column
from .records import RecordKind, begins_again, is_rewritten, size_of
from .segments import segment_file

# A bundle of one command and its item are at least this long: in less, no item can have been lost.
ITEM_LOSS_MIN: Final = size_of(14, 40) + size_of(28, 0)


class Next(NamedTuple):
    """The item behind the place where evidence is asked for."""

    place: int
    position: int
    crc: int
    digest: bytes


@attrs.define
class Evidence(Findings):
    durable: int  # address up to which everything was
    chronicle: Chronicle  # as it was where the first segment that is read begins
    anchored: bool  # False: nothing is known of it, the first evidence says where the row is
    segment: int = 0  # the chronicle is that at the end of this one; the reader counts it up
    column: Column = attrs.field(init=False)  # of the segment that is read
    # Damage may have hit a start, a view or a promise: the store has to take a fresh uuid (N6).
    exposed: bool = attrs.field(default=False, init=False)
    rewritten: bool = attrs.field(default=False, init=False)  # the segment that was read last was
    stretches: list[Stretch] = attrs.field(factory=list, init=False)  # since the last evidence
    spoilt: dict[int, Damage] = attrs.field(factory=dict, init=False)  # bundles, by place
    _lost_end: Damage | None = attrs.field(default=None, init=False)  # nobody knows what was there
    _indexed: int = attrs.field(init=False)  # the segment with which it began

    def __attrs_post_init__(self) -> None:
        self._indexed = self.segment
        self.column = Column(self.chronicle.position + 1)

    def adopt(self, copies: Chronicle, segment: int, first: int | None = None) -> None:
        """Takes the word of whole copies for everything before them.

        They stand at the beginning of `segment`, or speak of a part of it whose items begin with
        `first`.
        """
        if self.anchored and segment <= self.segment + 1:
            if first is None:
                self.settle(copies.position, self.segment, digest=copies.digest)
            elif copies.base == self.chronicle.base:  # else an image came there, and nothing lacks
                self.settle(first - 1, self.segment)
        for stretch in self.stretches:
            # A file between was dropped, or is lost: nothing can be said about what is missing.
            self.tell(stretch, "records of unknown kind")
        self.stretches.clear()
        self.spoilt.clear()
        self._lost_end = None
        # Whatever damage hid, the copies have it.
        self.anchored, self.exposed, self.chronicle = True, False, copies

    def pass_on(self, copies: Chronicle) -> None:
        """As `adopt`, by the beginning of an image's segment: it has no more than where the row was."""
        self.settle(copies.position, self.segment, digest=copies.digest)
        self.spoilt.clear()
        self._lost_end = None

    def copies_again(self, stretch: Stretch, before: int, left: bytes) -> bool:
        """The copies at the beginning of a file say what is known from the file before.

        That one may have lost its end where no index says what it ended with: then what is `left` of them
        has to agree.
        """
        if stretch.offset or not self.anchored or stretch.segment != self.segment + 1:
            return False
        head = encode_opening(self.chronicle, stretch.segment, before)
        if size_of(len(head), 0) != stretch.length:
            return False
        what = "the beginning of the segment"
        again = begins_again(left, head, stretch.seed, stretch.start_count, stretch.durable)
        if again is not None:
            self.rewritten = is_rewritten(again)
            self.put_back(stretch, again, what)
        elif self.segment == self._indexed:
            self.repair(stretch, RecordKind.SEGMENT, head, what)
        else:
            return False
        return True

    def settle(
        self, upto: int, segment: int, *, digest: bytes | None = None, after: Next | None = None
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
                if (spoilt := self.spoilt.pop(place_, None)) is not None:
                    self.hole(position, position, spoilt)
        elif not missing and digest is not None:
            self.lose(upto, upto, segment, place(segment, 0), "the digest of the row")
        for stretch in self.stretches:
            if self.mend_mark(stretch):
                continue
            head = proven[0].encode() if proven else b""
            if proven and stretch.length == size_of(len(head), 0):
                proven.pop(0)
                self.repair(stretch, RecordKind.ITEM, head, "the place of an item, which is known")
            elif after is None or place(stretch.segment, stretch.offset) != after.place:
                self.tell(stretch, "records of unknown kind")
                self.exposed = True
        self.stretches.clear()
        if chronicle.position < upto:
            for _ in range(chronicle.position, upto):
                self.column.add(LOST, segment)
            self.lose(first, upto, segment, place(segment, 0), "items, with their places")
            self.exposed = True
            for place_ in lost:
                del chronicle.waiting[place_]
            chronicle.position, chronicle.digest = upto, digest or b""

    def anchor(self, position: int) -> None:
        """The beginning of the row is lost with the copies: it begins here."""
        chronicle = self.chronicle
        chronicle.position, self.anchored, self.exposed = position - 1, True, True
        chronicle.floor = self.column.first = position
        for stretch in self.stretches:
            self.tell(stretch, "records of unknown kind")
        self.stretches.clear()

    def lose_end(self, segment: int, length: int) -> None:
        """A segment that was there once has nothing in it that can be read."""
        self._lost_end = Damage(segment_file(segment), 0, length, "the whole file")
        self.damages.append(self._lost_end)
        self.exposed = True

    def lose_until(self, position: int, segment: int) -> None:
        """Later segments are known to begin after `position`, and this one does not come so far."""
        self.settle(position, segment)

    def finish(self) -> None:
        """Nothing follows: what is to be said of the gaps since the last evidence."""
        waiting = [self._item_size(place_) for place_ in self.chronicle.in_order()]
        for position, place_ in enumerate(self.chronicle.in_order(), self.chronicle.position + 1):
            if (spoilt := self.spoilt.pop(place_, None)) is not None:
                self.hole(position, position, spoilt)
        lost = 0
        for stretch in self.stretches:
            if self.mend_mark(stretch):
                continue
            if waiting and stretch.length == waiting[0]:
                # What waits is ordered next: alone as it was, and else as the others have it.
                waiting.pop(0)
                self.fill(stretch, "the place of an item, which is known")
            else:
                lost += stretch.length
                damage = self.tell(stretch, "records of unknown kind")
                self.exposed = True
        self.stretches.clear()
        if lost >= ITEM_LOSS_MIN or self._lost_end is not None:
            damage = self._lost_end or damage
            self.holes.append(Hole(self.chronicle.position + 1, 0, damage))

    def _item_size(self, place_: int) -> int:
        waiting = self.chronicle.waiting[place_]
        item = ItemForm(self.chronicle.position + 1, place_, waiting.crc, self.chronicle.digest)
        return size_of(len(item.encode()), 0)
