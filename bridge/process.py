"""The shell of a bridge: whoever brings something has the protocol, the journal and the links for a round.

    links ────► mailbox ─► Member ─► effects ─► journal    written in order
    beat  ────►    │                       ├──► links      flushed once a round
    node  ────►    │                       └──► followers  items, when they are written
    synced ───►    └─ a round: everything that came, then all that follows from it

Nothing is decided here.  One round at a time: if a task is at it, it goes on with what others bring.  It
waits for nothing but a new segment, and nobody is woken to make it.  Syncs run beside it (syncing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from duckrow.node.bridgewire import RUNS_SECONDS
from duckrow.node.commands import Command
from duckrow.node.damage import Damage
from duckrow.node.env import Env
from duckrow.node.errors import NoQuorum
from duckrow.node.events import INFO, WARNING, Note, unheard
from duckrow.node.forms import UUID_BYTES, BaseForm
from duckrow.node.journal import Journal
from duckrow.node.registerform import Register
from duckrow.node.reserve import OK
from duckrow.node.row import Bundle, Item, RowStatus
from duckrow.node.scrub import Pace
from duckrow.node.scrubrounds import ScrubRounds, tell_of_scrub
from duckrow.node.segments import Segment

from . import effects as do
from .admitting import check_admitted
from .follower import Follower
from .founding import LINEAGE_BITS
from .giving import Giving
from .handshake import NONCE_BYTES, VERSION, Door, Hello
from .imageforms import ImageOffer, ImageSlice, NoImage, WantImage
from .jobs import Work
from .links import Down, Heard, Links, Up
from .mailbox import Inbox
from .member import Member
from .messages import Ask, Change, Mended, Message, Name
from .options import BridgeOptions
from .passing import Passing
from .readers import Readers
from .recovered import Recovered
from .repair import Repair
from .reserving import insist, look_on
from .rounds import Rounds
from .serving import Serving
from .staging import Staging
from .standby import Standby
from .syncing import Syncing
from .taking import Taking
from .telling import status_of

BETWEEN_STORES: Final = frozenset((Ask, Mended, WantImage, ImageOffer, ImageSlice, NoImage))
DIGESTS_EVERY: Final = 1024  # positions
LEAVE_SECONDS: Final = 0.01  # between two looks whether all is said


class Bridge:
    def __init__(self, env: Env, options: BridgeOptions, journal: Journal, note: Note) -> None:
        self.journal, self.store = journal, journal.store
        self.options = options
        self._env, self._note = env, note
        # What the node is told.
        self.followers: dict[Follower, None] = {}
        self.on_staged: Callable[[Bundle], None] = lambda _bundle: None
        self.on_round: Callable[[], None] = lambda: None  # its status may have changed
        self.on_image: Callable[[], None] = lambda: None  # the row is another one
        self._insist = partial(insist, self.store)
        self.staging = Staging(journal, self._insist)
        self._rounds = Rounds(self._round)
        self._mailbox = Inbox(self._rounds)
        self.turn = self._rounds.turn  # works off what was brought
        self._resting = trio.CancelScope()  # until the next beat is due
        self._syncing = Syncing(
            self.store, self.turn, lambda: self.member.standing.newest.durability
        )
        self._disk = OK  # what the member knows of it
        self._told = 0  # token: the member knows that it is durable
        self.member = Member(
            Recovered.of(journal.recovered),
            trio.current_time(),
            env.rng,
            options.timing,
            options.charter,
            options.cluster,
        )
        door = Door(
            options.id,
            options.store.level,
            self._cluster() or options.cluster,
            frozenset((*options.neighbours, *options.standby)),
            lambda: self.links.linked(),
        )
        self.links = Links(
            env,
            self._hello,
            options.secret,
            door,
            options.neighbours,
            options.standby,
            self._mailbox,
            note,
            options.timing,
        )
        self._standby = Standby(
            frozenset(options.neighbours), frozenset(options.listed), options.timing
        )
        self._door = door
        self.repair = Repair(
            journal,
            self.staging,
            self.links,
            note,
            self._rounds.jobs.do,
            self.member,
            self._rounds.wake,
        )
        self.readers = Readers(self.store, self.repair, note)
        self._serving = Serving(self.store, self.links, self.readers, note)
        disk = journal.store.disk
        self.giving = Giving(disk, journal, self.links, self.readers, self.member.standing, note)
        self._passing = Passing(self.member.neighbours, self.links.put)
        self._scrubs = ScrubRounds(disk, env.wall_us, options.store, [self._scrub])
        self._scrubs.on_report = partial(tell_of_scrub, note)
        self._taking = Taking(
            disk, self.store, self.links, note, self._rounds.jobs.do, self._become, self._no_image
        )

    @classmethod
    async def open(cls, env: Env, options: BridgeOptions, note: Note = unheard) -> Bridge:
        """Recovers; nothing is said to anybody before `run`.

        Raises:
            Conflict, Corrupt, Full, DiskFailed: see `Journal.open`.
        """
        folder = await env.disk.folder("row")
        await env.disk.sync_names()
        journal = await Journal.open(folder, env, options.store, options.id)
        return cls(env, options, journal, note)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled.

        Raises:
            DiskFailed: in a group; the process has to end (L1).
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self._serving.run)
            await nursery.start(self.links.run, self.options.port)
            nursery.start_soon(self._syncing.run)
            nursery.start_soon(self.giving.run)
            nursery.start_soon(self._taking.run)
            nursery.start_soon(self.repair.run)
            nursery.start_soon(self._scrubs.run)
            nursery.start_soon(self._beat_on)
            nursery.start_soon(look_on, self.store, self._rounds.wake)
            task_status.started()
            await self._rounds.run()

    async def leave(self, seconds: float = 1.0) -> None:
        """Tells the others that this process ends, so that they need not find out (S3); while `run` runs."""
        self.member.leave(trio.current_time())
        self._rounds.wake()
        with trio.move_on_after(seconds):
            await trio.lowlevel.checkpoint()
            while self._rounds.due or self.links.is_busy:
                await trio.sleep(LEAVE_SECONDS)

    def fail(self, error: Exception) -> None:
        """`run` raises it: for who works for the bridge in a task that `run` does not wait for."""
        self._rounds.fail(error)

    async def close(self) -> None:
        """Orderly, after `run` has ended.

        Raises:
            DiskFailed.
        """
        await self.journal.close()

    def abandon(self) -> None:
        self.journal.abandon()

    # -- the node beside it -----------------------------------------------------------------

    async def between(self, work: Work) -> None:
        """Does it between two rounds."""
        await self._rounds.jobs.do(work)

    def submit(self, commands: Sequence[Command]) -> None:
        """Takes commands into the open bundle, in this order; it closes with the next `turn`.

        Raises:
            NoQuorum: too much is pending; nothing of it was taken.
            Full: the reserve is being used, which is for what makes room; nothing of it was taken.
        """
        self.store.check()
        check_admitted(self, commands)
        if not self.member.submit(commands):
            raise NoQuorum("too many commands wait to be ordered, and this machine has no quorum")
        self._rounds.due = True

    def withdraw(self, command: Command) -> bool:
        return self.member.withdraw(command)

    def settle(self, names: Sequence[Name]) -> None:
        """Every command of these own bundles has its final result (N3); with the next round."""
        self.staging.settle(names)

    def follow(self, after: int) -> Follower:
        """Items from behind a position; to be given back with `unfollow`."""
        follower = Follower(after, self.store.position, self._read_items)
        self.followers[follower] = None
        return follower

    async def _read_items(self, position: int, limit_bytes: int) -> list[Item]:
        """For the node: waits for what is damaged, or for an image."""
        read = partial(self.store.read_items, position, limit_bytes)
        return await self.readers.insist(position, read, by_node=True)

    def unfollow(self, follower: Follower) -> None:
        self.followers.pop(follower, None)

    def need_image(self) -> None:
        """The node has no state from which the row here could be followed (N4)."""
        self.member.need_image(trio.current_time())
        self._rounds.wake()

    def wish(self, change: Change) -> None:
        """An operator wants something of the next view (R1)."""
        self.member.change(change, trio.current_time())
        self._rounds.wake()

    def force(self) -> None:
        """An operator has this machine go on alone: what others have ordered since is lost."""
        rng = self._env.rng
        cluster, lineage = rng.randbytes(UUID_BYTES), rng.getrandbits(LINEAGE_BITS)
        self._note(WARNING, "view_forced cluster=%s", cluster.hex())
        self.member.force(cluster, lineage, trio.current_time())
        self._rounds.wake()

    def status(self) -> RowStatus:
        return status_of(self)

    # -- rounds -----------------------------------------------------------------------------

    async def _round(self) -> None:
        self._feed()
        await self._perform(self.member.take_effects(trio.current_time(), self._env.wall_us()))
        if self.store.reserve.state != self._disk:
            self._disk = self.store.reserve.state
            self.member.hear_disk(self._disk, trio.current_time())
            self._rounds.due = True
        self.on_round()
        if self.store.dirty:
            self._syncing.wrote()
        if self.store.unindexed:
            self._syncing.sealed()

    def _feed(self) -> None:
        """All that came since the last round."""
        member, now = self.member, trio.current_time()
        member.handing.is_full = self.staging.is_full
        for event in self._mailbox.take():
            match event:
                case Heard(peer, messages):
                    if not messages:
                        member.hear_from(peer, now)
                    for message in messages:
                        member.receive(peer, message, now)
                        if type(message) in BETWEEN_STORES:
                            self._heard(peer, message)
                case Up(peer):
                    self.links.begin(peer)
                    member.link_up(peer, now)
                case Down(peer, by_peer):
                    self._serving.stop(peer)
                    self._passing.lost(peer)
                    member.link_down(peer, now, by_peer=by_peer)
        if self._syncing.done > self._told:
            self._told = self._syncing.done
            member.synced(self._told, now)
        if now >= member.beat_at:
            neighbours = member.neighbours
            neighbours.floor = max(self.store.floor, self.repair.floor)
            neighbours.disk = self.store.reserve.state
            member.beat(now)
            self._resting.deadline = min(member.beat_at, now + RUNS_SECONDS)
            self.repair.beat()
            reached = neighbours.routes.paths
            self.links.dial_standby(self._standby.beat(now, neighbours.linked, reached))

    def _heard(self, peer: int, message: Message) -> None:
        if isinstance(message, WantImage):
            if not (self.giving.is_needed_here and self._passing.wanted(peer, message)):
                self.giving.wanted(peer, message)
        elif isinstance(message, Ask | Mended):
            self.repair.heard(peer, message)
        elif isinstance(message, ImageOffer | ImageSlice | NoImage):
            self._passing.heard(peer, message)
            self._taking.heard(peer, message)

    async def _perform(self, effects: Sequence[do.Effect]) -> None:
        journal, links = self.journal, self.links
        placed: list[Item] = []
        for effect in effects:
            match effect:
                case do.Send(peer, message):
                    links.put(peer, message)
                case do.Journal(bundle):
                    await self._insist(journal.receive, bundle)
                    if bundle.origin == self.options.id:
                        self.staging.journaled(bundle)
                case do.Place(position, content):
                    item = await self._insist(journal.order, position, content)
                    placed.append(item)
                    if not position % DIGESTS_EVERY:
                        self.member.digested(position, self.store.digest)
                case do.Learned(view):
                    await self._insist(journal.learn, view)
                    self._door.cluster = view.cluster
                    self._note(INFO, "view view=%d members=%s", view.id, _ids(view.members))
                case do.Registered():
                    await self._insist(journal.register, Register(*effect))
                case do.Settled(name):
                    await self.staging.settle_now([name])
                case do.Staged(bundle):
                    self.on_staged(bundle)
                case do.Sync(token):
                    self._syncing.want(token)
                case do.Serve(peer, follow):
                    self._serving.serve(peer, follow)
                case do.Image(peer):
                    self._taking.take_from(peer)
                case do.Hang(peer, why):
                    links.hang_up(peer, why)
                case do.Alarm(text):
                    self._note(WARNING, "alarm text=%s", text)
        links.flush()
        await self.staging.flush()
        if placed:
            self._serving.placed()
            for follower in self.followers:
                for item in placed:
                    if not follower.placed(item):
                        self._known(item)

    def _known(self, item: Item) -> None:
        """The node has it, and will not say so again: its stage is over."""
        if isinstance(item.content, Bundle) and item.content.origin == self.options.id:
            self.settle([item.content[:3]])

    def _no_image(self, peer: int) -> None:
        self.member.no_image(peer, trio.current_time())
        self._rounds.wake()

    async def _become(self, offer: ImageOffer, base: BaseForm, segments: list[Segment]) -> bool:
        """An image takes the place of the row.  False: that has come so far itself (N5)."""
        if not self.member.takes_image(base.position):
            return False
        with trio.CancelScope(shield=True):  # sim-ok: some names, and the dead write none
            await self.journal.rebase(base, segments)
        self.member.based(base.position, offer.view, offer.delivered, trio.current_time())
        self._door.cluster = self._cluster()
        self._note(INFO, "image_taken position=%d", base.position)
        self.repair.replaced()
        self.on_image()
        self._rounds.wake()
        return True

    async def _scrub(self, pace: Pace) -> list[Damage]:
        """The row, once a week; what is damaged comes from the others."""
        damages = await self.store.scrub(pace)
        self.repair.suspect(damages)
        return damages

    # -- beside it --------------------------------------------------------------------------

    async def _beat_on(self) -> None:
        while True:
            self._rounds.wake()
            # Where beats are seldom its node is told in between that it runs.
            late = trio.current_time() + min(self.options.timing.beat, RUNS_SECONDS)
            with trio.CancelScope(deadline=late) as self._resting:
                await trio.sleep_forever()

    # -- who this is ------------------------------------------------------------------------

    def _hello(self) -> Hello:
        found = self.journal.recovered
        return Hello(
            VERSION,
            self._cluster(),
            self.options.store.level,
            found.id,
            found.uuid,
            found.incarnation,
            found.start_count,
            self._env.rng.randbytes(NONCE_BYTES),
        )

    def _cluster(self) -> bytes:
        newest = self.member.standing.newest
        return newest.cluster if newest.id else b""


def _ids(members: Sequence[object]) -> list[int]:
    return [member.id for member in members]  # type: ignore[attr-defined]
