"""Images beside a simulated bridge: asked for, given, passed on, taken; what it takes is the beginning of the row.

Of the shells (bridge/taking.py, bridge/giving.py) only when they ask, when they give up, and what they answer.
The passing is the product's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from duckrow.bridge.imageforms import ImageMessage, ImageOffer, ImageSlice, NoImage, WantImage
from duckrow.bridge.passing import Passing

if TYPE_CHECKING:
    from .protocol_world import Machine, World

KINDS: Final = (WantImage, ImageOffer, ImageSlice, NoImage)
PATIENCE: Final = 1.0  # seconds, until the same is asked for again
RETRY: Final = 0.5, 4.0  # after a failure; doubled each time
KEPT: Final = 3.0  # after somebody asked for a part of it


class Images:
    """Of one process."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world, self._machine, self._life = world, machine, machine.life
        self._passing = Passing(machine.up.neighbours, self._put)
        self._peer: int | None = None  # to be asked
        self._asked: tuple[int, WantImage] | None = None
        self._offer: ImageOffer | None = None  # of the other one
        self._given: ImageOffer | None = None
        self._given_at = 0.0
        self._pause, self._rests = RETRY[0], False

    def take_from(self, peer: int | None) -> None:
        """None: from nobody, now.  The same again: the link with it is another one."""
        self._peer = peer
        if self._asked is None:
            self._begin()
        elif peer == self._asked[0]:
            self._put(*self._asked)
        elif peer is not None:
            self._failed()

    def lost(self, peer: int) -> None:
        self._passing.lost(peer)

    def heard(self, peer: int, message: ImageMessage) -> None:
        if isinstance(message, WantImage):
            if self._machine.node.is_lost and self._passing.wanted(peer, message):
                self._world.marks["image passed on"] += 1
            else:
                self._put(peer, self._answer(message))
            return
        self._passing.heard(peer, message)
        if self._asked is None or self._asked[0] != peer or self._peer != peer:
            return
        want = self._asked[1]
        match message:
            case ImageOffer() if not want.image:
                if message.image < len(self._machine.row):
                    self._failed()
                else:
                    self._offer = message
                    self._ask(peer, WantImage(message.image, 0, 0))
            case ImageSlice() if want == message[:3] and self._offer is not None:
                if message.following < self._offer.size:
                    self._ask(peer, WantImage(message.image, 0, message.following))
                elif not self._become(self._offer):
                    self._failed()
            case NoImage() if message.image == want.image:
                self._failed()

    @property
    def floor_max(self) -> int:
        """What is given holds the row behind it: who takes it follows from there."""
        if self._given is None or self._world.now - self._given_at > KEPT:
            return len(self._machine.row) + 1
        return self._given.image + 1

    # Taking.

    def _begin(self) -> None:
        if self._peer is not None and not self._rests:
            self._ask(self._peer, WantImage(0, 0, len(self._machine.row)))

    def _ask(self, peer: int, want: WantImage) -> None:
        self._asked = peer, want
        self._put(peer, want)
        self._world.after(PATIENCE, self._again, self._asked)

    def _again(self, asked: tuple[int, WantImage]) -> None:
        if self._machine.life != self._life or self._asked is not asked:
            return
        if self._peer is None:
            self._world.feed(self._machine.id, lambda _: self._failed())
        else:
            self._put(*asked)
            self._world.after(PATIENCE, self._again, asked)

    def _failed(self) -> None:
        """In an input: the round goes on with it."""
        if self._asked is not None:
            peer, self._asked, self._rests = self._asked[0], None, True
            self._machine.up.no_image(peer, self._world.now)
            self._world.after(self._pause, self._rested)
            self._pause = min(2 * self._pause, RETRY[1])

    def _rested(self) -> None:
        self._rests = False
        if self._machine.life == self._life and self._asked is None:
            self._begin()

    def _become(self, offer: ImageOffer) -> bool:
        world, machine = self._world, self._machine
        if not machine.up.takes_image(offer.image):
            return False
        world.marks["image taken"] += 1
        world.tell(f"{machine.id} takes an image at {offer.image}")
        self._asked, self._pause = None, RETRY[0]
        machine.rebase(world.ledger.row[: offer.image], offer.view, offer.delivered)
        machine.node.take(world.states[offer.image])
        machine.up.based(offer.image, offer.view, offer.delivered, world.now)
        machine.up.hear_damage(0, world.now)
        self._begin()
        return True

    # Giving.

    def _answer(self, want: WantImage) -> ImageMessage:
        machine, given = self._machine, self._given
        if machine.node.is_lost:
            return NoImage(want.image)
        if want.image:
            if given is None or given.image != want.image:
                return NoImage(want.image)
            self._given_at = self._world.now
            return ImageSlice(want.image, 0, want.offset, want.offset + 1, b"x")
        if given is None or given.image < want.offset or self.floor_max != given.image + 1:
            position, (view, delivered) = len(machine.row), machine.counted()
            if machine.is_full or machine.is_uncounted or position < want.offset or view is None:
                return NoImage(0)
            given = ImageOffer(position, b"", view, delivered, self._world.plan.slices, {})
            self._world.states.setdefault(position, machine.node.captured())
        self._given, self._given_at = given, self._world.now
        return given

    def _put(self, peer: int, message: ImageMessage) -> None:
        machine = self._machine
        if machine.life == self._life and not machine.muted:
            self._world.net.send(machine.id, peer, message)
