"""The chronicle: what the records of a store say, all of them up to some address, in a page.

Recovery makes it by feeding every record in the order of the file; a running store feeds what it
writes.  Each new segment begins with a copy (N6), so the segments before it can go, and recovery
begins at the last one.

    records      START  VIEW  ITEM  BUNDLE ITEM  BUNDLE ITEM  BUNDLE ...
    position              ........1 ...........2 ...........3            <- the row so far
    waiting                                                  \\_ received, not yet in the row
    staged                          own ones, among others, until they are settled (N3)

Pure: the only one who knows bytes and files is recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from . import cbor
from .errors import Corrupt
from .forms import (
    DIGEST_BYTES,
    DIGEST_ZERO,
    UUID_BYTES,
    BaseForm,
    Start,
    chain,
    decode_view,
    fields,
)
from .places import segment_of
from .records import FLAG_REWRITTEN, Record
from .registerform import Register
from .row import View

MAGIC: Final = "duckrow row"
VERSION: Final = 1
UNCOUNTED: Final = 0  # in the place of an origin: damage hides what is in the row
STARTS_KEPT: Final = 16  # the newest, besides those that are named
Name = tuple[int, int, int]  # of a bundle: view, origin, s


class Waiting(NamedTuple):
    """A bundle or a view whose record is there, while no ITEM says where in the row it is."""

    view: int
    origin: int  # of a view 0, as is s
    s: int
    crc: int  # of the item that it will be
    raw: bytes = b""  # of a view: its encoding


class Stage(NamedTuple):
    """An own bundle whose commands need not all have their final results yet (N3)."""

    place: int
    ordered: bool  # it is in the row


class _Named(NamedTuple):
    """What of the installed view is asked again and again."""

    raw: bytes  # its encoding
    view: int
    own: int | None


@attrs.define
class Chronicle:
    uuid: bytes
    formers: tuple[bytes, ...] = ()  # older uuids of this store, whose segments are still its own
    start_count: int = 0
    starts: dict[int, Start] = attrs.field(factory=dict)  # by incarnation; what views may name (X1)
    newest: bytes = b""  # decided view, encoded
    installed: bytes = b""  # view of the last mark
    register: bytes = b""
    position: int = 0
    digest: bytes = DIGEST_ZERO
    floor: int = 1  # every item from here on is whole
    heard: dict[int, int] = attrs.field(factory=dict)  # origin -> last s in the installed view
    waiting: dict[int, Waiting] = attrs.field(factory=dict)  # by place
    staged: dict[Name, Stage] = attrs.field(factory=dict)  # own bundles, the oldest first
    base: BaseForm | None = None  # the last image that took the place of the row
    _named: _Named = attrs.field(default=_Named(b"", 0, None), init=False, eq=False)

    @property
    def own(self) -> int | None:
        """The member whose bundles are own ones, and stages; None: there is none, or it is alone.

        Alone, what is in the journal has its place in the row, so nothing needs a stage.
        """
        return self._installed().own

    def _installed(self) -> _Named:
        if self._named.raw is not self.installed:
            view, own = self.installed_view, None
            if view is not None and len(view.voters) > 1:
                mine = [member.id for member in view.members if member.incarnation in self.starts]
                own = mine[0] if mine else None
            self._named = _Named(self.installed, 0 if view is None else view.id, own)
        return self._named

    def rename(self, uuid: bytes) -> None:
        """The segments of the older names stay its own."""
        self.uuid, self.formers = uuid, self.uuids

    def start(self, start: Start) -> None:
        if start.uuid not in self.uuids:  # damage hides the beginning of its file, which says it
            self.rename(start.uuid)
        self.start_count = max(self.start_count, start.start_count)
        self.starts[start.incarnation] = start
        self._forget_starts()

    def clean(self, incarnation: int) -> None:
        if (start := self.starts.get(incarnation)) is not None:
            self.starts[incarnation] = start._replace(clean=True)

    def decided(self, raw: bytes, place: int, crc: int) -> None:
        """A follower also writes the marks down that it meets, and knows a newer view already."""
        view, newest = decode_view(raw).id, self.newest_view
        self.waiting[place] = Waiting(view, 0, 0, crc, raw)
        if newest is None or newest.id <= view:
            self.newest = raw

    def received(self, place: int, waiting: Waiting) -> None:
        """One of view 0 is a stage and nothing else: its commands wait for a view."""
        if not waiting.view:
            self.staged[0, waiting.origin, waiting.s] = Stage(place, False)
            return
        installed = self._installed()
        self.waiting[place] = waiting
        if not installed.view or waiting.view == installed.view:  # else damage hides a mark
            self.heard[waiting.origin] = waiting.s
        if waiting.origin == installed.own:
            self.staged[waiting.view, waiting.origin, waiting.s] = Stage(place, False)

    def settled(self, name: Name) -> None:
        self.staged.pop(name, None)

    @property
    def held(self) -> dict[int, None]:
        """The numbers of the segments that stay, however far the row has come (N6)."""
        staged = [stage.place for stage in self.staged.values()]
        return dict.fromkeys(map(segment_of, (*self.waiting, *staged)))

    def ordered(self, position: int, place: int, crc: int, digest: bytes) -> None:
        """The item at `place` is the next of the row; the caller has checked that it is."""
        self.position, self.digest = position, digest
        content = self.waiting.pop(place, None)
        if content is None:
            return
        if content.raw:
            self._install(content)
        elif (name := (content.view, content.origin, content.s)) in self.staged:
            self.staged[name] = Stage(place, True)

    def order_next(self, place: int) -> tuple[int, int, bytes]:
        """Makes a waiting one the next item: its position, crc and digest."""
        crc = self.waiting[place].crc
        position = self.position + 1
        digest = chain(self.digest, position, crc)
        self.ordered(position, place, crc, digest)
        return position, crc, digest

    def based(self, base: BaseForm) -> None:
        """An image took the place of everything up to its position.

        What waited is in the image, or never will be in the row, but for what this member acked of
        the view that goes on there.  uuid, starts, the newest view, the register and what is staged
        stay.
        """
        view, heard = decode_view(base.view).id, dict(base.heard)
        self.position, self.digest = base.position, base.digest
        self.installed = base.view
        newest = self.newest_view
        if newest is None or newest.id < view:
            self.newest = base.view
        self.floor = base.position + 1
        self.base = base
        self.waiting = {
            place: waiting
            for place, waiting in self.waiting.items()
            if (waiting.view > view if waiting.raw else waiting.view == view)
            and (waiting.raw or waiting.s > heard.get(waiting.origin, 0))
        }
        for waiting in self.waiting.values():
            if not waiting.raw:
                heard[waiting.origin] = max(heard.get(waiting.origin, 0), waiting.s)
        self.heard = heard

    def forget_received(self) -> None:
        """Damage may have hit what was acknowledged: what has no place in the row counts for nothing.

        What of the installed view has one is to be counted; the view, too, may be another one.
        """
        self.waiting = {place: waiting for place, waiting in self.waiting.items() if waiting.raw}
        self.heard = {UNCOUNTED: 0}

    @property
    def is_uncounted(self) -> bool:
        return UNCOUNTED in self.heard

    def counted(self, installed: bytes, delivered: Mapping[int, int]) -> None:
        """The view of the last mark, and by origin the last s that is in the row behind it."""
        if installed != self.installed:
            view, newest = decode_view(installed), self.newest_view
            if newest is None or newest.id < view.id:
                self.newest = installed
            self._install(Waiting(view.id, 0, 0, 0, installed))
        self.heard = dict(delivered)

    def delivered(self) -> dict[int, int]:
        """By origin, the s of its last bundle of the installed view that is in the row.

        Bundles of an origin come into the row in the order of their s; the rest of them waits.
        """
        waiting: dict[int, int] = {}
        for each in self.waiting.values():
            if not each.raw:
                waiting[each.origin] = min(each.s, waiting.get(each.origin, each.s))
        return {
            origin: waiting[origin] - 1 if origin in waiting else s
            for origin, s in self.heard.items()
            if origin != UNCOUNTED
        }

    def in_order(self) -> list[int]:
        """The places of what waits, as it would be ordered alone: bundles by view and s, then views."""
        return sorted(
            self.waiting,
            key=lambda place: (
                (w := self.waiting[place]).view - bool(w.raw),
                bool(w.raw),
                w.origin,
                w.s,
            ),
        )

    @property
    def installed_view(self) -> View | None:
        return decode_view(self.installed) if self.installed else None

    @property
    def newest_view(self) -> View | None:
        return decode_view(self.newest) if self.newest else None

    @property
    def uuids(self) -> tuple[bytes, ...]:
        return (self.uuid, *self.formers)

    def _install(self, mark: Waiting) -> None:
        self.installed = mark.raw
        self.heard.clear()
        # Bundles of older views that are not in the row never will be.
        self.waiting = {
            place: waiting for place, waiting in self.waiting.items() if waiting.view >= mark.view
        }
        self._forget_starts()

    def _forget_starts(self) -> None:
        """Keeps the starts of the incarnations that a view names, or that the next one may.

        An incarnation that made a promise, and died, is perhaps named by a view that is decided
        when later ones run.
        """
        newest = sorted(self.starts.values(), key=_count)[-STARTS_KEPT:]
        kept = {start.incarnation for start in newest}
        for view in (self.newest_view, self.installed_view, self._accepted()):
            if view is not None:
                kept.update(member.incarnation for member in view.members)
        self.starts = {i: start for i, start in self.starts.items() if i in kept}

    def _accepted(self) -> View | None:
        """What was accepted for the next view, where that can be read."""
        try:
            return Register.decode(self.register).accepted if self.register else None
        except Corrupt:
            return None

    def copy(self) -> Chronicle:
        return attrs.evolve(
            self,
            starts=dict(self.starts),
            heard=dict(self.heard),
            waiting=dict(self.waiting),
            staged=dict(self.staged),
        )

    def copies(self) -> list[object]:
        """What a SEGMENT record and an index file keep of it."""
        return [
            self.uuid,
            list(self.formers),
            self.start_count,
            [list(start) for start in self.starts.values()],
            self.newest,
            self.installed,
            self.register,
            self.position,
            self.digest,
            self.floor,
            [[origin, s] for origin, s in self.heard.items()],
            [[place, *waiting] for place, waiting in self.waiting.items()],
            *self._rare_copies(),
        ]

    def _rare_copies(self) -> list[object]:
        """What most stores have nothing of; not written then."""
        staged = [[*stage, *name] for name, stage in self.staged.items()]
        if self.base is not None:
            return [staged, self.base.encode()]
        return [staged] if staged else []

    @classmethod
    def of_copies(cls, copies: object) -> Chronicle:
        """
        Raises:
            Corrupt: this is not what `copies` made.
        """
        try:
            (
                uuid,
                formers,
                start_count,
                starts,
                newest,
                installed,
                register,
                position,
                digest,
                floor,
                heard,
                waiting,
                *rare,
            ) = copies[:14]  # type: ignore[index]  # the exceptions below are the check
            found = cls(
                uuid,
                tuple(formers),
                start_count,
                {start[0]: Start(*start) for start in starts},
                newest,
                installed,
                register,
                position,
                digest,
                floor,
                dict(heard),
                {place: Waiting(*rest) for place, *rest in waiting},
                {
                    (view, origin, s): Stage(place, ordered)
                    for place, ordered, view, origin, s in (rare[0] if rare else ())
                },
                BaseForm.decode(rare[1]) if len(rare) > 1 else None,
            )
        except (TypeError, ValueError, IndexError) as error:
            raise cbor.malformed("the copies at the beginning of a segment", copies) from error
        if not (
            all(type(each) is bytes and len(each) == UUID_BYTES for each in found.uuids)
            and type(newest) is type(installed) is type(register) is type(digest) is bytes
            and len(digest) == DIGEST_BYTES
            and type(position) is type(floor) is type(start_count) is int
        ):
            raise cbor.malformed("the copies at the beginning of a segment", copies)
        return found


def _count(start: Start) -> int:
    return start.start_count


class Opening(NamedTuple):
    """The SEGMENT record, the first of each file: whose it is, and a copy of the chronicle."""

    uuid: bytes
    segment: int
    before: int  # where the segment before ended
    chronicle: Chronicle
    rewritten: bool

    @property
    def is_of_image(self) -> bool:
        """It came with one (incoming.py): every other but the first of a row has one before it, and knows starts.

        Damage may have emptied that one, or hidden those.
        """
        return self.segment > 1 and self.rewritten and not (self.before or self.chronicle.starts)

    @classmethod
    def decode(cls, record: Record) -> Opening:
        """
        Raises:
            Corrupt: it is not the beginning of a segment of this version.
        """
        magic, version, uuid, segment, before, copies = fields(record.head, 6, "a segment")
        if magic != MAGIC or version != VERSION:
            raise Corrupt(
                f"this file is {magic!r} of version {version!r}; "
                f"{MAGIC!r} of version {VERSION} can be read"
            )
        if type(segment) is not int or type(before) is not int:
            raise cbor.malformed("a segment", [segment, before])
        rewritten = bool(record.flags & FLAG_REWRITTEN)
        return cls(uuid, segment, before, Chronicle.of_copies(copies), rewritten)


def encode_opening(chronicle: Chronicle, segment: int, before: int) -> bytes:
    return cbor.dumps([MAGIC, VERSION, chronicle.uuid, segment, before, chronicle.copies()])
