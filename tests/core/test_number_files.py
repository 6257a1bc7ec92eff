"""One index file: its blocks, what a disk gives of it, and what is refused."""

from __future__ import annotations

import errno
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.indextruth import STORE, Truth, bytes_of, file_of, install, long_partition, note
from duckrow.node.errors import Corrupt
from duckrow.node.numberfile import (
    BLOCK_ROWS,
    ROW_BYTES,
    RUNS_AT_ONCE,
    NumberFile,
    Warm,
    key_of,
    moved,
)
from duckrow.node.numbers import Numbers
from duckrow.node.places import NOWHERE, offset_of, place


class OnDisk:
    """A file that is held, of a disk on which bytes change, or are not given any more."""

    def __init__(self, data: bytearray) -> None:
        self.data, self.is_bad = data, False

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        if self.is_bad:
            raise OSError(errno.EIO, "a bad sector")
        return bytes(self.data[offset : offset + length])


def test_however_many_rows_are_read_only_so_many_blocks_stay_in_memory() -> None:
    truth, _, files = long_partition(4 * BLOCK_ROWS * 3, files=3)
    rows, read = truth.rows[7, 1], Counter[OnDisk]()
    warm, numbers = Warm(blocks_max=5), Numbers(STORE)

    class Counting(OnDisk):
        def read(self, offset: int, length: int) -> bytes:
            read[self] += 1
            return super().read(offset, length)

    held = [Counting(bytearray(bytes_of(file))) for file in files]
    again = [NumberFile(each, warm=warm) for each in held]
    read.clear()
    numbers.load(again, len(truth.items) - 1)

    # Each file has five blocks; those of the last one are still warm.
    assert numbers.rows(7, 1, 1, len(rows)) == rows
    assert [read[each] for each in held] == [5, 5, 5]
    numbers.rows(7, 1, rows[-1].first, 300)
    assert [read[each] for each in held] == [5, 5, 5]
    assert numbers.rows(7, 1, rows[100].first, 300) == rows[100:400]
    assert read[held[0]] > 5


def test_a_place_that_is_not_known_is_known_nowhere_else() -> None:
    """It had become one of another segment, which nobody took for what it was."""
    truth, numbers = Truth(segment=4), Numbers(STORE)
    waits, known = truth.item(), truth.item()
    truth.segment = 5
    lost = truth.appended(7, 1, 3, body=waits.position)
    lost.places[waits.position] = NOWHERE
    for each in (waits, known, lost, truth.appended(7, 1, 3, body=known.position)):
        note(numbers, each)
    own = truth.appended(7, 1, 3)
    note(numbers, own)
    truth.segment = 6
    note(numbers, truth.item())
    *_, file = install(numbers)
    elsewhere = NumberFile(b"".join(moved(file, 2, STORE, 0)))

    places = [row.place for row in elsewhere.decode(0, 3)]
    assert places == [
        NOWHERE | 9,
        place(6, offset_of(known.place), 9),
        place(7, offset_of(own.place)),
    ]
    assert [stray.segment for stray in elsewhere.strays] == [0, 6]


def test_a_page_that_the_disk_gives_differently_the_second_time_is_not_believed() -> None:
    _, _, (file,) = long_partition(BLOCK_ROWS)
    data = bytearray(bytes_of(file))
    on_disk = OnDisk(data)
    mapped = NumberFile(on_disk, warm=Warm())
    row = mapped.decode(10, 11)
    data[10 * 32 + 29] ^= 128  # of the position: the item could not be found by it

    assert mapped.decode(10, 11) == row
    mapped.cool()
    for look in (
        lambda: mapped.field(10, 0),
        lambda: mapped.decode(9, 12),
        lambda: mapped.lower_bound(0, BLOCK_ROWS, 0, 5),
        lambda: mapped.run(mapped.find(key_of(7, 1)) or 0),
    ):
        with pytest.raises(Corrupt, match="are damaged"):
            look()


