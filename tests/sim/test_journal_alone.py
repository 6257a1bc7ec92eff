"""The folder of a lone node and that of a bridge are the same: who goes on there loses nothing."""

from __future__ import annotations

import attrs
import pytest
import trio

from duckrow.node.alone import open_node
from duckrow.node.env import Env
from duckrow.node.errors import Conflict
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.journal import Journal
from duckrow.node.lonerow import LoneRow
from duckrow.node.producer import Producer
from duckrow.node.registerform import Register
from duckrow.node.row import Bundle, Item, View
from sim.alone import Machine
from sim.journalkit import ME, Tale, begin, bundle
from sim.nodekit import SMALL, values
from sim.park import SimCrashed
from sim.storekit import Story, number_of, small


def test_a_lone_folder_is_taken_over_unchanged_and_given_back() -> None:
    """N7: Nothing is converted: a lone node's items, a bridge's view of one, a lone node's again."""
    machine, story = Machine(4), Story(small(), submitted=[[]])

    async def alone(row: LoneRow, story: Story) -> None:
        await story.produce(row, 100, 900)
        await story.produce(row, 2000)

    async def bridged(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, small(), 1)
        found = journal.recovered
        view = found.installed
        assert view is not None
        assert found.delivered is not None
        assert found.newest == view
        assert (found.position, found.delivered) == (max(story.seen), {1: found.delivered[1]})
        assert (found.register, found.bundles, found.staged) == (None, (), ())
        member = view.members[0]._replace(incarnation=found.incarnation)
        mark = View(
            id=view.id + 1,
            members=(member,),
            cluster=view.cluster,
            lineage=view.lineage,
            durability=view.durability,
            voters=view.voters,
            cut=((1, found.delivered[1]),),
            cont=(1,),
        )
        await journal.register(Register(mark.id, (1, 1), (1, 1), mark))
        await journal.learn(mark)
        position = found.position
        story.see(await journal.order(position + 1, mark))
        for s in range(1, 4):
            number = story.make(300)
            await journal.receive(Bundle(mark.id, 1, s, s, 1, (number,)))
            story.submitted[-1].append(number_of(number))
        story.see(await journal.order(position + 2, (mark.id, 1, 1)))
        await journal.sync()
        story.durable = position + 2
        story.submitted.append([])

    machine.run(story.life(alone))
    machine.run(bridged)
    machine.media.power_loss()
    machine.run(story.life(alone, orderly=False))

    async def check(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        await story.check(row, power=True)

    machine.run(check)


def test_a_node_that_goes_on_alone_orders_what_was_staged_once() -> None:
    """Accepted means that it will be ordered; also if the others were retired meanwhile.

    A view takes the oldest that is staged, so what it has left of a stage comes behind its bundles.
    """

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.receive(journal, bundle(0, ME, 9, 0, 10, 20))
        await tale.change_view(journal)
        for s in (1, 2, 3):
            await tale.receive(journal, bundle(1, ME, s, s, 10))
        await tale.order(journal, bundle(1, ME, 1, 1, 10))
        view = tale.now.installed
        assert view is not None
        alone = attrs.evolve(
            view,
            id=2,
            members=tuple(each for each in view.members if each.id == ME),
            voters=tuple(each for each in view.voters if each[0] == ME),
        )
        await tale.order(journal, alone)
        await tale.sync(journal)

    async def go_on_alone(env: Env) -> list[list[int]]:
        row = await LoneRow.open(await env.disk.folder("row"), env, small(), id_=ME)
        assert row.store.chronicle.staged == {}
        assert row.store.durable_position == row.store.position
        items = await row.store.read_items(1, 1 << 30, bodies=True)
        return [
            [number_of(command) for command in each.content.commands]
            for each in items
            if isinstance(each.content, Bundle)
        ]

    count = 0
    for crash in range(200):
        machine, tale = Machine(11), Tale()
        machine.run(tale.life(work, orderly=False))
        if crash:
            machine.media.crash_before(crash)
        try:
            found = machine.run(go_on_alone)
        except SimCrashed:
            machine.media.power_loss()
            found = machine.run(go_on_alone)
            count += 1
        else:
            machine.media.disarm()
            if crash:
                break
        expected = [[1201], [1202], [1203], [209, 210]]
        once = [each for i, each in enumerate(found) if each not in found[:i]]
        assert once == expected
        assert crash or found == expected
    assert count > 10


def test_a_folder_of_several_voters_is_not_taken_over_by_a_lone_node() -> None:
    machine, tale = Machine(5), Tale()
    machine.run(tale.life(begin, orderly=True))

    async def alone(env: Env) -> None:
        await LoneRow.open(await env.disk.folder("row"), env, small(), id_=ME)

    with pytest.raises(Conflict, match="start it with its bridge"):
        machine.run(alone)


def test_a_node_that_goes_on_alone_believes_no_index_of_an_end_that_was_lost_and_came_again() -> (
    None
):
    """The bridge had got it from the others, and it lay elsewhere: entries were told as damaged, or others were read."""
    machine, options = Machine(6), attrs.evolve(SMALL, housekeeping=HousekeepingOptions())
    given: list[Item] = []

    async def fill(env: Env) -> None:
        async with open_node(env, options) as node:
            producer = Producer(node)
            for number in range(1, 101):
                await producer.produce("t", [b"%d " % number + bytes(300)])
            await trio.sleep(10)
            assert node.numbers.installed
            store = node.row.store
            for position in range(1, store.position + 1):
                given.extend(await store.read_items(position, 1, bodies=True))
            machine.media.crash_before(1)

    async def lose(env: Env) -> None:
        for path in [path for path in machine.media.paths() if path.endswith(".seg")][-3:]:
            await (await env.disk.folder("row")).unlink(path.removeprefix("row/"))

    async def bridged(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, options.store, 1)
        assert journal.recovered.damaged
        for position, _, _, content in given[journal.store.position :]:
            assert isinstance(content, Bundle)
            await journal.receive(content)
            await journal.order(position, content[:3])
        await journal.close()

    async def alone(env: Env) -> None:
        async with open_node(env, options) as node:
            found = await values(node, "t")
            assert [int(each.split()[0]) for each in found] == list(range(1, 101))

    with pytest.raises(SimCrashed):
        machine.run(fill)
    machine.media.kill()
    machine.run(lose)
    machine.run(bridged)
    machine.run(alone)
