"""Where damage may have hit a promise, or the end of the row, a journal goes on with a new name."""

from __future__ import annotations

import random

import pytest

from duckrow.node.env import Env
from duckrow.node.errors import Corrupt
from duckrow.node.forms import BaseForm, encode_view
from duckrow.node.incoming import Incoming
from duckrow.node.journal import Journal, Recovered
from duckrow.node.records import PREFIX_BYTES
from duckrow.node.registerform import Register
from duckrow.node.segments import index_file, segment_file
from duckrow.node.storeoptions import FSYNC
from sim.alone import Machine
from sim.journalkit import ME, Memory, Tale, begin, bundle, drop_some, go_on, opened
from sim.park import SimCrashed
from sim.storekit import flip, small


def told(*, orderly: bool) -> tuple[Machine, Tale]:
    """Everything was synced, and so acknowledged."""

    async def end(tale: Tale, journal: Journal) -> None:
        await go_on(tale, journal)
        await tale.register(journal, Register(tale.now.newest.id + 1, (9, 1)))  # type: ignore[union-attr]
        await tale.sync(journal)

    machine, tale = Machine(3), Tale()
    for work in (begin, drop_some, end):
        machine.run(tale.life(work, orderly=orderly))
    return machine, tale


def flips(machine: Machine) -> list[tuple[str, int]]:
    """Most in the last files, which are read record by record."""
    names = [n for n in machine.media.paths() if n.startswith("row/0")]
    names += 9 * [n for n in names if n.endswith(".seg")][-2:]
    return [(name, at) for name in names for at in range(len(machine.media.content(name)))]


@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "closed"])
def test_where_damage_may_have_hit_a_promise_the_store_has_a_new_name(orderly: bool) -> None:
    """U1, U3."""
    rng, renamed, kept = random.Random(5), 0, 0
    machine, tale = told(orderly=orderly)
    before = tale.now
    for path, offset in rng.sample(flips(machine), 100):
        machine, tale = told(orderly=orderly)
        content = machine.media.content(path)
        machine.media.pages(path).write(0, flip(content, offset, rng))

        try:
            found = machine.run(opened)
        except BaseException as error:
            error.add_note(f"{path}, offset {offset}")
            raise
        if found.uuid != tale.uuid:
            renamed += 1
            # A stranger follows, whatever it thinks it has; from where its row ends, if it knows.
            assert found.delivered is None or sum(found.delivered.values()) < found.position
            assert not found.bundles
            continue
        kept += 1
        after, staged = Memory.of(found), {b[:3] for b in found.staged}
        assert after.register == before.register
        assert after.newest == before.newest
        assert after.holds() == before.holds(), (path, offset)
        assert all(b == before.waiting.get(n, b) for n, b in after.waiting.items())
        # One that was settled comes again if damage hit what said so: the node settles it again.
        assert set(before.staged) <= staged | set(found.lost_stages)
    assert renamed > 10
    assert kept > 10