def test_rows_that_the_disk_does_not_give_are_damaged_and_those_before_them_are_found() -> None:
    truth, _, (file,) = long_partition(6 * BLOCK_ROWS)
    on_disk = OnDisk(bytearray(bytes_of(file)))
    numbers = Numbers(STORE)
    numbers.load([NumberFile(on_disk, warm=Warm())], len(truth.items))
    rows = truth.rows[7, 1]
    assert numbers.rows(7, 1, rows[5].first, 2) == rows[5:7]
    on_disk.is_bad = True

    assert numbers.rows(7, 1, rows[8].first, 2) == rows[8:10]
    assert numbers.rows(7, 1, rows[-1].first, 2) == []
    with pytest.raises(Corrupt, match="a bad sector"):
        bytes_of(numbers.file(file.cover.segment) or file)


@pytest.mark.parametrize("block", [0, 1, 2])
def test_of_a_damaged_block_alone_the_rows_are_lost(block: int) -> None:
    truth, intact, (file,) = long_partition(6_000)
    data = bytearray(bytes_of(file))
    data[block * BLOCK_ROWS * 32 + 7 * 32 + 9] ^= 4
    numbers = Numbers(STORE)
    numbers.load([NumberFile(bytes(data))], len(truth.items))

    for key in truth.rows:
        rows = truth.rows[key]
        start, _stop = file.span(
            next(i for i, k in enumerate(file.keys) if k == key[0] << 10 | key[1])
        )
        damaged = [r for i, r in enumerate(rows) if (start + i) // BLOCK_ROWS == block]
        whole = [row for row in rows if row not in damaged]
        assert damaged or key != (7, 1)
        for row in (*damaged[:3], *damaged[-3:]):
            assert numbers.rows(*key, row.last, 5) == []
            beyond = [each.first - 1 for each in whole if each.first > row.last]
            assert numbers.hole(*key, row.last) == (beyond[0] if beyond else None)
        for at, row in list(enumerate(rows))[:: max(1, len(rows) // 50)]:
            if row in whole:
                follow = rows[at : at + 5]
                cut = next((i for i, each in enumerate(follow) if each in damaged), 5)
                assert numbers.rows(*key, row.first, 5) == follow[:cut]
                found = numbers.at_position(*key, row.position)
                assert found == row
    assert intact.rows(7, 1, 1, 9_999) == truth.rows[7, 1]


@settings(max_examples=300)
@given(st.data())
def test_no_flipped_bit_goes_unnoticed(data: st.DataObject) -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for at in range(40):
        note(numbers, truth.appended(7 + at % 3, at % 2, 1 + at))
    waited = truth.item().position
    note(numbers, truth.items[-1])
    truth.segment = 1
    note(numbers, truth.appended(7, 0, 5, body=waited))
    truth.segment = 2
    note(numbers, truth.item())
    which = data.draw(st.integers(0, 1))
    raw = bytearray(bytes_of(install(numbers)[which]))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(Corrupt):  # at the latest when the rows are touched
        file = NumberFile(bytes(raw))
        file.decode(0, file.rows)


@pytest.mark.parametrize("length", [0, 1, 87, 88, 89, 200])
def test_what_is_no_index_file_is_refused(length: int) -> None:
    with pytest.raises(Corrupt):
        NumberFile(b"\xa5" * length)


def test_a_file_that_was_cut_anywhere_is_refused() -> None:
    _, _numbers, (file,) = long_partition(30)
    raw = bytes_of(file)
    for length in range(len(raw)):
        with pytest.raises(Corrupt):
            NumberFile(raw[:length])


def test_no_piece_of_a_file_is_the_work_of_all_partitions() -> None:
    """Whoever writes it gives others a turn after each: a node may have a hundred thousand topics."""
    truth, numbers = Truth(), Numbers(STORE)
    for topic in range(3 * RUNS_AT_ONCE, 0, -1):
        note(numbers, truth.appended(topic, 0, 2))
    truth.segment = 1
    note(numbers, truth.item())

    *pieces, _directory = numbers.pieces()

    rows = [len(piece) // ROW_BYTES for piece in pieces]
    assert (max(rows), sum(rows)) == (RUNS_AT_ONCE, 3 * RUNS_AT_ONCE)
    file = file_of(numbers)
    assert list(file.keys) == [key_of(topic, 0) for topic in range(1, 3 * RUNS_AT_ONCE + 1)]
    assert file.is_whole()
