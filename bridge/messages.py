"""Messages between bridges, as values; `wire.py` writes them down.

Two kinds.  What neighbours say to each other over their link:

    Link     every beat, and at once when it changes: all that a neighbour has to know of me
    Bundle   (node/row.py) a record of its origin's stream, down the feeds of the origin
    Acks     what a member has of every stream; its clock promise and its sign of life
    Base     the stream that follows starts past s, since all members hold it up to there
    Follow   an item of the row, to whoever asked for it in a Link
    Newer    a decided view, to a neighbour that knows an older one only
    Ask, Mended   an item that was damaged here, and its copy from elsewhere

And Control, which is flooded: each node passes (source, incarnation, n) once to all other links, so
it arrives wherever there is any path.  It is rare, may be lost, and is harmless when it comes twice.

Ballots are (counter, id); the greater wins.
"""

from __future__ import annotations

from typing import NamedTuple

from duckrow.node.commands import Command
from duckrow.node.row import Bundle, Item, View

from .imageforms import ImageMessage

Ballot = tuple[int, int]
Name = tuple[int, int, int]  # of a bundle: view, origin, s


def name_of(bundle: Bundle) -> Name:
    return bundle[:3]


class Link(NamedTuple):
    """The whole state of one end, never a change of it, so whatever was lost heals with the next."""

    view: int  # newest decided view known here
    position: int  # of the row here
    digest: tuple[int, bytes]  # (position, digest) at the last multiple of 1024
    floor: int  # the lowest position from which the row can be followed here
    disk: str  # "ok", "soft" or "hard"
    paths: dict[int, tuple[int, ...]]  # by node, the ways there that this end offers (F1)
    wants: dict[
        int, int
    ]  # by origin, what this end has of the streams it wants from the other (F2)
    follow: tuple[int, int] | None  # (generation, position): items after it are wanted (C1)
    cluster: bytes = b""  # that of the view; empty: none is known


class Acks(NamedTuple):
    """PROTOCOL's tick.  Counts only after all bundles of `member` up to s were received (T2)."""

    view: int
    member: int
    s: int  # own bundles made before this was said
    acks: dict[int, int]  # by origin
    beat: int  # grows with every one; the newest replaces older ones


class Base(NamedTuple):
    view: int
    origin: int
    s: int


class Follow(NamedTuple):
    """PROTOCOL's item.  Its place is local and not on the wire."""

    generation: int
    item: Item


class Newer(NamedTuple):
    view: View


class Report(NamedTuple):
    """What an acceptor says of its memory of the view that a promise closes."""

    exact: bool  # X1: it speaks for everything that the member named in the view has acked
    journaled: dict[int, int] | None  # by origin; only of an exact one
    incarnation: int
    position: int
    comes: bool = True  # False: it has to take an image before it can act, or has no room
    held_off: bool = False  # it has room, for a short time only: better without it, if that can be


class Prepare(NamedTuple):
    register: int  # the view that is to be decided
    ballot: Ballot
    view: View  # the one before it; who does not know it learns it here


class Promise(NamedTuple):
    register: int
    ballot: Ballot
    accepted_ballot: Ballot | None
    accepted: View | None
    report: Report


class Accept(NamedTuple):
    register: int
    ballot: Ballot
    value: View
    view: View  # the one before it


class Accepted(NamedTuple):
    register: int
    ballot: Ballot


class Refusal(NamedTuple):
    register: int
    promised: Ballot  # to somebody else, and higher


class Decided(NamedTuple):
    view: View


class Fetch(NamedTuple):
    """Asks for the bundles of a view after these, of these origins (V6)."""

    view: int
    after: dict[int, int]


class Tail(NamedTuple):
    view: int
    bundles: tuple[Bundle, ...]


class Join(NamedTuple):
    """I run, and am no active member."""

    incarnation: int
    uuid: bytes
    view: int
    position: int


class Change(NamedTuple):
    """What an operator wants of the view after this one: one voter, or a setting (R1, R2, N8).

    Good for that one view only: a wish that comes late must not undo what was wished later.
    """

    view: int
    id: int = 0  # of the voter; 0: none changes
    weight: int = 0  # that it shall have; 0: it goes
    data: bool = True  # False: it comes as a witness
    instead_of: int = 0  # it comes in the place of this one; 0: of nobody
    min_copies: int = 0  # 0: as it is
    durability: str = ""  # empty: as it is


class Hand(NamedTuple):
    """Commands of a node that has no vote any more, for a member to order (R3)."""

    commands: tuple[Command, ...]
    position: int = 0  # of the row there, in which they are not so far


class Leave(NamedTuple):
    """This incarnation ends in order, and the others need not wait to find out."""

    incarnation: int


Payload = (
    Prepare
    | Promise
    | Accept
    | Accepted
    | Refusal
    | Decided
    | Fetch
    | Tail
    | Join
    | Change
    | Hand
    | Leave
)


class Control(NamedTuple):
    source: int
    incarnation: int
    n: int
    to: int | None  # None: to everybody
    payload: Payload


class Ask(NamedTuple):
    positions: tuple[int, ...]


class Mended(NamedTuple):
    item: Item


Message = Link | Bundle | Acks | Base | Follow | Newer | Control | Ask | Mended | ImageMessage