def test_the_index_of_a_file_that_was_lost_is_not_taken_for_that_of_the_next_one_of_its_number() -> (
    None
):
    """At the end of the row, after an orderly end: what was acknowledged since then was lost, or read wrongly."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await tale.receive(journal, bundle(1, 3, 1, 1, 1500))
        await journal.store.seal(1)
        await tale.order(journal, bundle(1, 3, 1, 1, 1500))

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(2))

    async def go_on(env: Env) -> tuple[bytes, int, bytes]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert journal.recovered.damaged
        assert [segment.number for segment in store.segments()] == [1, 2]
        for s in range(1, 4):
            await journal.receive(bundle(1, 3, s, s, 700))
            await journal.order(store.position + 1, (1, 3, s))
        await journal.sync()
        return store.uuid, store.position, store.digest

    machine.run(tale.life(work, orderly=True))
    machine.run(lose)
    uuid, position, digest = machine.run(go_on)
    found = machine.run(opened)
    assert not found.damaged
    assert (found.uuid, found.position, found.digest) == (uuid, position, digest)


def test_a_start_that_dies_leaves_what_says_that_the_end_of_the_row_is_lost() -> None:
    """Else the next one had the old name, with less than others were promised under it (U3)."""
    for at in range(1, 100):
        machine, tale = Machine(6), Tale()

        async def work(tale: Tale, journal: Journal) -> None:
            await tale.change_view(journal)
            await journal.store.seal(1)
            await tale.receive(journal, bundle(1, 3, 1, 1, 1500))
            await tale.order(journal, bundle(1, 3, 1, 1, 1500))

        async def lose(env: Env) -> None:
            folder = await env.disk.folder("row")
            await folder.unlink(segment_file(2))
            await folder.sync_names()

        machine.run(tale.life(work, orderly=True))
        machine.run(lose)
        machine.media.crash_before(at)
        try:
            machine.run(opened)
            break
        except SimCrashed:
            pass
        machine.media.power_loss() if at % 2 else machine.media.kill()
        found = machine.run(opened)
        assert found.uuid != tale.uuid, f"after a crash before operation {at}"
        assert "row/restored" not in machine.media.paths()


def test_the_index_of_a_file_that_lost_its_end_is_not_believed_once_the_row_goes_on_behind_it() -> (
    None
):
    """It spoke of items that came again elsewhere; and looking at what was taken for damage ended the bridge."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await journal.store.seal(1)
        for s in (1, 2):
            await tale.receive(journal, bundle(1, 3, s, s, 1500))
            await tale.order(journal, bundle(1, 3, s, s, 1500))
        await journal.store.seal(2)
        await tale.sync(journal)
        await journal.store.index_sealed()

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(3))

    async def go_on(env: Env) -> tuple[bytes, int, bytes]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert store.position == 2
        await journal.receive(bundle(1, 3, 2, 2, 1500))
        await journal.order(3, (1, 3, 2))
        await journal.sync()
        return store.uuid, store.position, store.digest

    machine.run(tale.life(work, orderly=False))
    machine.run(lose)
    pages = machine.media.pages(f"row/{segment_file(2)}")
    pages.truncate(pages.cache.size - 1000)  # the second bundle, and its place
    uuid, position, digest = machine.run(go_on)

    async def again(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert not journal.recovered.damaged
        assert (store.uuid, store.position, store.digest) == (uuid, position, digest)
        for segment in store.segments():
            await store.seal(segment.number)
            await store.sync()
            await store.mending.look(segment.number, journal.waiting())

    machine.run(again)


def test_an_index_that_is_true_stays_when_a_start_takes_a_new_name() -> None:
    """It may be all that says where an item lies; it went, and the item was lost if that start was killed."""
    machine, tale = Machine(6), Tale(small(segment_bytes=1 << 16))
    offsets: list[int] = []

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for origin in (1, 3):
            offsets.append(journal.store.segments()[-1].bytes)
            await tale.receive(journal, bundle(1, origin, 1, origin, 600))
        offsets.append(journal.store.segments()[-1].bytes)
        await tale.order(journal, bundle(1, 3, 1, 3, 600))
        await tale.receive(journal, bundle(1, 3, 2, 4, 600))
        await tale.order(journal, bundle(1, 3, 2, 4, 600))

    machine.run(tale.life(work, orderly=True))
    waits, _, item = offsets
    machine.media.flip(f"row/{segment_file(1)}", waits + 80)
    machine.media.flip(f"row/{segment_file(1)}", item + 8)

    async def read(env: Env) -> Recovered:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        for position, s in ((2, 1), (3, 2)):
            (found,) = await journal.store.read_items(position, 1, bodies=True)
            assert found.content == bundle(1, 3, s, 2 + s, 600)
        return journal.recovered

    assert machine.run(read).damaged
    assert not machine.run(read).damaged


def damaged_and_torn(seed: int, *, behind: int, size: int = 700) -> tuple[Machine, Tale]:
    """The last items that were durable are damaged; of what was written behind them the first is torn."""
    machine, tale = Machine(seed), Tale()
    ends: list[tuple[int, int]] = []

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for s in range(1, 2 + behind):
            ends.append((journal.store.segments()[-1].number, journal.store.segments()[-1].bytes))
            await tale.receive(journal, bundle(1, 3, s, s, size))
            await tale.order(journal, bundle(1, 3, s, s, size))
            if s == 1:
                await tale.sync(journal)

    machine.run(tale.life(work, orderly=False))
    (number, start), (still, end) = ends[:2]
    assert number == still == 1
    pages = machine.media.pages(f"row/{segment_file(1)}")
    pages.write(start, bytes(end - start))
    pages.write(end + 100, bytes(200))
    pages.sync(pages.count)
    return machine, tale


@pytest.mark.parametrize("behind", [3, 20])
def test_what_damage_hides_behind_the_end_of_the_row_never_comes_back_once_it_goes_on(
    behind: int,
) -> None:
    """A bridge goes on with a new name.  What it got then was damaged at its next start, and what had lain
    behind its end was in the row instead; or a file of the old name was the newest, and there was no start.
    """
    machine, tale = damaged_and_torn(6, behind=behind)

    async def go_on(env: Env) -> tuple[bytes, int, bytes]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert journal.recovered.damaged
        assert journal.recovered.position == 1
        await journal.receive(bundle(1, 3, 1, 1, 700))
        await journal.order(2, (1, 3, 1))
        await journal.sync()
        return store.uuid, store.position, store.digest

    uuid, position, digest = machine.run(go_on)
    found = machine.run(opened)
    assert not found.damaged
    assert (found.uuid, found.position, found.digest) == (uuid, position, digest)


def test_a_start_that_dies_while_it_takes_away_what_lay_behind_the_end_has_a_new_name_next_time() -> (
    None
):
    for at in range(1, 100):
        machine, tale = damaged_and_torn(6, behind=20)
        machine.media.crash_before(at)
        try:
            machine.run(opened)
            break
        except SimCrashed:
            pass
        machine.media.power_loss() if at % 2 else machine.media.kill()
        for _ in range(2):
            found = machine.run(opened)
            assert (found.position, found.uuid == tale.uuid) == (1, False), f"died before {at}"
        assert "row/restored" not in machine.media.paths()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_an_index_that_the_disk_did_not_give_once_is_not_believed_when_other_items_have_come(
    *, power: bool
) -> None:
    """The file behind it was lost, so its segment went on, and has no other behind it yet: it was lost once more."""
    machine, tale = Machine(13), Tale(small(level=FSYNC))

    async def fill(tale: Tale, journal: Journal) -> None:
        await begin(tale, journal)
        await tale.sync(journal)
        await journal.store.index_sealed()

    machine.run(tale.life(fill, orderly=False))
    *_, sealed, last = [p for p in machine.media.paths() if p.endswith(".seg")]
    index = sealed.replace(".seg", ".pos")
    for offset in range(0, len(machine.media.content(index)), 512):
        machine.media.spoil(index, offset)

    async def go_on_without(env: Env) -> tuple[bytes, int]:
        await (await env.disk.folder("row")).unlink(last.removeprefix("row/"))
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        held = [each.s for each in journal.waiting().values() if each.origin == 1]
        s = 1 + max([journal.delivered()[1], *held])
        await journal.receive(bundle(1, 1, s, 100 + s, 50))
        await journal.sync()
        return journal.store.uuid, journal.store.position

    uuid, position = machine.run(go_on_without)
    if power:
        machine.media.power_loss()
    if index in machine.media.paths():
        machine.media.pages(index).bad.clear()

    again = machine.run(opened)

    assert (again.uuid, again.position, again.damaged) == (uuid, position, False)


def test_a_new_name_that_only_an_index_tells_any_more_is_kept() -> None:
    """Its first file was lost, and the index before it: the old name was back, with less than others were told."""
    machine, tale = Machine(15), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await tale.receive(journal, bundle(1, 3, 1, 1, 50))

    async def rename(env: Env) -> tuple[bytes, ...]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        journal.store.take_new_name()
        await journal.store.begin(99)
        await journal.receive(bundle(1, 3, 1, 1, 50))
        await journal.order(2, (1, 3, 1))
        await journal.close()
        return journal.store.uuid, *journal.store.formers

    async def lose(env: Env) -> None:
        folder = await env.disk.folder("row")
        for name in (index_file(1), segment_file(2)):
            await folder.unlink(name)

    machine.run(tale.life(work, orderly=True))
    names = machine.run(rename)
    machine.run(lose)
    found = machine.run(opened)
    assert found.damaged
    assert {*found.formers} == {*names}


def test_a_new_name_that_only_the_index_of_the_file_before_tells_any_more_is_kept() -> None:
    """What was left of its first file was of no store, and the next start was counted as that one had been: then the
    beginning of its own file was no such thing, and each start took a new name.
    """
    machine, tale = Machine(25), Tale()
    ends: list[int] = []

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)

    async def rename(env: Env) -> tuple[bytes, ...]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        journal.store.take_new_name()
        await journal.store.begin(99)
        ends.append(journal.store.segments()[-1].bytes)
        await journal.register(Register(2, (9, 1)))
        await journal.sync()
        await journal.store.index_sealed()
        return journal.store.uuid, *journal.store.formers

    machine.run(tale.life(work, orderly=False))
    names = machine.run(rename)
    machine.media.pages(f"row/{segment_file(2)}").write(0, bytes(ends[0]))
    found = machine.run(opened)
    assert found.formers == names
    assert machine.run(opened).uuid == found.uuid


