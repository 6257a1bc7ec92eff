"""The simulated disk: what survives a loss of power."""

from __future__ import annotations

import random

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.node.env import Env
from sim.alone import Machine
from sim.disk import Media
from sim.diskkit import after_power_loss, write_synced
from sim.pages import SECTOR, Pages

# -- power loss ---------------------------------------------------------------------------


def test_what_was_synced_survives_a_power_loss_and_what_was_not_may_go_in_any_way() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"A" * 1000)
        file.write(1000, [b"B" * 4000])

    tails = []
    for seed in range(60):
        content = after_power_loss(seed, main).content("log")
        assert content[:1000] == b"A" * 1000
        tails.append(content[1000:])

    assert b"" in tails
    assert b"B" * 4000 in tails
    assert any(0 < tail.count(b"B") < 4000 and tail.count(0) for tail in tails)


def test_later_writes_may_survive_earlier_ones() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", bytes(8 * SECTOR))
        for sector in range(8):
            file.write(sector * SECTOR, [bytes([sector + 1]) * SECTOR])

    seen = [after_power_loss(seed, main).content("log")[::SECTOR] for seed in range(60)]

    assert any(sectors[7] == 8 and not all(sectors[:7]) for sectors in seen)


def test_any_of_several_writes_may_be_lost() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", bytes(8 * SECTOR))
        for sector in range(8):
            file.write(sector * SECTOR, [b"x" * SECTOR])

    seen = {after_power_loss(seed, main).content("log")[::SECTOR] for seed in range(200)}

    assert any(sectors.count(0) == 1 for sectors in seen)
    # Two kept ones with a lost one on either side: no prefix, and not one alone.
    scattered = {sectors for sectors in seen if sectors.strip(b"\0").count(0) > 1}
    assert len(scattered) > 10


def test_a_buffer_that_is_changed_after_the_write_changes_nothing_on_the_disk() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"")
        buffer = bytearray(b"abc")
        file.write(0, [buffer])
        buffer[:] = b"xyz"

    assert {after_power_loss(seed, main).content("log") for seed in range(30)} <= {
        b"",
        b"abc",
        b"\0\0\0",
    }


