"""The index, held against a naive list: whatever was appended, pruned, sealed, lost and replayed."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.node.effects import Appended, Deleted, Pruned
from duckrow.node.errors import Corrupt
from duckrow.node.numberfile import (
    BLOCK_ROWS,
    ROW_BYTES,
    RUNS_AT_ONCE,
    NumberFile,
    Row,
    Warm,
    key_of,
)
from duckrow.node.numbergrowing import restored
from duckrow.node.numberlife import BATCH_BYTES, PLACES_AT_ONCE
from duckrow.node.numbers import INSTALLED_AT_ONCE, Numbers, older
from duckrow.node.places import place, segment_of

STORE = b"one store's uuid"
Effect = Appended | Pruned | Deleted


@attrs.define
class Recorded:
    """An item as the keeper would note it."""

    position: int
    place: int
    effects: list[Effect]
    places: dict[int, int]


@attrs.define
class Truth:
    """What happened, in lists."""

    items: list[Recorded] = attrs.field(factory=list)
    rows: dict[tuple[int, int], list[Row]] = attrs.field(factory=dict)
    sizes: dict[int, int] = attrs.field(factory=dict)  # by place of the body
    firsts: dict[tuple[int, int], int] = attrs.field(factory=dict)
    segment: int = 0
    offset: int = 0
    time: int = 1_000
    waiting: list[int] = attrs.field(factory=list)  # positions whose command 9 has no number yet

    def item(
        self, effects: Sequence[Effect] = (), places: dict[int, int] | None = None
    ) -> Recorded:
        self.offset += 8
        it = Recorded(
            len(self.items) + 1, place(self.segment, self.offset), list(effects), places or {}
        )
        self.items.append(it)
        return it

    def appended(
        self, topic_id: int, partition: int, count: int, *, body: int | None = None, size: int = 100
    ) -> Recorded:
        """An item with one batch, whose body lies in it, or in the item at position `body`."""
        it = self.item()
        rows = self.rows.setdefault((topic_id, partition), [])
        first = rows[-1].last + 1 if rows else 1
        record = it if body is None else self.items[body - 1]
        index = len(it.effects) if body is None else 9
        row = Row(first, record.place | index, self.time, it.position, count)
        rows.append(row)
        self.sizes[row.place] = size
        it.effects.append(
            Appended(
                topic_id, "t", partition, first, count, self.time, size, record.position, index
            )
        )
        it.places = {} if body is None else {body: record.place}
        return it

    def pruned(self, topic_id: int, partition: int, first: int) -> Recorded:
        self.firsts[topic_id, partition] = first
        return self.item([Pruned(topic_id, "t", partition, first)])

    def deleted(self, topic_id: int) -> Recorded:
        for key in [key for key in self.rows if key[0] == topic_id]:
            del self.rows[key]
            self.firsts.pop(key, None)
        return self.item([Deleted(topic_id, "t")])

    def live(self, key: tuple[int, int]) -> list[Row]:
        first = self.firsts.get(key, 1)
        return [row for row in self.rows[key] if row.last >= first]

    def first_of(self, topic_id: int, partition: int) -> int | None:
        if not any(key[0] == topic_id for key in self.rows):
            return None
        return self.firsts.get((topic_id, partition), 1)


def note(numbers: Numbers, it: Recorded) -> None:
    assert older(it.position, it.effects) == list(it.places)
    numbers.note(it.position, it.place, it.effects, it.places)


def file_of(numbers: Numbers) -> NumberFile:
    return NumberFile(b"".join(numbers.pieces()))


def install(numbers: Numbers) -> list[NumberFile]:
    files = []
    while numbers.waiting() is not None:
        files.append(file_of(numbers))
        for _ in numbers.install(files[-1]):
            pass
    return files


def check(numbers: Numbers, truth: Truth) -> None:
    """Every lookup, at every place where the answer changes and beside it."""
    for (topic_id, partition), all_rows in truth.rows.items():
        rows = truth.live((topic_id, partition))
        first, end = truth.firsts.get((topic_id, partition), 1), all_rows[-1].last
        for number in {first, *(r.first for r in rows), *(r.last for r in rows)}:
            if first <= number <= end:
                expected = [row for row in rows if row.last >= number]
                assert numbers.rows(topic_id, partition, number, 1000) == expected
                assert numbers.rows(topic_id, partition, number, 2) == expected[:2]
        assert numbers.rows(topic_id, partition, end + 1, 10) == []
        for row in rows:
            for at in (row.time, row.time + 1):
                # What was pruned may still be found; who asks knows what is pruned.
                found = numbers.at_time(topic_id, partition, at)
                assert _living(found, first) == next((r for r in rows if r.time >= at), None) or (
                    found is not None and found.last < first
                )
            found = numbers.at_position(topic_id, partition, row.position)
            assert found == next(r for r in all_rows if r.position >= row.position)
            found = numbers.at_position(topic_id, partition, row.position + 1)
            assert found == next((r for r in all_rows if r.position > row.position), None)


def _living(row: Row | None, first: int) -> Row | None:
    return row if row is not None and row.last >= first else None


def check_usage(numbers: Numbers, truth: Truth) -> None:
    """Exact for whole batches; the oldest pair of a partition is a guess, of one segment's bytes."""
    places = [row.place for row in all_rows(truth)]
    for segment in range(numbers.in_memory):
        alive = sorted(p for p in places if segment_of(p) == segment)
        numbered = [
            row
            for row in all_rows(truth)
            if segment_of(truth.items[row.position - 1].place) == segment
        ]
        assert bool(numbers.usage.holders(segment)) == bool(alive or numbered)
        assert sorted(p for some in numbers.live_places(segment) for p in some) == alive
        assert numbers.usage.live(segment) >= 0
    if not truth.firsts:
        newest = list(accumulate((segment_of(item.place) for item in truth.items), max))
        rows = Counter(newest[row.position - 1] for row in all_rows(truth))
        for segment in range(numbers.in_memory):
            size = sum(truth.sizes[p] for p in places if segment_of(p) == segment)
            assert numbers.usage.live(segment) == size + BATCH_BYTES * rows[segment]


