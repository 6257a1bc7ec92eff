"""Where a body lies that waits for its numbers is known for as long as it may get some."""

from __future__ import annotations

import trio

from duckrow.node import keptplaces, makers
from duckrow.node.alone import LoneKeeper
from duckrow.node.cbor import loads_own
from duckrow.node.chronicle import Name
from duckrow.node.effects import Code
from duckrow.node.giving import Given, give
from duckrow.node.places import place, segment_of
from duckrow.node.reading import Pull
from duckrow.node.row import Bundle, Item, View
from duckrow.node.snapshots import Pieces
from duckrow.node.state import State, waiting_positions
from duckrow.node.values import Staged, ticket_of
from sim.alone import Machine
from sim.clusterkit import BODY
from sim.imagekit import KEEP
from sim.nodekit import SMALL, Owner, run
from sim.pairkit import Split, play


async def staged_apart(split: Split) -> tuple[tuple[int, int], int]:
    """The name of a stage; and the segment that records its place, behind the one that its body has filled."""
    journal = split.bridges[1].journal
    store, order = journal.store, journal.order

    async def order_behind(position: int, content: Name | View) -> Item:
        await store.seal(store.segments()[-1].number)
        return await order(position, content)

    journal.order = order_behind  # type: ignore[method-assign]
    task = Owner(split.nodes[1], b"s" * 16)
    staged = await task.order(makers.stage, "s", BODY, 3, writer=b"writer", batch=1, task=0)
    journal.order = order  # type: ignore[method-assign]
    assert staged.code == Code.STAGED
    number = segment_of(await store.place_of(staged.position)) + 1
    assert staged.position == next(each.first for each in store.segments() if each.number == number)
    return (staged.position, staged.detail), number


def test_a_batch_that_was_staged_is_read_after_a_start_though_the_record_of_its_place_is_gone() -> (
    None
):
    """Its body keeps its own segment, but the record lay in the next one, which was all dead once the stage was
    committed.  The start was from a snapshot at which it still waited, and read it as damaged (seed 1000341).
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        stage, segment = await staged_apart(split)
        with trio.fail_after(60):  # both snapshots are of later positions
            while split.nodes[1].tally.snapshot_position < stage[0] + 2 * split.snapshot_items:
                await trio.sleep(0.1)
        split.producing = False
        await trio.sleep(1)
        newest = split.nodes[1].tally.snapshot_position
        done = await Owner(split.nodes[1]).order(makers.commit, b"writer", 1, [stage])
        assert done.code == Code.ORDERED
        with trio.fail_after(10):
            while segment in {each.number for each in split.bridges[1].store.segments()}:
                await trio.sleep(0.1)
        assert split.nodes[1].tally.snapshot_position == newest

        split.kill("n", 1)
        split.start_node(1)
        await split.until()

        pulled = await split.nodes[1].reader.pull(Pull("s", after=0))
        assert [bytes(batch.body) for batch in pulled.batches] == [BODY]
        assert split.replaced == []
        assert not any("index_lacks" in note for note in split.notes)
        await split.end()

    play(1, script, keep=KEEP)


def test_the_places_of_bodies_that_wait_no_more_are_let_go_with_the_next_snapshot() -> None:
    async def work(node: LoneKeeper) -> None:
        owner, task = Owner(node), Owner(node, b"s" * 16)
        staged = [
            await task.order(makers.stage, "s", BODY, 3, writer=b"writer", batch=1, task=number)
            for number in range(3)
        ]
        places = {each.position: await node.row.store.place_of(each.position) for each in staged}
        assert node.numbers.kept == places
        await owner.order(makers.commit, b"writer", 1, [(staged[0].position, staged[0].detail)])
        await Owner(node, b"t" * 16).order(
            makers.stage, "s", BODY, 3, writer=b"other", batch=1, task=0
        )
        for _ in range(2 * SMALL.housekeeping.snapshot_items):
            await node.barrier()
        await trio.sleep(1)
        assert len(node.numbers.kept) == 1

    run(Machine(), work)


def test_places_of_bodies_that_wait_no_more_do_not_pile_up_where_there_is_no_snapshot() -> None:
    """As when a long row is applied from its beginning."""
    state, places, upto = State(), dict[int, int](), 3 * keptplaces.SPARE
    command = makers.clock(makers.Turn(b"p" * 16, 1, time=1))
    body = Staged("s", 1, 0, 1, 1, 1, b"writer", 1, 0, 1)
    for position in range(1, upto):
        content = Bundle(1, 1, position, position, 1, (command,))
        state.stages.put(ticket_of(position, 0), body)
        keptplaces.note(places, state, Item(position, place(1, 8 * position), 0, content))
        if position != 7:
            state.stages.drop(ticket_of(position, 0))

    assert places[7] == place(1, 56)
    assert upto - 1 in places
    assert len(places) <= keptplaces.SPARE + 2


def test_an_image_tells_each_place_once_and_of_none_that_waits_no_more() -> None:
    async def work(node: LoneKeeper) -> None:
        owner, task = Owner(node), Owner(node, b"s" * 16)
        staged = [
            await task.order(makers.stage, "s", BODY, 3, writer=b"writer", batch=1, task=number)
            for number in range(3)
        ]
        await owner.order(makers.commit, b"writer", 1, [(staged[0].position, staged[0].detail)])
        for number in range(2):
            await Owner(node, b"t" * 16).order(
                makers.stage, "s", BODY, 3, writer=b"other%d" % number, batch=1, task=0
            )
        pieces, found = Pieces(), list[tuple[str, bytes]]()

        async def send(_given: Given | None, data: bytes) -> None:
            found.extend(pieces.take(data))

        assert await give(node, send)
        told = [
            each for kind, chunk in found if kind == keptplaces.KIND for each in loads_own(chunk)
        ]
        assert [position for position, _ in told] == waiting_positions(node.state)

    run(Machine(), work)
