"""What an image says of the row it is made of, and who gives none (N5)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from duckrow.bridge.imageforms import ImageOffer, NoImage, WantImage
from duckrow.bridge.messages import Message
from duckrow.node.forms import encode_view
from duckrow.node.giving import Given
from duckrow.node.limits import MIB
from duckrow.node.row import View
from sim.clusterkit import chain
from sim.imagekit import KEEP, aged
from sim.pairkit import Split, play


def test_an_image_tells_what_its_row_has_of_the_view_that_holds_at_its_end() -> None:
    """N5: Also where the row of who gives it went on, perhaps in the next view."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(0.5)
        split.kill("m", 3)
        await trio.sleep(2)
        giver, delivered = split.bridges[1], dict[int, int]()
        for item in await giver.store.read_items(1, MIB):
            content = item.content
            if isinstance(content, View):
                delivered = {}
            else:
                delivered[content.origin] = content.s
            told = await giver.giving._delivered(item.position)
            assert {origin: s for origin, s in told.items() if s} == delivered
        assert giver.member.standing.installed > 1

    play(1, script)


def test_an_image_has_a_number_for_the_newest_segment_though_nothing_of_it_is_needed() -> None:
    """N5: The index speaks of it: whoever took the image would begin a segment of that number."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(0.5)
        giver = split.bridges[1]
        newest, view = giver.store.segments()[-1].number, giver.store.view
        assert view is not None

        async def nothing_needed(write: Callable[[bytes], None]) -> Given:
            write(b"state")
            return Given(giver.store.position, encode_view(view), ())

        giver.giving.source = nothing_needed
        await giver.giving._make()
        offer = giver.giving._offer
        assert offer is not None
        assert offer.segments == {newest: 0}

    play(1, script)


def test_who_needs_an_image_itself_since_it_began_to_make_one_gives_none() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        giver, said = split.bridges[1], []
        source, put = giver.giving.source, giver.links.put
        assert source is not None

        async def lost_meanwhile(write: Callable[[bytes], None]) -> Given | None:
            giver.need_image()
            return await source(write)

        def heard(peer: int, message: Message) -> None:
            said.append(message)
            put(peer, message)

        giver.giving.source = lost_meanwhile
        giver.links.put = heard  # type: ignore[method-assign]
        giver.giving.wanted(3, WantImage(0, 0, 0))
        await trio.sleep(1)
        assert [each for each in said if isinstance(each, ImageOffer | NoImage)] == [NoImage(0)]

    play(1, script)


def test_who_does_not_know_what_its_row_has_of_the_view_gives_no_image() -> None:
    """It had told that there was nothing: whoever took it took no item that followed, for ever."""

    async def script(split: Split) -> None:
        await aged(split, 2)
        split.kill("n", 3)
        split.kill("m", 3)
        split.lose_disk("n3")
        await trio.sleep(3)
        split.producing = False
        await trio.sleep(1)
        assert split.bridges[2].status().members == (1, 2)
        split.kill("m", 2)
        media = split.world.host("m2").media
        name = [path for path in media.paths() if path.endswith(".seg")][-1]
        size = len(media.content(name))
        for offset in range(size // 4, size * 3 // 4, 300):
            media.flip(name, offset)
        split.world.net.partition(["m1"], ["m2"])
        split.producing = True
        await trio.sleep(0.2)  # machine 1 has bundles that come before the next mark
        split.start_bridge(2)
        split.start_bridge(3)
        split.start_node(3)
        with trio.fail_after(5):
            while split.bridges.get(2) is None:
                await trio.sleep(0.01)
        assert split.bridges[2].member.standing.uncounted
        await trio.sleep(8)
        assert not any("m3 image_taken" in note for note in split.notes)
        split.world.net.heal()
        await split.until()
        await split.end()

    for seed in (1, 2):
        play(seed, script, keep=KEEP, links=chain(3))
