"""An image on its way in, while the bridge goes on."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from duckrow.bridge.imageforms import ImageMessage, ImageOffer, ImageSlice, WantImage
from duckrow.bridge.taking import Taking
from duckrow.node.env import Env
from duckrow.node.errors import DiskFailed
from duckrow.node.events import unheard
from duckrow.node.forms import BaseForm
from duckrow.node.journal import Journal
from duckrow.node.segmentreads import read_index_head
from duckrow.node.segments import Segment, index_file
from sim.alone import Machine
from sim.disk import SimDisk
from sim.journalkit import ME, Tale, bundle
from sim.storekit import small

PEER = 3
POSITION = 20


class OneNeighbour:
    """It has an image whose one segment holds nothing that is alive any more."""

    def __init__(self, journal: Journal) -> None:
        view = journal.store.view
        assert view is not None
        self.offer = ImageOffer(POSITION, b"d" * 16, view, {3: 18}, 5, {1: 100})
        self.heard: Callable[[int, ImageMessage], None] = lambda _peer, _message: None

    def put(self, peer: int, want: WantImage) -> None:
        if not want.image:
            self.heard(peer, self.offer)
        elif want.segment:
            self.heard(peer, ImageSlice(*want, 100))
        else:
            self.heard(peer, ImageSlice(*want, 5, b"state"))

    def flush(self) -> None:
        pass


async def order(tale: Tale, journal: Journal, s: int) -> None:
    await tale.receive(journal, bundle(1, 3, s, s, 600))
    await tale.order(journal, bundle(1, 3, s, s, 600))


async def take(
    journal: Journal, meanwhile: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
) -> None:
    """Once; `meanwhile` is what else the rounds do that work for it."""
    taken = trio.Event()

    async def between(job: Callable[[], Awaitable[object]]) -> object:
        found = await job()
        await meanwhile()
        return found

    async def become(_offer: ImageOffer, base: BaseForm, segments: list[Segment]) -> bool:
        await journal.rebase(base, segments)
        taken.set()
        return True

    links: Any = OneNeighbour(journal)
    store = journal.store
    taking = Taking(store.disk, store, links, unheard, between, become, lambda _peer: None)
    links.heard = taking.heard
    taking.take_from(PEER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.run)
        await taken.wait()
        nursery.cancel_scope.cancel()
    await journal.receive(bundle(1, 3, 19, 19, 600))
    await journal.order(POSITION + 1, (1, 3, 19))
    await journal.sync()


def is_whole(machine: Machine, tale: Tale) -> None:
    """The next start finds nothing damaged."""

    async def again(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        found = journal.recovered
        assert (found.position, found.damaged, found.uuid) == (POSITION + 1, False, tale.uuid)
        assert journal.store.recovered.damages == ()
        assert journal.store.holes == ()

    machine.run(again)


def test_what_comes_into_the_row_as_soon_as_an_image_has_its_numbers_is_not_taken_for_damage() -> (
    None
):
    """The image spoke of more than the segment behind it, whose beginning was not believed any more."""
    machine, tale = Machine(6), Tale(small(segment_bytes=1 << 16))

    async def work(tale: Tale, journal: Journal) -> None:
        async def meanwhile() -> None:
            if journal.store.position == 2:
                await order(tale, journal, 2)

        await tale.change_view(journal)
        await order(tale, journal, 1)
        await take(journal, meanwhile)

    machine.run(tale.life(work, orderly=False))
    is_whole(machine, tale)


def test_what_an_image_took_the_place_of_is_not_told_as_lost_after_an_orderly_end() -> None:
    """The index of what was written to then begins behind the image."""
    machine, tale = Machine(6), Tale(small(segment_bytes=1 << 16))

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await order(tale, journal, 1)
        await take(journal)

    machine.run(tale.life(work, orderly=True))
    is_whole(machine, tale)


def test_the_index_of_an_images_segment_that_is_made_again_knows_what_the_lost_one_did() -> None:
    """By the beginning of that segment, which has room for little, there were no starts, and nothing had been heard."""
    machine, tale = Machine(6), Tale(small(segment_bytes=1 << 16))

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await order(tale, journal, 1)
        await take(journal)
        await journal.store.seal(3)
        await journal.store.sync()
        await journal.store.index_sealed()

    async def again(env: Env) -> None:
        folder = await env.disk.folder("row")
        before = await read_index_head(folder, 2)
        assert before is not None
        await folder.unlink(index_file(2))
        journal = await Journal.open(folder, env, tale.options, ME)
        assert journal.store.recovered.damages == ()
        await journal.store.index_sealed()
        after = await read_index_head(folder, 2)
        assert after is not None
        assert after.chronicle == before.chronicle

    machine.run(tale.life(work, orderly=False))
    machine.run(again)
    is_whole(machine, tale)


def test_a_disk_that_fails_when_the_state_of_an_image_goes_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended the connection of the node only, which came again, and asked for the same, for ever."""
    machine, tale = Machine(6), Tale(small(segment_bytes=1 << 16))

    async def unlink(_disk: SimDisk, name: str) -> None:
        raise OSError(errno.EIO, name)

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await order(tale, journal, 1)
        await take(journal)
        monkeypatch.setattr(SimDisk, "unlink", unlink)
        with pytest.raises(DiskFailed):
            await journal.store.images.released(POSITION + 1)
        with pytest.raises(DiskFailed):
            journal.store.check()

    machine.run(tale.life(work, orderly=False))
