"""Patches: the bytes that lay in a damaged part of a segment, made again from what is known.

    stretch   [##########################################]
    known      bundle 6 began here    bundle 7 began here          by the index
    patches   [ITEM 5][BUNDLE 6      ][BUNDLE 7    ][ITEM 6][MARK]

Where a bundle lay is known, how long it is follows from what is in it; the ITEM records that are missing
go where they fit, in order, none before its bundle.  What is left was a mark, a start, or something
else of which newer segments hold copies: a MARK of that length takes its place.  Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from .appending import encoded
from .checksum import crc32c
from .forms import ItemForm, encode_view
from .places import place
from .records import PREFIX_BYTES, RecordKind, encode, size_of
from .row import Bundle, View
from .survey import Lost

MARK_BYTES_MAX: Final = 32 * 1024


class Patch(NamedTuple):
    offset: int
    content: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.content)


class UnfitError(Exception):
    """Raised when what is known does not come to what lay there."""


def crc_of(content: Bundle | View) -> int:
    """That of the item."""
    return crc32c(encode_view(content)) if isinstance(content, View) else encoded(content).crc


def content_patch(
    content: Bundle | View, *, seed: int, offset: int, start_count: int, durable: int
) -> Patch:
    """The whole record of a bundle or of a view."""
    if isinstance(content, View):
        head = encode_view(content)
        kind, parts, length = RecordKind.VIEW, list[bytes](), 0
    else:
        found = encoded(content)
        head, length = found.head, found.length
        kind, parts = RecordKind.BUNDLE, [bytes(part) for part in found.body]
    record = encode(
        kind,
        head,
        seed=seed,
        offset=offset,
        start_count=start_count,
        durable=durable,
        body_length=length,
    )
    return Patch(offset, b"".join((record, *parts)))


def fill(
    stretch: Lost,
    segment: int,
    seed: int,
    known: Mapping[int, Bundle | View],  # by offset
    items: deque[ItemForm],  # those that go there are taken
) -> list[Patch]:
    """
    Raises:
        UnfitError: they do not fit.
    """
    filling = _Filling(stretch, segment, seed, items)
    for offset in sorted(known):
        filling.fill_until(offset)
        filling.put(
            content_patch(
                known[offset],
                seed=seed,
                offset=offset,
                start_count=stretch.start_count,
                durable=stretch.durable,
            )
        )
    filling.fill_until(stretch.end)
    return filling.patches


class _Filling:
    def __init__(self, stretch: Lost, segment: int, seed: int, items: deque[ItemForm]) -> None:
        self.patches: list[Patch] = []
        self._stretch, self._segment, self._seed, self._items = stretch, segment, seed, items
        self._at = stretch.offset

    def put(self, patch: Patch) -> None:
        if patch.offset != self._at or patch.end > self._stretch.end:
            raise UnfitError(f"what lay at {patch.offset:,} has another length")
        self.patches.append(patch)
        self._at = patch.end

    def fill_until(self, end: int) -> None:
        items = self._items
        while items and items[0].place < place(self._segment, self._at):
            head = items[0].encode()
            left = end - self._at - size_of(len(head), 0)
            if left < 0 or 0 < left < PREFIX_BYTES:
                break
            self._record(RecordKind.ITEM, head)
            items.popleft()
        while self._at < end:
            left = end - self._at
            if left < PREFIX_BYTES:
                raise UnfitError(f"{left} bytes at {self._at:,} are of nothing")
            length = min(left - PREFIX_BYTES, MARK_BYTES_MAX)
            if 0 < left - PREFIX_BYTES - length < PREFIX_BYTES:
                length -= PREFIX_BYTES  # so that what is left is one, too
            self._record(RecordKind.MARK, bytes(length))
        if self._at > end:
            raise UnfitError(f"what lay before {end:,} had another length")

    def _record(self, kind: RecordKind, head: bytes) -> None:
        stretch = self._stretch
        record = encode(
            kind,
            head,
            seed=self._seed,
            offset=self._at,
            start_count=stretch.start_count,
            durable=stretch.durable,
        )
        self.put(Patch(self._at, record))