def all_rows(truth: Truth) -> list[Row]:
    return [row for key in truth.rows for row in truth.live(key)]


class Life:
    """An index and the truth, through whatever a generator of random numbers decides."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.truth, self.numbers = Truth(), Numbers(STORE)
        self.topics = [7, 8, 1 << 50]
        self.files: dict[int, NumberFile] = {}  # in the folder
        self.snapshots: list[tuple[int, list[tuple[str, bytes]]]] = [(0, [])]  # two, oldest first
        self.dropped: dict[int, None] = {}
        kinds = (self.append, self.wait, self.stray, self.prune, self.delete, self.segment)
        more = (self.time, self.install, self.drop, self.snapshot, self.restart)
        # Some kinds of steps are rare or missing in some lives: what is always there hides things.
        self.kinds = [*kinds, *more]
        self.weights = [self.rng.choice((0, 1, 3)) for _ in self.kinds]
        self.weights[0] = 10

    def live(self, steps: int) -> None:
        for kind in self.rng.choices(self.kinds, self.weights, k=steps):
            kind()
            if not self.rng.randrange(20):
                check(self.numbers, self.truth)
                check_usage(self.numbers, self.truth)
        check(self.numbers, self.truth)
        check_usage(self.numbers, self.truth)

    def note(self, it: Recorded) -> None:
        note(self.numbers, it)

    def partition(self) -> tuple[int, int]:
        return self.rng.choice(self.topics), self.rng.randrange(3)

    def append(self) -> None:
        key, size = self.partition(), self.rng.randrange(1, 1_000)
        self.note(self.truth.appended(*key, self.rng.randrange(1, 6), size=size))

    def wait(self) -> None:
        self.truth.waiting.append(self.truth.item().position)
        self.note(self.truth.items[-1])

    def stray(self) -> None:
        key = self.partition()
        for _ in range(min(len(self.truth.waiting), self.rng.randrange(1, 5))):
            body = self.truth.waiting.pop(self.rng.randrange(len(self.truth.waiting)))
            self.note(self.truth.appended(*key, self.rng.randrange(1, 6), body=body))

    def prune(self) -> None:
        key = self.partition()
        if key in self.truth.rows:
            first = self.truth.firsts.get(key, 1)
            end = self.truth.rows[key][-1].last + 1
            target = self.rng.choice((end, self.rng.randint(first, end)))
            if target > first:
                self.note(self.truth.pruned(*key, target))

    def delete(self) -> None:
        if not self.rng.randrange(5):
            which = self.rng.randrange(3)
            self.note(self.truth.deleted(self.topics[which]))
            self.topics[which] += 3  # no two topics ever have the same id

    def segment(self) -> None:
        self.truth.segment, self.truth.offset = self.truth.segment + self.rng.randint(1, 3), 0

    def time(self) -> None:
        self.truth.time += self.rng.randrange(50)

    def install(self) -> None:
        self.files.update((file.cover.segment, file) for file in install(self.numbers))

    def drop(self) -> None:
        """What is dead, not waited for, and below the older snapshot."""
        waiting = [segment_of(self.truth.items[p - 1].place) for p in self.truth.waiting]
        for segment, file in list(self.files.items()):
            if (
                not self.numbers.usage.holders(segment)
                and segment not in waiting
                and segment in self.numbers.installed
                and file.cover.upto <= self.snapshots[0][0]
            ):
                self.numbers.drop(segment)
                del self.files[segment]
                self.dropped[segment] = None

    def snapshot(self) -> None:
        self.snapshots.append((self.numbers.covered, list(self.numbers.capture())))
        del self.snapshots[:-2]

    def restart(self) -> None:
        """From either snapshot; files that it does not need may be missing: a replay makes them."""
        if not self.rng.randrange(3):
            del self.snapshots[1:]  # the newer one is damaged
        position, chunks = self.snapshots[-1]
        later = [file for file in self.files.values() if file.cover.after >= position]
        for file in later[self.rng.randint(0, len(later)) :]:
            if self.rng.randrange(2):
                del self.files[file.cover.segment]
        numbers = self.numbers = Numbers(STORE)
        holes = numbers.load([*self.files.values(), *restored(chunks)], position)
        for after, upto in holes:
            for it in self.truth.items[after:upto]:
                assert segment_of(it.place) in self.dropped
        for it in self.truth.items[position:]:
            self.note(it)
        numbers.settle(self.truth.first_of)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 40))
def test_the_index_answers_as_a_list_would(seed: int) -> None:
    """Through seals, files, pruned and deleted topics, strays, and restarts from older snapshots."""
    Life(seed).live(250)


def long_partition(
    rows: int, *, files: int = 1, count: int = 3
) -> tuple[Truth, Numbers, list[NumberFile]]:
    """One partition, spread over several files, with a neighbour on each side of it."""
    truth, numbers = Truth(), Numbers(STORE)
    for file in range(files):
        truth.segment, truth.offset = file, 0
        for at in range(rows // files):
            if at % 500 == 0:
                note(numbers, truth.appended(5, 0, 1))
                note(numbers, truth.appended(9, 0, 1))
            truth.time += at % 2
            note(numbers, truth.appended(7, 1, count))
    truth.segment, truth.offset = files, 0
    note(numbers, truth.item())
    return truth, numbers, install(numbers)


def test_rows_are_found_across_blocks_and_files() -> None:
    truth, numbers, files = long_partition(9_000, files=3)
    rows = truth.rows[7, 1]

    assert [len(file.keys) for file in files] == [3, 3, 3]
    assert numbers.rows(7, 1, 1, 10_000) == rows
    for at in (0, 1, 2_046, 2_999, 3_000, 5_047, 8_999):
        assert numbers.rows(7, 1, rows[at].last, 3) == rows[at : at + 3]
        same_time = next(row for row in rows if row.time == rows[at].time)
        assert numbers.at_time(7, 1, rows[at].time) == same_time
        assert numbers.at_position(7, 1, rows[at].position) == rows[at]
    assert numbers.at_time(7, 1, truth.time + 1) is None
    assert numbers.at_position(7, 1, len(truth.items) + 1) is None
    assert numbers.rows(7, 0, 1, 10) == numbers.rows(6, 1, 1, 10) == []


def bytes_of(file: NumberFile) -> bytes:
    """The whole file."""
    return b"".join(file.raw())


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
    assert len(bytes_of(numbers.file(file.cover.segment) or file)) == on_disk.size


def test_a_topic_that_nobody_knows_has_no_rows() -> None:
    numbers = Numbers(STORE)

    assert numbers.rows(1, 0, 1, 10) == []
    assert numbers.hole(1, 0, 1) is None
    assert numbers.at_time(1, 0, 0) is None
    numbers.forget(1)


def test_an_installed_segment_takes_no_memory_but_a_lead_for_each_partition() -> None:
    _, numbers, _ = long_partition(9_000, files=3)

    assert numbers.waiting() is None
    assert (
        sum(len(tail.rows) for growing in numbers._growing for tail in growing.tails.values()) == 0
    )
    assert {key: len(leads) for key, leads in numbers._life.leads.items()} == {
        5 << 10: 6,
        7 << 10 | 1: 6,
        9 << 10: 6,
    }


def test_between_the_steps_of_an_install_everything_can_be_found_noted_and_deleted() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for topic in range(1, 2_001):
        note(numbers, truth.appended(topic, 0, 2))
    truth.segment = 1
    note(numbers, truth.item())
    file = file_of(numbers)
    note(numbers, truth.deleted(3))  # while the file was being written
    steps = 0
    for _ in numbers.install(file):
        steps += 1
        note(numbers, truth.appended(2_000, 0, 1))
        note(numbers, truth.deleted(steps * 10))
        note(numbers, truth.deleted(2_000 - steps * 10))
        note(numbers, truth.pruned(300 + steps, 0, 3))
        note(numbers, truth.pruned(1_700 - steps, 0, 2))
        check(numbers, truth)
    check(numbers, truth)

    assert steps == 2_000 // INSTALLED_AT_ONCE > 10
    assert numbers.usage.holders(0) == 2_000 - 1 - 2 * steps - steps


def test_a_hole_is_told_with_its_end() -> None:
    truth, _, files = long_partition(3_000, files=3)
    numbers = Numbers(STORE)
    rows = truth.rows[7, 1]

    lost = numbers.load([files[0], files[2]], len(truth.items))

    assert lost == [
        (files[1].cover.after, files[1].cover.upto),
        (len(truth.items) - 1, len(truth.items)),
    ]
    assert numbers.rows(7, 1, rows[998].first, 10) == rows[998:1_000]
    assert numbers.rows(7, 1, rows[1_000].first, 10) == []
    assert (
        numbers.hole(7, 1, rows[1_000].first)
        == numbers.hole(7, 1, rows[1_700].last)
        == rows[1_999].last
    )
    assert numbers.rows(7, 1, rows[2_000].first, 10) == rows[2_000:2_010]
    assert numbers.hole(7, 1, rows[-1].last + 1) is None


def test_what_only_a_snapshot_had_waits_for_its_file_and_so_does_all_after_it() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for segment in range(4):
        truth.segment = segment
        for _ in range(3):
            note(numbers, truth.appended(7, 1, 2))
    chunks = list(numbers.capture())
    files = install(numbers)
    again = Numbers(STORE)

    assert again.load([files[0], files[2], *restored(chunks)], numbers.covered) == []
    assert again.installed == [0]
    assert again.in_memory == 1
    check(again, truth)
    assert [file.cover.segment for file in install(again)] == [1, 2]
    check(again, truth)
    it = truth.appended(7, 1, 2)
    note(again, it)
    check(again, truth)


def test_after_a_hole_at_the_end_the_index_goes_on_in_a_segment_of_its_own() -> None:
    """Items may be of bundles that lie in older segments than the lost ones."""
    truth, _, files = long_partition(30)
    numbers = Numbers(STORE)
    truth.segment, truth.offset = 0, 1 << 20
    assert numbers.load(files, len(truth.items)) == [(len(truth.items) - 1, len(truth.items))]
    note(numbers, truth.appended(7, 1, 2))

    assert numbers.rows(7, 1, truth.rows[7, 1][-2].first, 5) == truth.rows[7, 1][-2:]
    assert numbers.usage.holders(0) == 4


@pytest.mark.parametrize("block", [0, 1, 2])
def test_of_a_damaged_block_alone_the_rows_are_lost(block: int) -> None:
    truth, intact, (file,) = long_partition(6_000)
    data = bytearray(b"".join(_bytes_of(file)))
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


def _bytes_of(file: NumberFile) -> list[bytes]:
    return [bytes_of(file)]


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
    raw = bytearray(b"".join(_bytes_of(install(numbers)[which])))
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
    raw = b"".join(_bytes_of(file))
    for length in range(len(raw)):
        with pytest.raises(Corrupt):
            NumberFile(raw[:length])


def test_a_capture_does_not_see_what_comes_after_it() -> None:
    truth, numbers, _ = long_partition(100)
    waited = truth.item().position
    note(numbers, truth.items[-1])
    truth.segment += 1
    for _ in range(10):
        note(numbers, truth.appended(7, 1, 2))
    note(numbers, truth.appended(7, 1, 2, body=waited))
    chunks = numbers.capture()
    position = numbers.covered
    seen = {key: list(rows) for key, rows in truth.rows.items()}
    for _ in range(10):
        note(numbers, truth.appended(7, 1, 2))
        note(numbers, truth.appended(11, 0, 2))
    note(numbers, truth.deleted(9))

    files = restored(chunks)

    assert [file.cover.upto for file in files] == [waited, position]
    assert [file.cover.sealed for file in files] == [True, False]
    (run,) = [files[1].decode(*files[1].span(i)) for i in range(len(files[1].keys))]
    assert run == seen[7, 1][-11:]
    assert list(files[1].sizes) == [10 * 100]
    assert [(stray.first, stray.last) for stray in files[1].strays] == [
        (run[-1].first, run[-1].last)
    ]


def test_of_two_captures_each_shows_its_own_moment_and_the_older_may_be_given_up() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 2))
    given_up = numbers.capture()
    next(given_up)
    note(numbers, truth.appended(7, 0, 2))
    chunks = numbers.capture()
    first = next(chunks)
    note(numbers, truth.appended(7, 0, 2))
    del given_up  # it had begun
    note(numbers, truth.appended(8, 0, 2))
    note(numbers, truth.appended(7, 0, 2))

    (file,) = restored([first, *chunks])

    assert (file.rows, list(file.sizes)) == (2, [200])
    (file,) = restored(numbers.capture())
    assert (file.rows, list(file.sizes)) == (5, [400, 100])


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


def test_a_segment_that_is_half_installed_is_left_to_its_file() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for topic in range(1, 2_001):
        note(numbers, truth.appended(topic, 0, 2))
    truth.segment = 1
    note(numbers, truth.appended(5, 0, 2))
    file = file_of(numbers)
    steps = numbers.install(file)
    next(steps)

    assert numbers.waiting() is None
    files = restored(numbers.capture())
    assert [each.cover.segment for each in files] == [1]
    again = Numbers(STORE)
    assert again.load([*files, file], numbers.covered) == []
    check(again, truth)


def test_of_a_capture_and_a_file_the_one_that_knows_more_counts() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    early = restored(numbers.capture())
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    truth.segment = 1
    note(numbers, truth.item())
    late = restored(numbers.capture())
    files = install(numbers)
    again = Numbers(STORE)
    assert again.load([*early, *late, *files], 5) == []
    assert again.installed == [0]
    check(again, truth)


def test_a_damaged_file_behind_a_capture_is_as_if_it_were_not_there() -> None:
    """Its rows would come back into memory, where nobody checks them again."""
    truth, numbers = Truth(), Numbers(STORE)
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    captured = restored(numbers.capture())
    end = numbers.covered
    truth.segment = 1
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    truth.segment = 2
    note(numbers, truth.item())
    _, file = install(numbers)
    data = bytearray(bytes_of(file))
    data[2 * 32 + 9] ^= 4

    again = Numbers(STORE)
    assert again.load([*captured, NumberFile(data)], end) == []
    assert again.covered == end
    assert again.rows(7, 0, 1, 100) == truth.rows[7, 0][:5]


def test_a_deleted_topic_leaves_no_stray_in_a_capture() -> None:
    """It would keep the segment of its body for ever, and nobody would know of the topic."""
    truth, numbers = Truth(), Numbers(STORE)
    waited = truth.item().position
    note(numbers, truth.items[-1])
    truth.segment = 1
    note(numbers, truth.appended(7, 0, 2, body=waited))
    note(numbers, truth.deleted(7))
    again = Numbers(STORE)
    again.load(restored(numbers.capture()), numbers.covered)
    again.settle(truth.first_of)

    assert again.usage.holders(0) == 0


def test_a_capture_that_is_not_whole_is_refused() -> None:
    _, numbers, _ = long_partition(100)
    chunks = list(numbers.capture())

    with pytest.raises(Corrupt):
        restored([*chunks[:-2], chunks[-1]])
    with pytest.raises(Corrupt, match="no end"):
        restored(chunks[:-1])


def test_stages_committed_together_are_one_stray() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    waiting = []
    for _ in range(10):
        waiting.append(truth.item().position)
        note(numbers, truth.items[-1])
    truth.segment = 1
    for body in waiting:
        note(numbers, truth.appended(7, 0, 100, body=body, size=1_000))

    assert numbers.usage.holders(0) == 1
    assert numbers.usage.live(0) == 10_000
    note(numbers, truth.pruned(7, 0, 950))
    assert numbers.usage.holders(0) == 1
    note(numbers, truth.pruned(7, 0, 1_001))
    assert numbers.usage.holders(0) == numbers.usage.live(0) == 0


def test_a_pruned_part_of_the_oldest_segment_is_counted_as_dead() -> None:
    truth, numbers, _ = long_partition(1_000, count=10)
    before = numbers.usage.live(0)
    for first in (2_501, 5_001, 9_001):
        note(numbers, truth.pruned(7, 1, first))
        assert numbers.usage.live(0) == before - (100 + BATCH_BYTES) * (first - 1) // 10
    note(numbers, truth.pruned(7, 1, 10_001))
    assert numbers.usage.live(0) == before - 1_000 * (100 + BATCH_BYTES)
    assert numbers.usage.holders(0) == 2


def test_a_row_that_does_not_follow_is_our_own_mistake() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 3))
    numbers.begin(2, place(0, 64))
    with pytest.raises(AssertionError):
        numbers.append(7, 0, 5, 1, 2_000, 10, place(0, 64))
    with pytest.raises(AssertionError):
        numbers.begin(4, place(0, 128))
    with pytest.raises(AssertionError):
        numbers.load([], 0)


def test_a_segment_that_goes_on_after_a_restart_ends_as_if_there_had_been_none() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    waited = truth.item().position
    note(numbers, truth.items[-1])
    truth.segment = 1
    for _ in range(5):
        note(numbers, truth.appended(7, 1, 2))
    note(numbers, truth.appended(7, 1, 2, body=waited))
    again = Numbers(STORE)
    again.load(restored(numbers.capture()), numbers.covered)
    for _ in range(5):
        it = truth.appended(7, 1, 2)
        note(numbers, it)
        note(again, it)
    truth.segment = 2
    it = truth.item()
    note(numbers, it)
    note(again, it)

    assert [numbers.in_memory, again.in_memory] == [0, 0]
    assert [*map(bytes_of, install(numbers))] == [*map(bytes_of, install(again))]
    assert [numbers.usage.live(n) for n in (0, 1)] == [again.usage.live(n) for n in (0, 1)]
    check(again, truth)


def test_an_item_whose_bundle_lies_in_an_older_segment_opens_none() -> None:
    """Bundles of several nodes are written as they come, and ordered later."""
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 2
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 1
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 2
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 3
    note(numbers, truth.item())

    files = install(numbers)
    assert [file.cover.segment for file in files] == [0, 2]
    assert [(stray.first, stray.last, stray.segment) for stray in files[1].strays] == [(5, 6, 1)]
    check(numbers, truth)
    check_usage(numbers, truth)


def test_a_stray_ends_with_the_segment_that_numbered_it() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    waiting = [truth.item().position for _ in range(4)]
    for it in truth.items:
        note(numbers, it)
    for segment in (1, 2):
        truth.segment = segment
        for body in (waiting.pop(0), waiting.pop(0)):
            note(numbers, truth.appended(7, 0, 2, body=body))
    truth.segment = 3
    note(numbers, truth.item())

    spans = [[(s.first, s.last) for s in file.strays] for file in install(numbers)]
    assert spans == [[], [(1, 4)], [(5, 8)]]


def test_a_sealed_segment_stays_sealed_when_it_comes_from_a_snapshot() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 1
    note(numbers, truth.appended(8, 0, 2))
    again = Numbers(STORE)
    assert again.load(restored(numbers.capture())[:1], 2) == [(1, 2)]
    truth.segment = 0
    note(again, truth.appended(7, 0, 2))

    cover = again.waiting()
    assert cover is not None
    assert (cover.segment, cover.upto) == (0, 1)
    covers = [file.cover for file in restored(again.capture())]
    assert [(each.segment, each.after, each.upto) for each in covers] == [(0, 0, 1), (1, 2, 3)]
    assert again.rows(7, 0, 1, 5) == truth.rows[7, 0]


def test_a_file_that_overlaps_the_one_before_it_is_passed_over() -> None:
    """It speaks of a row that was cut and went on differently."""
    one, other = Truth(), Truth()
    numbers, others = Numbers(STORE), Numbers(STORE)
    for _ in range(4):
        note(numbers, one.appended(7, 0, 2))
        note(others, other.appended(7, 0, 1))
    for truth, index, count in ((one, numbers, 9), (other, others, 3)):
        while len(truth.items) < count:
            note(index, truth.item())
        truth.segment = 1
        note(index, truth.item())
        truth.segment = 2
        note(index, truth.item())
    files = [install(numbers)[0], install(others)[1]]
    assert files[1].cover.after < files[0].cover.upto
    again = Numbers(STORE)

    assert again.load(files, 9) == []
    assert again.installed == [0]
    assert again.covered == 9


def test_nothing_is_remembered_of_a_deleted_topic() -> None:
    truth, numbers, _ = long_partition(10)
    note(numbers, truth.pruned(7, 1, 5))
    for topic in (5, 7, 9):
        note(numbers, truth.deleted(topic))

    life = numbers._life
    tables = (life._firsts, life._shrunk, life.leads, life._strays, numbers._widths)
    assert [len(table) for table in tables] == [0] * 5
    assert numbers.usage.holders(0) == numbers.usage.live(0) == 0


def test_looking_for_the_live_in_a_segment_of_many_dead_partitions_lets_others_go_on() -> None:
    truth, numbers, topics = Truth(), Numbers(STORE), 5 * PLACES_AT_ONCE
    for topic in range(1, topics + 1):
        note(numbers, truth.appended(topic, 0, 1))
    truth.segment = 1
    note(numbers, truth.item())
    install(numbers)
    for topic in range(1, topics + 1):
        note(numbers, truth.deleted(topic))

    assert list(numbers.live_places(0)) == [[]] * 5
