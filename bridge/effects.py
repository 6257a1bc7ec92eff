"""What the protocol asks of the world.  The shell performs effects in the order they are given.

That order is the point: what a message promises was written before it is sent, and what has to be
durable first is behind a Sync.  So the shell never decides anything:

    Journal, Place, Learned, Registered, Settled    written, in order, one after the other
    Send                                            only after everything before it was written
    Sync                                            `Member.synced(token)` when all before it is durable
    Serve                                           items of the row to a neighbour, from the store

Losing power may lose any number of the last writes that no Sync covered; it never leaves holes.
"""

from __future__ import annotations

from typing import NamedTuple

from duckrow.node.row import Bundle, View

from .messages import Ballot, Message, Name


class Send(NamedTuple):
    """To a linked neighbour.  Lost with the link, never alone."""

    peer: int
    message: Message


class Serve(NamedTuple):
    """Send the items after a position to this neighbour, now and as they come, as `Follow`.

    Replaces what was served to it before; ends with the link.  None: nothing more.
    """

    peer: int
    follow: tuple[int, int] | None  # (generation, position)


class Journal(NamedTuple):
    """A bundle, own or received.  One of view 0 is a stage only: commands that wait for a view."""

    bundle: Bundle


class Place(NamedTuple):
    """The next item of the row: a bundle that is journaled, or a view mark."""

    position: int
    content: Name | View


class Learned(NamedTuple):
    """The newest decided view."""

    view: View


class Registered(NamedTuple):
    """The acceptor's memory.  Older registers are over."""

    register: int
    promised: Ballot
    accepted_ballot: Ballot | None
    accepted: View | None


class Staged(NamedTuple):
    """This own bundle is durable here, by level: its commands are accepted (N3)."""

    bundle: Bundle


class Settled(NamedTuple):
    """A stage is over, because its commands were ordered in another bundle."""

    name: Name


class Sync(NamedTuple):
    """`Member.synced(token)` once everything written before this is durable.  At most one a round."""

    token: int


class Image(NamedTuple):
    """Take an image from this neighbour; None: from nobody, now (C4)."""

    peer: int | None


class Hang(NamedTuple):
    """Close this link."""

    peer: int
    why: str


class Alarm(NamedTuple):
    """For whoever runs this machine."""

    text: str


Effect = (
    Send
    | Serve
    | Image
    | Journal
    | Place
    | Learned
    | Registered
    | Staged
    | Settled
    | Sync
    | Hang
    | Alarm
)
