"""Mending: a damaged segment gets back what lay there, from items that others have.

    look    what is damaged, and which items are needed for it        survey.py
    give    an item that came: it counts only if the chain of digests says so
    mend    the segment is written anew, aside, with what was lost    patches.py
            ─► read through ─► synced ─► renamed over the old one: a crash leaves either

No record moves, so no index changes.  What cannot be put back so is told, and an image has to take the
place of the row.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from .chronicle import Chronicle, encode_opening
from .env import Disk, File
from .errors import Corrupt, NotFound
from .forms import ItemForm, chain
from .images import came_with
from .limits import MIB
from .patches import Patch, UnfitError, fill
from .places import offset_of, place, segment_of
from .positions import LEFT_OUT, LOST
from .records import FLAG_REWRITTEN, RecordKind, encode
from .row import Bundle, Item, View
from .scrub import Scrubbing
from .segmentreads import Unread, feed, read_index_head, read_or_zeros, touches
from .segments import ASIDE, Segment, segment_file
from .shelf import Shelf
from .storereads import StoreReads
from .survey import Lost, Missing, Survey
from .writing import Writer

BLOCK_BYTES: Final = 4096  # of zeros, which stay a hole
COPY_BYTES: Final = 1 * MIB
STEPS_AT_ONCE: Final = 4096
Content = Bundle | View


@attrs.define
class Wound:
    """A damaged segment, and what is needed to mend it."""

    segment: Segment
    survey: Survey
    wanted: dict[
        int, int | None
    ]  # by position, the offset of its bundle; None: not here, or unknown
    own: dict[int, Content]  # by offset: what has no place in the row yet
    items: dict[int, Item] = attrs.field(factory=dict, init=False)
    unfit: str = ""  # why it cannot be mended

    @property
    def lacking(self) -> list[int]:
        """Positions whose items are to be asked for."""
        return [position for position in sorted(self.wanted) if position not in self.items]

    @property
    def highest(self) -> int:
        """The last position that is damaged; 0: none."""
        return max(self.wanted, default=0)

    def give(self, item: Item) -> None:
        if item.position in self.wanted:
            self.items[item.position] = item

    def __str__(self) -> str:
        file = segment_file(self.segment.number)
        lacking = self.lacking
        if self.unfit:
            return f"{file} is damaged and cannot be put back: {self.unfit}"
        if not lacking:
            return f"{file} is damaged, and written anew"
        some = f"item {lacking[0]}" if len(lacking) == 1 else f"{len(lacking)} items"
        if len(lacking) > 1:
            some += f" from {lacking[0]} to {lacking[-1]}"
        return f"{file} is damaged: {some} of it must come from another machine"


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
        self.lock = trio.Lock()  # held by whoever writes a segment anew

    def is_open(self, number: int) -> bool:
        """It is written to, or may be read by who writes: to be sealed and synced first."""
        return number in self._shelf and number >= segment_of(self._writer.durable)

    async def look(self, number: int, held: Mapping[int, Content]) -> Wound | None:
        """None: it is whole, or gone.  `held`, by place: what waits or is staged, from memory."""
        if number not in self._shelf:
            return None
        segment = self._shelf.get(number)
        try:
            places = await self._shelf.places_again(segment)
            survey = Survey(segment, segment.size, self._shelf.window_bytes, LOST in places)
            handle = await self._shelf.files.acquire(number)
        except NotFound as error:
            if number not in self._shelf:
                return None
            lost = Survey(segment, 0, 0)
            return Wound(segment, lost, {segment.first: None}, {}, unfit=str(error))
        try:
            await feed(survey.run(), handle.file, survey.unread)
        finally:
            self._shelf.files.release(handle)
        if not segment.size:
            return Wound(segment, survey, {}, {}, unfit="nothing is left of it")
        imaged = came_with(self._chronicle.base, number)
        survey.finish(segment.last if imaged else self._last(segment))
        if survey.is_clean:
            if LOST in places:  # the disk gives now what it did not give before
                await self._read_again(segment)
            return None
        wound = Wound(segment, survey, {}, {}, unfit=survey.unfit)
        if imaged:
            wound.unfit = "it came with an image, and no item says what lay in it"
            return wound
        for where, content in held.items():
            if segment_of(where) == number and survey.holds(offset_of(where)):
                wound.own[offset_of(where)] = content
        for position, item in survey.hurt.items():
            wound.wanted[position] = offset_of(item.place)
        for missing in survey.missing:
            for position in range(missing.first, missing.last + 1):
                await self._want_missing(wound, position, _at(places, position - segment.first))
        await self._want_of_later(wound)
        await self._doubt(wound)
        return wound

    def _last(self, segment: Segment) -> int:
        """Position of the last item that it should record: a start may not know of those behind."""
        if segment.number + 1 in self._shelf:
            return max(segment.last, self._shelf.get(segment.number + 1).first - 1)
        return segment.last

    async def _want_missing(self, wound: Wound, position: int, where: int) -> None:
        """Nothing here says any more that this item is there."""
        if where & LEFT_OUT:
            wound.unfit = f"what stood for position {position}, which was left out, is lost"
        elif where == LOST:
            wound.wanted[position] = None
        elif segment_of(where) != wound.segment.number:
            if not await self._is_readable(where):
                wound.wanted[position] = None
        elif wound.survey.holds(offset_of(where)):
            wound.wanted[position] = offset_of(where)

    async def _want_of_later(self, wound: Wound) -> None:
        """Bundles that lie here, and whose places in the row are recorded in later segments."""
        number, steps = wound.segment.number, 0
        for later in list(self._shelf.segments):
            if later.number <= number or later.first > wound.segment.reach:
                continue
            for index, where in enumerate(await self._shelf.places(later)):
                if segment_of(where) == number and wound.survey.holds(offset_of(where)):
                    wound.wanted[later.first + index] = offset_of(where)
                steps += 1
                if not steps % STEPS_AT_ONCE:
                    await trio.lowlevel.checkpoint()

    async def _doubt(self, wound: Wound) -> None:
        """Bundles that waited when the segment ended may be items: what says so may have been dropped."""
        segment, known = wound.segment, {*wound.own, *wound.wanted.values()}
        try:
            waited = (await self._ended(segment)).waiting
        except UnfitError:
            return  # nothing says what waited
        for where, waiting in waited.items():
            if (
                segment_of(where) == segment.number
                and wound.survey.holds(offset := offset_of(where))
                and offset not in known
                and not waiting.raw  # of a view newer segments have copies
                and await self._may_be_ordered(where)
            ):
                wound.unfit = f"nothing says whether what lay at {offset:,} is in the row"

    async def _may_be_ordered(self, where: int) -> bool:
        """It waited, and no segment that is there says that it is an item."""
        number, newest = segment_of(where) + 1, self._shelf.segments[-1].number
        while number < newest and number in self._shelf:
            try:
                waiting = (await self._ended(self._shelf.get(number))).waiting
            except UnfitError:
                return True
            if where not in waiting:
                return False  # a view came that left it out
            number += 1
        return number < newest

    async def _is_readable(self, where: int) -> bool:
        try:
            await self._reads.read_heads(where)
        except (Corrupt, NotFound):
            return False
        return True

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
            await self._read_again(segment)
        return True

    async def _read_again(self, segment: Segment) -> None:
        """Its index: it knows now what was lost."""
        segment.column, chronicle = await self._shelf.read_again(segment)
        segment.last = segment.column.last
        segment.reach = max(segment.reach, segment.last)
        self._shelf.unindexed.append((segment, chronicle))

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
                where = _at(places, position - segment.first)
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
            known, size = await self._ended(before), before.size
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

    async def _ended(self, segment: Segment) -> Chronicle:
        """As things stood at its end."""
        for each, chronicle in self._shelf.unindexed:
            if each is segment:
                return chronicle
        head = await read_index_head(self._disk, segment.number)
        if head is None or not head.sealed:
            raise UnfitError("no index says what its beginning was")
        return head.chronicle

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


def _at(places: Sequence[int], index: int) -> int:
    return places[index] if 0 <= index < len(places) else LOST


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