def test_the_index_of_a_file_that_was_lost_goes_with_the_end_that_it_speaks_of() -> None:
    """What came again lay elsewhere, and was told as lost once the files before that one were dropped."""
    machine, tale = Machine(16), Tale()
    ends: list[int] = []

    async def look(_tale: Tale, _journal: Journal) -> None:
        """Its start is whole, so that file stays."""

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for s in (1, 2):
            await tale.receive(journal, bundle(1, 3, s, s, 50))
            await journal.store.seal(s)
            await tale.order(journal, bundle(1, 3, s, s, 50))
        await journal.store.seal(3)
        ends.append(journal.store.segments()[-1].bytes)
        await tale.register(journal, Register(2, (9, 1)))
        await tale.sync(journal)
        await journal.store.index_sealed()

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(3))

    machine.run(tale.life(work, orderly=False))
    machine.run(tale.life(look, orderly=False))
    machine.run(lose)
    machine.media.pages(f"row/{segment_file(4)}").write(0, bytes(ends[0] + 8))
    found = machine.run(opened)
    assert (found.position, found.damaged) == (2, True)
    assert "row/00000003.pos" not in machine.media.paths()


def test_a_flipped_bit_in_the_file_that_a_new_name_has_begun_does_not_bring_the_old_one_back() -> (
    None
):
    """Nothing said that it was durable, so all of it was cut off, and with it that the end of the row was lost."""
    machine, tale = Machine(18), Tale(small(segment_bytes=1 << 16))

    async def copy(env: Env) -> None:
        await (await (await env.disk.folder("row")).open("restored", create=True)).sync()

    machine.run(tale.life(begin, orderly=False))
    machine.run(copy)
    renamed = machine.run(opened)
    assert renamed.uuid != tale.uuid

    machine.media.flip(f"row/{segment_file(2)}", 200)

    assert machine.run(opened).uuid != tale.uuid


