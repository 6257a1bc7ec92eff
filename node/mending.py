"""Mending: a damaged segment gets back what lay there, from items that others have.

    look    what is damaged, and which items are needed for it        wounds.py
    give    an item that came: it counts only if the chain of digests says so
    mend    the segment is written anew, aside, with what was lost    patches.py
            ─► read through ─► synced ─► renamed over the old one: a crash leaves either

No record moves, so no index changes.  What cannot be put back so is told, and an image has to take the
place of the row.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Mapping
from typing import Final

import trio

from .chronicle import Chronicle, encode_opening
from .env import Disk, File
from .errors import Corrupt, NotFound
from .forms import ItemForm, chain
from .limits import MIB
from .patches import Patch, UnfitError, fill
from .places import place, segment_of
from .positions import LOST
from .records import FLAG_REWRITTEN, RecordKind, encode
from .scrub import Scrubbing
from .segmentreads import Unread, feed, read_or_zeros, touches
from .segments import ASIDE, Segment, segment_file
from .shelf import Shelf
from .storereads import StoreReads
from .survey import Lost, Missing, Survey
from .wounds import Content, Looking, Wound, place_at
from .writing import Writer

BLOCK_BYTES: Final = 4096  # of zeros, which stay a hole
COPY_BYTES: Final = 1 * MIB


class _UnreadError(Exception):
    """Raised when an item cannot be read any more of which only the place was lost."""

    def __init__(self, position: int) -> None:
        self.position = position


class Mending:
    def __init__(
        self, disk: Disk, chronicle: Chronicle, shelf: Shelf, reads: StoreReads, writer: Writer
    ) -> None:
        self._disk, self._chronicle, self._shelf = disk, chronicle, shelf
        self._reads, self._writer = reads, writer
        self._looking = Looking(chronicle, shelf, reads)
        self.lock = trio.Lock()  # held by whoever writes a segment anew

    def is_open(self, number: int) -> bool:
        """It is written to, or may be read by who writes: to be sealed and synced first."""
        return number in self._shelf and number >= segment_of(self._writer.durable)

    async def look(self, number: int, held: Mapping[int, Content]) -> Wound | None:
        """See `Looking.look`."""
        return await self._looking.look(number, held)

    # -- items that came ----------------------------------------------------------------------

    async def refuse(self, wound: Wound) -> list[int]:
        """Takes those back that the chain of digests does not know; their positions.

        All that is wanted is there.  What could be read in other segments, and cannot be any more, is
        wanted from now on, too.
        """
        refused = [p for p in sorted(wound.items) if not await self._fits(wound, p)]
        try:
            for missing in wound.survey.missing:
                if not await self._is_chained(wound, missing):
                    mine = range(missing.first, missing.last + 1)
                    refused += [p for p in mine if p in wound.items and p not in refused]
        except _UnreadError as error:
            wound.wanted[error.position] = None
        for position in refused:
            wound.items.pop(position, None)
        return refused

    async def _is_chained(self, wound: Wound, missing: Missing) -> bool:
        """
        Raises:
            _UnreadError: one of these has to come from others, too.
        """
        digest = missing.before or await self._digest(missing.first - 1)
        last = missing.following
        if last is None:
            expected = await self._digest(missing.last)
        for position in range(missing.first, missing.last + 1):
            try:
                crc = await self._crc(wound, position)
            except (Corrupt, NotFound) as error:
                raise _UnreadError(position) from error
            digest = digest and chain(digest, position, crc)
        if last is not None:
            digest, expected = digest and chain(digest, last.position, last.crc), last.digest
        if not digest or not expected:
            wound.unfit = f"no digest speaks of positions {missing.first} to {missing.last}"
            return True
        return digest == expected

    async def _fits(self, wound: Wound, position: int) -> bool:
        item, hurt = wound.items[position], wound.survey.hurt.get(position)
        if hurt is not None:
            return item.crc == hurt.crc
        if any(m.first <= position <= m.last for m in wound.survey.missing):
            return True  # the chain over all of them tells
        before, after = await self._digest(position - 1), await self._digest(position)
        if not before or not after:
            wound.unfit = f"no digest speaks of position {position}"
            return True
        return chain(before, position, item.crc) == after

    async def _digest(self, position: int) -> bytes:
        """Empty: it is not known here."""
        chronicle = self._chronicle
        if position == chronicle.position:
            return chronicle.digest
        if chronicle.base is not None and position == chronicle.base.position:
            return chronicle.base.digest
        try:
            return await self._reads.recorded_digest(position)
        except NotFound:  # dropped meanwhile
            return b""

    async def _crc(self, wound: Wound, position: int) -> int:
        if position in wound.items:
            return wound.items[position].crc
        return (await self._reads.read_items(position, position, 1, with_bodies=False))[0].crc

    # -- the segment anew ---------------------------------------------------------------------

    async def mend(self, wound: Wound) -> bool:
        """Writes it anew; nothing lacks.  False: it cannot be mended, and nothing was changed; if it is
        not unfit, more of it is damaged than was seen, and it is to be looked at again.

        Raises:
            Full: there is no space for the copy.
            DiskFailed: the process has to end.
        """
        if wound.unfit:
            return False
        segment = wound.segment
        try:
            patches = await self._patches(wound)
            handle = await self._shelf.files.acquire(segment.number)
        except (UnfitError, Corrupt, NotFound) as error:
            wound.unfit = str(error)
            return False
        try:
            unread: Unread = []
            if not await self._replace(segment, handle.file, patches, unread):
                if await self._is_as_seen(wound, handle.file, unread):
                    wound.unfit = "what others have does not come to what was there"
                return False
        finally:
            self._shelf.files.release(handle)
        segment.unread = False
        self._shelf.files.forget(segment.number)
        if any(where is None for where in wound.wanted.values()):
            await self._shelf.index_again(segment)
        return True

    async def _patches(self, wound: Wound) -> list[Patch]:
        """
        Raises:
            UnfitError: what came is not what lay there.
        """
        segment, survey = wound.segment, wound.survey
        known = dict(wound.own)
        for position, offset in wound.wanted.items():
            if offset is not None:
                known[offset] = wound.items[position].content
        items = await self._lost_items(wound)
        patches: list[Patch] = []
        start_count = durable = 0
        for stretch in survey.stretches:
            inside = {o: c for o, c in known.items() if stretch.offset <= o < stretch.end}
            if not stretch.offset:
                opening, start_count, durable = await self._opening(wound)
                patches.append(opening)
                stretch = stretch._replace(offset=opening.end)
            if not stretch.start_count:
                # As of the beginning, or recovery would take all behind for what strayed there.
                stretch = stretch._replace(start_count=start_count, durable=durable)
            group = items.get(stretch.after, deque())
            patches += fill(stretch, segment.number, segment.seed, inside, group)
        if any(items.values()):
            raise UnfitError("there is no room for what says where items lie")
        for offset, record in survey.spoilt.items():
            whole = Lost(offset, record.end, record.start_count, record.durable, 0)
            content = {offset: known[offset]} if offset in known else {}
            patches += fill(whole, segment.number, segment.seed, content, deque())
        return patches

    async def _lost_items(self, wound: Wound) -> dict[int, deque[ItemForm]]:
        """The ITEM records that are gone, by the position before them."""
        segment, found = wound.segment, dict[int, deque[ItemForm]]()
        places = await self._shelf.places(segment)
        for first, last, before, _ in wound.survey.missing:
            digest = before or await self._digest(first - 1)
            lost = found.setdefault(first - 1, deque())
            for position in range(first, last + 1):
                crc = await self._crc(wound, position)
                digest = chain(digest, position, crc)
                where = place_at(places, position - segment.first)
                if where == LOST:
                    offset = wound.survey.loose.get(crc)
                    if offset is None:
                        raise UnfitError(f"nothing says where the bundle of item {position} lay")
                    where = place(segment.number, offset)
                lost.append(ItemForm(position, where, crc, digest))
        return found

    async def _opening(self, wound: Wound) -> tuple[Patch, int, int]:
        """The copies at the beginning: what the index of the segment before ends with; its start count and durable."""
        segment = wound.segment
        number, size = segment.number - 1, 0
        known = Chronicle(segment.uuid)
        if number:
            if number not in self._shelf:
                raise UnfitError("the segment before its beginning is gone")
            before = self._shelf.get(number)
            ended, size = await self._shelf.ended(before), before.size
            if ended is None:
                raise UnfitError("no index says what its beginning was")
            known = ended
        if segment.uuid != known.uuid:  # the store took another name when it began
            known = known.copy()
            known.rename(segment.uuid)
        durable = place(number, 0) if number else 0
        record = encode(
            RecordKind.SEGMENT,
            encode_opening(known, segment.number, size),
            seed=segment.seed,
            offset=0,
            start_count=known.start_count,
            durable=durable,
            flags=FLAG_REWRITTEN if segment.rewritten else 0,
        )
        return Patch(0, record), known.start_count, durable

    async def _is_as_seen(self, wound: Wound, file: File, unread: Unread) -> bool:
        """Nothing else of it is damaged, and the disk gave what it gave when it was looked at."""
        seen, segment = wound.survey, wound.segment
        again = Survey(segment, segment.size, self._shelf.window_bytes, seen.seeks)
        await feed(again.run(), file, again.unread)
        return again.damages == seen.damages and all(
            touches(seen.unread, start, end - start) for start, end in unread
        )

    async def _replace(
        self, segment: Segment, old: File, patches: list[Patch], unread: Unread
    ) -> bool:
        name = segment_file(segment.number)
        try:
            new = await self._disk.open(name + ASIDE, create=True)
            try:
                new.truncate(0)
                await _copy(old, new, segment.size, unread)
                for offset, content in patches:
                    new.write(offset, [content])
                again = Scrubbing(segment, segment.size, self._shelf.window_bytes)
                await feed(again.run(), new)
                whole = not again.damages
                if whole:
                    await new.sync()
            finally:
                new.close()
            if whole:
                await self._disk.rename(name + ASIDE, name)
                await self._disk.sync_names()
            else:
                await self._disk.unlink(name + ASIDE)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise self._writer.fail("mending a segment", error) from error
            if await self._disk.exists(name + ASIDE):
                await self._disk.unlink(name + ASIDE)
            raise self._writer.full() from error
        return whole


async def _copy(old: File, new: File, size: int, unread: Unread) -> None:
    """What cannot be read is zeros, and zeros are holes; what was damaged is written over."""
    for offset in range(0, size, COPY_BYTES):
        data = await read_or_zeros(old, offset, min(COPY_BYTES, size - offset), unread)
        begin = None  # of a run of blocks that are not zeros
        for start in range(0, len(data) + BLOCK_BYTES, BLOCK_BYTES):
            if data.count(0, start, start + BLOCK_BYTES) < len(data[start : start + BLOCK_BYTES]):
                begin = start if begin is None else begin
            elif begin is not None:
                new.write(offset + begin, [data[begin:start]])
                begin = None
        await trio.lowlevel.checkpoint()
    if new.size < size:
        new.truncate(size)
