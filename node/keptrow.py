"""What a node asks of its row, whoever keeps it: rule N1.

    lonerow.py      a cluster of one: the row store is in this process
    bridgedrow.py   the bridge keeps it, and this is a socket

The node submits commands and follows items; it never orders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from .commands import Command
from .errors import Corrupt, DuckrowError
from .reading import Bodies
from .row import Item, RowStatus
from .scrub import Scrub
from .segments import SegmentInfo
from .storeoptions import StoreOptions


class Store(Bodies, Protocol):
    """Where the row lies."""

    @property
    def uuid(self) -> bytes: ...

    @property
    def formers(self) -> tuple[bytes, ...]:
        """Names that it had before."""
        ...

    @property
    def options(self) -> StoreOptions: ...

    @property
    def position(self) -> int: ...

    @property
    def durable_position(self) -> int: ...

    @property
    def floor(self) -> int:
        """The lowest position from which every item is whole."""
        ...

    def segments(self) -> list[SegmentInfo]: ...

    async def place_of(self, position: int) -> int:
        """
        Raises:
            NotFound, Corrupt: it was dropped, or is damaged.
        """
        ...

    async def digest_of(self, position: int) -> bytes:
        """
        Raises:
            NotFound, Corrupt: it was dropped, or is damaged.
        """
        ...

    async def sync(self) -> None: ...

    async def drop(self, numbers: Collection[int]) -> list[int]:
        """Which of these segments went; the store has the last word (N6)."""
        ...

    async def rewrite(self, segment: int, live: Collection[int]) -> int:
        """Without the dead bodies; how many bytes that gave back.

        Raises:
            Full: there is no room for the copy.
        """
        ...


class KeptRow(Protocol):
    """`image` comes with the bridge: a row of one has nobody to give an image to."""

    @property
    def store(self) -> Store: ...

    @property
    def broken(self) -> Corrupt | None:
        """The row ends where this says, damaged, and takes nothing more."""
        ...

    @property
    def stuck(self) -> bool:
        """There was no room even for what makes room."""
        ...

    @property
    def stages(self) -> bool:
        """What was submitted may be on this disk before it is ordered: `take_staged` tells."""
        ...

    @property
    def accepts(self) -> bool:
        """Now `take_staged` can tell of what is submitted."""
        ...

    @property
    def missing(self) -> tuple[str, ...]:
        """As in the status."""
        ...

    @property
    def is_witness(self) -> bool:
        """As in the status."""
        ...

    def status(self) -> RowStatus: ...

    def tend(self, on_tight: Callable[[], None], scrubs: Sequence[Scrub]) -> None:
        """What the node does when the disk runs full; and what it has to read through, too."""
        ...

    # The past.

    def follow(self, after: int) -> None:
        """`take` begins behind this position.  Once, before the first `take`.

        Raises:
            Corrupt: the row does not have what follows, any more or yet (N4).
        """
        ...

    async def leads(self, after: int, upto: int) -> bool:
        """Whether the row can be read from the one position to the other."""
        ...

    # The present.

    def submit(
        self,
        commands: Sequence[Command],
        *,
        accepted: bool = False,
        later: bool = False,
        anew: bool = False,
    ) -> None:
        """Takes commands into the open bundle, in this order; `accepted`: `take_staged` is to tell of
        them, where that is less than the order.  `later`: `go_on` follows, before anybody else's turn.
        `anew`: what is here already goes once more, since it has no place where it is.

        Raises:
            Full: the disk is at its reserve; nothing of it was taken.
            NoQuorum: too much is pending; nothing of it was taken.
        """
        ...

    def go_on(self) -> None:
        """What was submitted for later goes the way of all that is."""
        ...

    def order_now(self) -> Item | None:
        """What was submitted is the next item, which `take` will not give.  None: it is not, and
        `go_on` has to be called.
        """
        ...

    def withdraw(self, command: Command) -> bool:
        """True: it had not entered a bundle and never will."""
        ...

    async def take(self) -> list[Item]:
        """The next items of the row, in order; waits until there is one.  One caller at a time."""
        ...

    def take_refused(self) -> Sequence[tuple[Command, DuckrowError]]:
        """What was submitted, and is certainly not written, or in doubt; with the reason."""
        ...

    @property
    def copies_upto(self) -> float:
        """Position: of what is refused up to there another copy may come, which this node gave to a bridge."""
        ...

    def take_staged(self) -> Sequence[bytes]:
        """Heads of commands that are on this disk now, in the sequence in which they go to the order;
        the first time, all that an earlier life of this node left there.
        """
        ...

    def release(self, position: int, oldest_body: int) -> None:
        """Items below `position` are in two snapshots; bodies below item `oldest_body` are not waited for (N6)."""
        ...

    async def told(self) -> dict[str, Any]:
        """What there is to say of other machines, for `duckrow status`; nothing, if that is not known
        now.
        """
        ...

    async def administer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Who votes, and what an operator wants of that: see bridge/admin.py.

        Raises:
            Refused, NoQuorum, Timeout: it is not to be had; says why.
        """
        ...

    async def keep_last(self) -> None:
        """A file that did not fit is gone again: of its space, a command that makes room has a part."""
        ...

    async def use_reserve(self) -> bool:
        """True: there is a little more room now, for what makes room."""
        ...
