"""The scrub of the index of numbers: what is hit is mended where that is proven, and told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio

from duckrow.node.alone import LoneKeeper
from duckrow.node.checksum import crc32c
from duckrow.node.damage import Damage
from duckrow.node.env import Env
from duckrow.node.errors import DiskFailed
from duckrow.node.numberfolder import NumberFolder
from duckrow.node.numbers import Numbers
from duckrow.node.scrub import at_once
from duckrow.node.snapshots import Snapshots
from sim.alone import Machine
from sim.nodekit import run, values
from sim.park import SimCrashed

from .test_numberfolder import STORE, filled, rows, write_all
from .test_proof import fill, in_folder

PATH = "numbers/00000001.numbers"
Hit = Callable[[], None]


def nothing() -> None:
    pass


class Index:
    """Three files, written; `scrub` is a life of its own, in which nothing was read before."""

    def __init__(self) -> None:
        self.machine, self.library = Machine(), filled()
        self.machine.run(lambda env: write_all(env, self.library))
        self.whole = self.machine.media.content(PATH)
        self.rows = rows(self.library.numbers, self.library)

    def hit(self, offset: int, content: bytes) -> None:
        self.machine.media.pages(PATH).write(offset, content)

    def scrub(self, *, warm: bool = False, hit: Hit = nothing) -> list[Damage]:
        """`hit` happens while the files are in use; `warm`: and all rows were read before."""

        async def main(env: Env) -> list[Damage]:
            folder = NumberFolder(await env.disk.folder("numbers"))
            numbers = Numbers(STORE)
            numbers.load(await folder.load(STORE, 1 << 40), self.library.state.position)
            if warm:
                rows(numbers, self.library)
            hit()
            damages = await folder.scrub(numbers, at_once)
            if all(damage.mended for damage in damages):
                assert self.read(numbers)
            return damages

        return self.machine.run(main)

    def read(self, numbers: Numbers) -> bool:
        """Everything that the files have is there; the last batch is in none."""
        return [found[:30] for found in rows(numbers, self.library)] == [r[:30] for r in self.rows]


def test_of_what_is_whole_nothing_is_told() -> None:
    index = Index()
    operations = index.machine.media.operations
    assert index.scrub() == []
    assert index.machine.media.operations == operations


def test_a_flipped_bit_anywhere_in_the_rows_is_mended_on_the_disk() -> None:
    end = 20 * 32
    for offset in range(0, end, 13):
        index = Index()
        index.machine.media.flip(PATH, offset)

        (damage,) = index.scrub()

        assert (damage.file, damage.mended) == ("00000001.numbers", True)
        assert "rows 0 and following of the index" in damage.what
        assert index.machine.media.content(PATH) == index.whole
        assert index.scrub() == []


def test_the_directory_is_put_back_whatever_hit_it() -> None:
    end = 20 * 32
    for offset in range(end, len(Index().whole), 7):
        index = Index()
        (damage,) = index.scrub(hit=partial(index.hit, offset, b"\x55"))
        assert "directory" in damage.what
        assert damage.mended
        assert index.machine.media.content(PATH) == index.whole


def test_rows_that_were_used_lately_are_put_back_whatever_hit_them() -> None:
    index = Index()
    (damage,) = index.scrub(warm=True, hit=lambda: index.hit(32, bytes(320)))
    assert damage.mended
    assert index.machine.media.content(PATH) == index.whole


@pytest.mark.parametrize("content", [bytes(64), b"\xff" * 33])
def test_rows_of_which_nobody_knows_more_than_their_checksum_are_told(content: bytes) -> None:
    index = Index()
    index.hit(96, content)
    hit = index.machine.media.content(PATH)

    for _ in range(2):
        (damage,) = index.scrub()
        assert not damage.mended
        assert index.machine.media.content(PATH) == hit


def test_a_sector_that_cannot_be_read_is_told_or_put_back() -> None:
    index = Index()
    index.machine.media.spoil(PATH, 0)
    (told,) = index.scrub()
    assert not told.mended

    index = Index()
    (put_back,) = index.scrub(warm=True, hit=lambda: index.machine.media.spoil(PATH, 0))
    assert put_back.mended
    assert index.scrub() == []


def codeword(byte: int) -> bytes:
    """Changes that no crc32c sees: a byte, and what it does to the checksum."""
    return bytes([byte]) + (crc32c(bytes([byte])) ^ crc32c(b"\0")).to_bytes(4, "little")


@pytest.mark.parametrize(
    "offset",
    [32, 33, 32 + 18, 32 + 27, 32 + 28, 19 * 32, 10 * 32, 19 * 32 + 20, 19 * 32 + 27],
)
def test_a_bit_that_makes_the_checksum_right_and_the_rows_nonsense_is_not_flipped(
    offset: int,
) -> None:
    """Garbage that differs from the rows in a way that the checksum does not see, but for one bit."""
    index = Index()
    wrong = bytearray(index.whole)
    for at, change in enumerate(codeword(0x81), offset):
        wrong[at] ^= change
    wrong[200] ^= 16
    index.hit(0, bytes(wrong))

    (damage,) = index.scrub()

    assert not damage.mended
    assert index.machine.media.content(PATH) == bytes(wrong)


def test_a_file_that_is_gone_is_told() -> None:
    index = Index()

    async def main(env: Env) -> list[Damage]:
        folder = NumberFolder(await env.disk.folder("numbers"))
        numbers = Numbers(STORE)
        numbers.load(await folder.load(STORE, 1 << 40), index.library.state.position)
        await (await env.disk.folder("numbers")).unlink("00000001.numbers")
        return await folder.scrub(numbers, at_once)

    (damage,) = index.machine.run(main)
    assert (damage.file, damage.what, damage.mended) == (
        "00000001.numbers",
        "the whole file",
        False,
    )


@pytest.mark.parametrize("fault", ["write_eio", "sync_eio"])
def test_where_what_is_mended_cannot_be_written_the_process_ends(fault: str) -> None:
    index = Index()
    index.machine.media.flip(PATH, 5)
    setattr(index.machine.media, fault, 1)
    with pytest.raises(DiskFailed, match=r"mending 00000001\.numbers"):
        index.scrub()


def test_a_round_of_a_node_mends_its_index_and_writes_another_snapshot_for_a_damaged_one() -> None:
    machine = Machine(1)
    run(machine, fill)
    index = "numbers/" + in_folder(machine, "numbers")[1]
    before = machine.media.content(index)

    async def work(node: LoneKeeper) -> tuple[int, int]:
        snapshots = in_folder(machine, "state")
        machine.media.flip(index, 70)
        machine.media.flip(f"state/{snapshots[0]}")
        report = await node.row.scrubs.round()
        assert sorted(damage.file for damage in report.damages) == [index[8:], snapshots[0]]
        assert all(damage.mended for damage in report.damages)
        assert machine.media.content(index) == before
        await trio.sleep(10)
        again = await node.row.scrubs.round()
        assert again.damages == ()
        assert len(in_folder(machine, "state")) == 2
        assert snapshots[0] not in in_folder(machine, "state")
        return report.bytes, again.bytes

    read, _ = run(machine, work)
    assert read > sum(
        len(machine.media.content(p)) for p in machine.media.paths() if "numbers/" in p
    )
    assert len(run(machine, lambda node: values(node, "t"))) == 100


def test_of_a_snapshot_every_byte_is_read_and_its_length_too() -> None:
    machine = Machine(1)
    run(machine, fill)
    name = in_folder(machine, "state")[-1]
    path, position = f"state/{name}", int(name.removeprefix("snapshot-"))
    whole = machine.media.content(path)

    async def main(env: Env) -> None:
        snapshots, pages = Snapshots(await env.disk.folder("state")), machine.media.pages(path)
        for offset in range(0, len(whole), 41):
            changed = bytes([whole[offset] ^ 0x11])
            for content in (whole[:offset], whole[:offset] + changed + whole[offset + 1 :]):
                snapshots.whole = [position]
                pages.truncate(len(content))
                pages.write(0, content)
                (damage,) = await snapshots.scrub(at_once)
                assert (damage.file, snapshots.whole) == (name, [])
        pages.write(0, whole)
        snapshots.whole = [position]
        assert await snapshots.scrub(at_once) == []
        assert snapshots.whole == [position]

    machine.run(main)


def test_a_snapshot_that_is_forgotten_while_it_is_read_is_no_damage() -> None:
    machine = Machine(1)
    run(machine, fill)
    positions = [int(name.removeprefix("snapshot-")) for name in in_folder(machine, "state")]

    async def main(env: Env) -> None:
        snapshots = Snapshots(await env.disk.folder("state"))
        snapshots.whole = list(positions)

        async def forget(_read: int) -> None:
            for position in list(snapshots.whole):
                await snapshots.forget(position)

        assert await snapshots.scrub(forget) == []

    machine.run(main)


@pytest.mark.parametrize("power", [False, True])
def test_killed_anywhere_while_it_mends_a_scrub_leaves_what_the_next_one_mends(power: bool) -> None:
    crashes = 0
    for step in range(1, 20):
        index = Index()
        index.machine.media.flip(PATH, 70)
        index.machine.media.flip("numbers/00000002.numbers", 100)
        index.machine.media.crash_before(step, part=bool(step % 2))
        try:
            index.scrub()
        except SimCrashed:
            crashes += 1
        else:
            break
        if power:
            index.machine.media.power_loss()
        assert all(damage.mended for damage in index.scrub())
        assert index.machine.media.content(PATH) == index.whole
        assert index.scrub() == []
    assert crashes == 4  # a write and a sync of each file
