"""Wounds: what is damaged of a segment, and which items are needed to mend it.

survey    what is not whole of it                               survey.py
want      the items that lay there: by its own records and its index, or by later segments
doubt     what may be an item, though nothing says so any more: that cannot be put back
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from .chronicle import Chronicle
from .errors import Corrupt, NotFound
from .images import came_with
from .places import offset_of, segment_of
from .positions import LEFT_OUT, LOST
from .row import Bundle, Item, View
from .segmentreads import feed
from .segments import Segment, segment_file
from .shelf import Shelf
from .storereads import StoreReads
from .survey import Survey

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


class Looking:
    """At the segments of one store."""

    def __init__(self, chronicle: Chronicle, shelf: Shelf, reads: StoreReads) -> None:
        self._chronicle, self._shelf, self._reads = chronicle, shelf, reads

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
                await self._shelf.index_again(segment)
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
                await self._want_missing(
                    wound, position, place_at(places, position - segment.first)
                )
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
        ended = await self._shelf.ended(segment)
        if ended is None:
            return  # nothing says what waited
        for where, waiting in ended.waiting.items():
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
            ended = await self._shelf.ended(self._shelf.get(number))
            if ended is None:
                return True
            if where not in ended.waiting:
                return False  # a view came that left it out
            number += 1
        return number < newest

    async def _is_readable(self, where: int) -> bool:
        try:
            await self._reads.read_heads(where)
        except (Corrupt, NotFound):
            return False
        return True


def place_at(places: Sequence[int], index: int) -> int:
    return places[index] if 0 <= index < len(places) else LOST