def test_a_sector_is_never_torn() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a" * SECTOR * 4)
        file.write(0, [b"b" * SECTOR * 4])
        file.write(0, [b"c" * SECTOR * 4])

    for seed in range(60):
        content = after_power_loss(seed, main).content("log")
        sectors = [content[at : at + SECTOR] for at in range(0, len(content), SECTOR)]
        assert all(sector in (b"a" * SECTOR, b"b" * SECTOR, b"c" * SECTOR) for sector in sectors)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000), st.integers(1, 2000)),
        st.tuples(st.just("truncate"), st.integers(0, 4000), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
        st.tuples(st.just("fail"), st.just(0), st.just(0)),
        st.tuples(st.just("evict"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(CHANGES, st.integers(0, 1 << 32))
def test_each_byte_is_as_some_moment_since_its_last_sync_left_it(
    changes: list[tuple[str, int, int]], seed: int
) -> None:
    rng, pages = random.Random(seed), Pages()
    ever: dict[int, set[int]] = {}  # by offset: what a power loss may show there
    sizes = {0}

    def saw() -> None:
        content = pages.cache.read(0, pages.cache.size).ljust(5000, b"\0")
        for offset in range(0, 5000, 97):
            ever.setdefault(offset, {0}).add(content[offset])
        sizes.add(pages.cache.size)

    failed = False
    for fresh, (kind, where, length) in enumerate(changes, 1):
        if kind == "write":
            pages.write(where, bytes([fresh]) * length)
        elif kind == "truncate":
            pages.truncate(where)
        elif kind == "sync":
            pages.sync(pages.count)
            if not failed:  # exactly this is what lies on the disk now
                ever.clear()
                sizes.clear()
                content = pages.cache.read(0, pages.cache.size).ljust(5000, b"\0")
                ever.update({offset: {content[offset]} for offset in range(0, 5000, 97)})
        elif kind == "fail":
            pages.fail_sync(pages.count, rng)
            failed = True
        else:
            before = pages.cache.read(0, pages.cache.size)
            pages.evict()
            assert failed or pages.cache.read(0, pages.cache.size) == before
        saw()

    pages.lose_power(rng)
    content = pages.cache.read(0, pages.cache.size).ljust(5000, b"\0")

    assert pages.cache.size in sizes
    for offset, values in ever.items():
        assert content[offset] in values or (offset >= pages.cache.size and not content[offset])
    assert not pages.changes
    assert pages.durable is None


def test_a_size_may_reach_the_disk_before_the_bytes_and_shows_zeros() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a" * SECTOR)
        file.write(SECTOR, [b"b" * SECTOR])

    contents = [after_power_loss(seed, main).content("log") for seed in range(60)]

    assert b"a" * SECTOR + bytes(SECTOR) in contents


# -- names --------------------------------------------------------------------------------


def test_of_names_that_were_not_synced_a_prefix_of_the_changes_survives() -> None:
    async def main(env: Env) -> None:
        await write_synced(env, "old", b"1")
        await env.disk.rename("old", "new")
        await env.disk.open("next", create=True)
        await env.disk.unlink("new")

    seen = {tuple(after_power_loss(seed, main).paths()) for seed in range(40)}

    assert seen == {("old",), ("new",), ("new", "next"), ("next",)}


def test_a_rename_over_a_file_is_the_old_or_the_new_one_and_never_none() -> None:
    async def main(env: Env) -> None:
        await write_synced(env, "snapshot", b"old")
        file = await env.disk.open("aside", create=True)
        file.write(0, [b"new"])
        await file.sync()
        await env.disk.rename("aside", "snapshot")

    seen = {after_power_loss(seed, main).content("snapshot") for seed in range(30)}

    assert seen == {b"old", b"new"}


def test_a_folder_whose_name_was_not_synced_may_be_lost_with_all_that_is_in_it() -> None:
    async def main(env: Env) -> None:
        folder = await env.disk.folder("row")
        file = await folder.open("log", create=True)
        file.write(0, [b"x"])
        await file.sync()
        await folder.sync_names()

    seen = {tuple(after_power_loss(seed, main).paths()) for seed in range(30)}

    assert seen == {(), ("row/log",)}


def test_a_sync_of_names_covers_what_was_there_when_it_began() -> None:
    machine = Machine()
    machine.media.sync_latency = 1.0

    async def main(env: Env) -> None:
        await env.disk.open("before", create=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(env.disk.sync_names)
            await trio.sleep(0.5)
            await env.disk.open("during", create=True)
        machine.media.rng.seed(0)

    machine.run(main)

    assert machine.media.paths(durable=True) == ["before"]


# -- syncs --------------------------------------------------------------------------------


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    machine = Machine()
    machine.media.sync_latency = 1.0

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a")
        file.write(1, [b"b"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.sync)
            await trio.sleep(0.5)
            file.write(2, [b"c"])
        assert trio.current_time() == 3.0

    machine.run(main)

    assert machine.media.durable_content("log") == b"ab"


def test_the_boot_id_changes_with_the_power_and_not_with_the_process() -> None:
    machine = Machine()

    async def main(env: Env) -> str:
        return env.boot_id

    first, second = machine.run(main), machine.run(main)
    machine.media.power_loss()

    assert first == second != machine.run(main)


def test_appending_64_mib_in_small_writes_costs_no_copies_of_the_file() -> None:
    media = Media()
    pages = Pages()
    chunk = b"x" * 65536
    for index in range(1024):
        pages.write(index * len(chunk), chunk)
        if index % 64 == 63:
            pages.sync(pages.count)

    assert pages.cache.size == 64 << 20
    assert pages.changes == []
    assert media.used == 0