def test_a_start_that_damage_hides_is_not_counted_once_more() -> None:
    """It looked torn where nothing was written behind it.  Neighbours who had heard of it took the next one, of the
    same number, for a store that was restored from a copy, and refused it.
    """
    machine, tale = Machine(20), Tale(small(segment_bytes=1 << 16))
    machine.run(tale.life(begin, orderly=True))
    path = f"row/{segment_file(1)}"
    end = len(machine.media.content(path))
    before = machine.run(opened)

    machine.media.flip(path, end + PREFIX_BYTES)

    after = machine.run(opened)
    assert after.start_count > before.start_count
    assert after.uuid != before.uuid


def test_the_index_of_a_file_that_was_lost_says_how_far_the_row_had_come_though_a_later_file_is_empty() -> (
    None
):
    """It counted as one between others, and the later one as torn: the row ended before both, and nobody was told."""
    machine, tale = Machine(21), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for number in (1, 2, 3):
            await tale.receive(journal, bundle(1, 3, number, number, 50))
            await tale.order(journal, bundle(1, 3, number, number, 50))
            await journal.store.seal(number)
        await tale.sync(journal)
        await journal.store.index_sealed()

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(3))

    machine.run(tale.life(work, orderly=False))
    machine.run(lose)
    machine.media.pages(f"row/{segment_file(4)}").truncate(0)
    machine.media.flip(f"row/{index_file(2)}", 20)  # the last one of a file that is there
    found = machine.run(opened)
    assert (found.position, found.damaged) == (3, True)
    assert found.uuid != tale.uuid
    assert "row/00000003.pos" not in machine.media.paths()


