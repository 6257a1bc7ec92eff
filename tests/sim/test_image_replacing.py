"""An image takes the place of a row, at a bridge and then at its node: all of it, and for good (N5)."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

import pytest
import trio

from duckrow.node import bridged
from duckrow.node.adopting import Read, adopt, adopted
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.errors import DiskFailed
from duckrow.node.forms import BaseForm
from duckrow.node.images import INCOMING, Images
from duckrow.node.limits import MIB
from duckrow.node.numberfolder import NumberFolder
from duckrow.node.row import Item
from duckrow.node.segments import Segment
from duckrow.node.snapshots import Snapshots
from sim.imagekit import KEEP, aged, away, forgotten, imaged
from sim.pairkit import Split, play


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOENT])
def test_a_bridge_whose_disk_keeps_the_state_of_an_image_ends_and_does_not_hang_up_on_its_node(
    error: int,
) -> None:
    """The node asked again and again, and each time its connection broke.  Where the state had gone already, as
    an earlier start of the node had asked for that, it goes on.
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        await away(split, 3)
        await split.until()
        images, tried = split.bridges[3].store.images, trio.Event()
        unlink = images._disk.unlink

        async def fails(name: str) -> None:
            if name == images.name and not tried.is_set():
                tried.set()
                raise OSError(error, "simulated: it stays")
            await unlink(name)

        images._disk.unlink = fails  # type: ignore[method-assign]
        with trio.fail_after(60):
            await tried.wait()
        await trio.sleep(0.01)
        row = split.nodes[3].row
        assert isinstance(row, BridgedRow)
        assert split.world.host("m3").alive == row.is_attached == (error == errno.ENOENT)

    play(1, script, keep=KEEP, tolerate=(DiskFailed,))


def test_what_a_node_has_is_said_to_be_of_an_image_when_all_of_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a death in the middle would leave what is of another row under that name."""
    before: list[str | None] = []

    async def watched(read: Read, store: bytes, snapshots: Snapshots, folder: NumberFolder) -> bool:
        before.append(await adopted(snapshots._folder))
        return await adopt(read, store, snapshots, folder)

    monkeypatch.setattr(bridged, "adopt", watched)

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, *split.bridges)
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await split.until()
        assert before
        assert split.bridges[3].store.images.name not in ("", *before)

    play(4, script, keep=KEEP)


def test_all_of_an_image_is_durable_before_it_is_the_row_and_then_that_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N5: From then on nobody else keeps what was there for this machine."""
    become, durable = Images.become, list[bool]()

    async def script(split: Split) -> None:
        media = split.world.host("m3").media

        async def watched(images: Images, base: BaseForm, segments: list[Segment]) -> None:
            came = {path for path in media.paths() if path.startswith(f"row/{INCOMING}")}
            durable.append(came != set() and came <= {*media.paths(durable=True)})
            durable.extend(
                media.durable_content(path) == media.content(path)
                for path in came.intersection(media.paths(durable=True))
            )
            await become(images, base, segments)
            durable.append(not images._writer.dirty)

        monkeypatch.setattr(Images, "become", watched)
        await imaged(split)
        assert len(durable) > 2
        assert all(durable)

    play(1, script, keep=KEEP)


def test_a_node_that_follows_the_old_row_while_an_image_takes_its_place_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it asked for is in no row here.  Its bridge had said that this was a defect of its own."""
    become, attached = Images.become, list[bool]()

    async def script(split: Split) -> None:
        async def meanwhile(images: Images, base: BaseForm, segments: list[Segment]) -> None:
            row, end = split.nodes[3].row, images._chronicle.position
            assert isinstance(row, BridgedRow)
            assert base.position > end

            async def follow() -> None:
                await trio.sleep(0.001)
                assert images._chronicle.base == base
                assert images._writer.syncing
                row.follow(end)
                await trio.sleep(0.001)
                attached.append(row.is_attached)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(become, images, base, segments)
                nursery.start_soon(follow)

        split.start_all()
        await split.until()
        await trio.sleep(1)
        monkeypatch.setattr(Images, "become", meanwhile)
        split.world.host("m3").media.sync_latency = 0.01
        await away(split, 3)
        await split.until()
        assert attached == [True]
        assert split.replaced == [3]
        await split.end()

    play(1, script, keep=KEEP)


def test_no_two_images_of_a_machine_have_one_name() -> None:
    """Its node would take the second one for the one that it has."""

    async def script(split: Split) -> None:
        await imaged(split)
        bridge = split.bridges[3]
        images = bridge.store.images
        _, position, shift = images.name.split("-")
        following = bridge.store.segments()[-1].number + 1
        reserve = partial(images.reserve, int(position), 1, following - int(shift))
        assert await bridge._rounds.jobs.do(reserve) == following + 1

    play(1, script, keep=KEEP)


def test_what_is_counted_of_a_row_counts_for_nothing_once_an_image_has_its_place() -> None:
    """The disk is slow.  The journal had gone back to the view of the old row."""

    async def script(split: Split) -> None:
        await aged(split, 3)
        split.kill("n", 3)
        split.kill("m", 3)
        split.lose_disk("n3")
        await trio.sleep(2)  # the others have another view
        media = split.world.host("m3").media
        name = [path for path in media.paths() if path.endswith(".seg")][-1]
        size = len(media.content(name))
        for offset in range(size // 4, size * 3 // 4, 300):
            media.flip(name, offset)
        split.start_bridge(3)
        with trio.fail_after(5):
            while split.bridges.get(3) is None:
                await trio.sleep(0.0001)
        journal, standing = split.bridges[3].journal, split.bridges[3].member.standing
        assert standing.uncounted
        counting, counted, read = trio.Event(), trio.Event(), journal.store.read_items

        async def slowly(position: int, limit: int, **more: Any) -> list[Item]:
            items = await read(position, limit, **more)
            if limit == MIB and not counting.is_set():
                counting.set()
                with trio.fail_after(5):
                    while standing.uncounted:
                        await trio.sleep(0.0001)
                counted.set()
            return items

        journal.store.read_items = slowly  # type: ignore[method-assign, assignment]
        await counting.wait()
        split.start_node(3)  # it has no state
        await counted.wait()
        for _ in range(5):
            await trio.sleep(0.0001)
            installed = journal.store.view
            assert installed is not None
            assert installed.id == standing.installed
        await split.until()
        assert sum("m3 image_taken" in note for note in split.notes) == 1
        await split.end()

    play(1, script, keep=KEEP)