def test_what_came_with_an_image_says_that_the_row_went_on_behind_it() -> None:
    """Its name is durable later than what says where the row begins, which looked torn where its file was empty: the
    row before the image was back, with the old name, and with what lay in the image as if it had been received.
    """
    machine, tale = Machine(22), Tale()
    numbers: list[int] = []

    async def take(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        store, view = journal.store, tale.now.installed
        assert view is not None
        number = await store.images.reserve(3, 1, 1)
        incoming = Incoming(store.disk, store.chronicle.copy(), 3, 1, 1, number)
        await incoming.write_state(0, b"state")
        await incoming.write(1, [])
        files, taken = await incoming.finish()
        await journal.rebase(BaseForm(3, bytes(16), encode_view(view), files), taken)
        numbers.append(number)

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(index_file(numbers[0]))

    machine.run(tale.life(take, orderly=False))
    machine.run(lose)
    machine.media.pages(f"row/{segment_file(numbers[0] + 1)}").truncate(0)
    found = machine.run(opened)
    assert (found.position, found.damaged) == (1, True)
    assert found.uuid != tale.uuid


@pytest.mark.parametrize("marked", [True, False])
def test_a_file_that_was_begun_behind_an_empty_one_did_not_come_with_an_image(
    *, marked: bool
) -> None:
    """It looked so, and what its beginning says of promises was not taken over: each start took a new name.  Or
    torn, where the power had taken what marks its start as durable: it was cut off, and one more name was taken.
    """
    machine, tale = Machine(23), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for number in (1, 2):
            await journal.store.seal(number)
            await tale.register(journal, Register(2, (9, number)))
        await tale.sync(journal)

    machine.run(tale.life(work, orderly=True))
    for number in (2, 3):
        machine.media.pages(f"row/{segment_file(number)}").truncate(0)
    machine.media.flip(f"row/{index_file(2)}", 20)
    renamed = machine.run(opened)
    assert renamed.uuid != tale.uuid
    assert machine.media.content(f"row/{segment_file(2)}") == b""
    if not marked:
        pages = machine.media.pages(f"row/{segment_file(3)}")
        pages.truncate(pages.cache.size - PREFIX_BYTES)

    assert machine.run(opened).uuid == renamed.uuid


@pytest.mark.parametrize("at", [8, 200], ids=["prefix", "head"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut"])
def test_the_beginning_of_a_file_is_made_again_only_where_what_is_left_of_it_agrees(
    at: int, *, whole: bool
) -> None:
    """The file before had lost its end with a promise, and the promise before that one was taken for the last."""
    machine, tale = Machine(24), Tale(small(segment_bytes=1 << 16))
    ends: list[int] = []

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for ballot in (1, 2):
            ends.append(journal.store.segments()[-1].bytes)
            await tale.register(journal, Register(2, (9, ballot)))
        await journal.store.seal(1)
        await tale.sync(journal)

    machine.run(tale.life(work, orderly=False))
    if not whole:
        machine.media.pages(f"row/{segment_file(1)}").truncate(ends[1])
    machine.media.flip(f"row/{segment_file(2)}", at)
    found = machine.run(opened)
    assert (found.uuid == tale.uuid) == whole
    assert not whole or found.register == tale.now.register


def test_a_row_of_which_an_index_speaks_is_not_taken_for_one_that_never_began() -> None:
    """Its only file tells nothing any more; it was made anew, as blank, with the id of a machine that had voted."""
    machine, tale = Machine(19), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await journal.store.seal(1)
        await tale.register(journal, Register(2, (9, 1)))

    async def lose(env: Env) -> None:
        folder = await env.disk.folder("row")
        for name in (index_file(1), segment_file(2)):
            await folder.unlink(name)

    machine.run(tale.life(work, orderly=True))
    machine.run(lose)
    machine.media.pages(f"row/{segment_file(1)}").truncate(0)
    with pytest.raises(Corrupt, match="which store it belongs to"):
        machine.run(opened)
