"""Recovery: torn or damaged, cut or kept, lost or made again; decided from bytes alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.segmentkit import UUID, Built, drive, read, typical, view
from duckrow.node.chronicle import Chronicle
from duckrow.node.evidence import ITEM_LOSS_MIN
from duckrow.node.forms import BaseForm, ItemForm, SettledForm, encode_view
from duckrow.node.places import place
from duckrow.node.positions import LOST
from duckrow.node.records import PREFIX_BYTES, RecordKind, padded
from duckrow.node.recovery import EVERYTHING, Recovery

SIZES = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4).map(tuple), max_size=8)
PRODUCED = (RecordKind.BUNDLE, RecordKind.ITEM)


class Slow(Recovery):
    """Without the fast lane."""

    def _glide(
        self, window: bytes, base: int, offset: int, durable: int, segment: int, seed: int
    ) -> int:
        return offset


def summary(recovery: Recovery, end: int) -> tuple[object, ...]:
    return (
        end,
        recovery.torn,
        recovery.chronicle,
        recovery.column,
        recovery.damages,
        recovery.holes,
        recovery.repairs,
        recovery.exposed,
        recovery.records,
    )


@settings(deadline=None)
@given(SIZES, st.data())
def test_whole_bytes_are_kept_whatever_was_durable(
    sizes: list[tuple[int, ...]], data: st.DataObject
) -> None:
    built = typical(*sizes)
    durable = data.draw(st.sampled_from(built.starts))

    recovery, end = read(built, durable=durable)
    recovery.finish()

    assert end == len(built.data)
    assert not recovery.torn
    assert recovery.chronicle == built.chronicle
    assert (recovery.damages, recovery.holes, recovery.repairs) == ([], [], [])
    assert recovery.records == len(built.starts)
    assert len(recovery.column.places) == built.chronicle.position


@settings(deadline=None)
@given(SIZES, st.data())
def test_a_tail_that_was_torn_anywhere_is_cut_at_a_record(
    sizes: list[tuple[int, ...]], data: st.DataObject
) -> None:
    built = typical(*sizes)
    cut = data.draw(st.integers(0, len(built.data)))
    durable = data.draw(st.sampled_from([s for s in built.starts if s <= cut]))
    junk = data.draw(st.binary(max_size=40) | st.sampled_from([bytes(300), b"\xff" * 300]))

    recovery, end = read(built, bytes(built.data[:cut]) + junk, durable=durable)
    recovery.finish()

    ends = [*built.starts[1:], len(built.data)]
    # What is missing may be padding alone, of which nothing is lost.
    assert end in (max([0, *(e for e in ends if e <= cut)]), cut + -cut % 8)
    assert end in (0, *ends)
    assert recovery.torn == (end < cut + len(junk))
    assert (recovery.damages, recovery.holes, recovery.exposed) == ([], [], False)


@settings(deadline=None)
@given(SIZES, st.integers(0), st.data())
def test_a_torn_sector_beyond_what_was_durable_cuts_there_though_later_ones_are_whole(
    sizes: list[tuple[int, ...]], which: int, data: st.DataObject
) -> None:
    built = typical(*sizes)
    durable = data.draw(st.sampled_from(built.starts))
    torn = bytearray(built.data)
    at = durable + which % (len(torn) - durable)
    torn[at] ^= 0xFF

    recovery, end = read(built, bytes(torn), durable=durable)
    recovery.finish()

    # Padding between bodies means nothing, and is the only thing that no checksum covers.
    ends = [*built.starts[1:], len(torn)]
    hit = max(s for s in built.starts if s <= at)
    assert end in (hit, len(torn))
    assert end == hit or built.kinds[built.starts.index(hit)] == RecordKind.BUNDLE
    assert end in (*ends, 0)
    assert recovery.damages == []


@settings(max_examples=300, deadline=None)
@given(SIZES, st.integers(0), st.integers(1, 400), st.data())
def test_with_the_fast_lane_everything_comes_out_as_without(
    sizes: list[tuple[int, ...]], which: int, length: int, data: st.DataObject
) -> None:
    built = typical(*sizes)
    built.mark()
    durable = data.draw(st.sampled_from(built.starts))
    broken = bytearray(built.data)
    at = which % len(broken)
    noise = random.Random(which).randbytes(length)[: len(broken) - at]
    broken[at : at + len(noise)] = noise

    outcomes = []
    for kind in (Recovery, Slow):
        recovery, end = read(built, bytes(broken), durable=durable, kind=kind)
        recovery.finish()
        outcomes.append(summary(recovery, end))

    assert outcomes[0] == outcomes[1]


@settings(deadline=None)
@given(SIZES, st.integers(0))
def test_damage_below_what_was_durable_is_never_silent(
    sizes: list[tuple[int, ...]], which: int
) -> None:
    built = typical(*sizes)
    built.mark()
    before = read(built)[0].chronicle
    broken = bytearray(built.data)
    at = which % (len(broken) - PREFIX_BYTES)
    broken[at] ^= 1 << which % 8

    recovery, end = read(built, bytes(broken), durable=len(built.data) - PREFIX_BYTES)
    recovery.finish()

    assert end == len(broken)
    lost = [hole for hole in recovery.holes if not hole.last]
    if recovery.chronicle.position != before.position:
        assert lost or recovery.chronicle.waiting
    if not recovery.damages:
        hit = built.kinds[built.starts.index(max(s for s in built.starts if s <= at))]
        assert hit == RecordKind.BUNDLE, "only a body or padding may go unnoticed here"
    assert len(recovery.holes) <= 1


def test_items_whose_places_are_damaged_are_proven_by_the_digest() -> None:
    built = typical((10,), (20,), (30,))
    items = [
        s for s, kind in zip(built.starts, built.kinds, strict=True) if kind == RecordKind.ITEM
    ]
    broken = bytearray(built.data)
    for start in items[1:3]:
        broken[start + 30] ^= 1

    recovery, _ = read(built, bytes(broken), durable=len(broken))
    recovery.finish()

    assert recovery.holes == []
    assert recovery.chronicle == built.chronicle
    assert LOST not in recovery.column.places
    assert all(damage.mended for damage in recovery.damages)
    for repair in recovery.repairs:
        broken[repair.offset : repair.offset + len(repair.content)] = repair.content
    again, _ = read(built, bytes(broken), durable=len(broken))
    assert again.damages == []


def test_a_bundle_that_waits_is_not_put_where_another_was_lost() -> None:
    """As many are missing as wait; the digest knows that it is not the same one."""
    built = typical((10,))
    built.bundle(5)  # of which no item was ever written
    start = len(built.data)
    built.produce(20)
    end = len(built.data)
    built.produce(30)
    broken = bytearray(built.data)
    broken[start:end] = bytes(end - start)

    recovery, _ = read(built, bytes(broken), durable=len(broken))
    recovery.finish()

    assert [(hole.first, hole.last) for hole in recovery.holes] == [(3, 3)]
    assert recovery.column.places[2] == LOST
    assert recovery.chronicle.digest == built.chronicle.digest


@pytest.mark.parametrize("kind", [Recovery, Slow])
def test_an_item_that_does_not_fit_the_digest_is_told_though_its_record_is_whole(
    kind: type[Recovery],
) -> None:
    built = typical((10,))
    where, crc = built.bundle(20)
    position = built.chronicle.position + 1
    built.record(RecordKind.ITEM, ItemForm(position, where, crc, b"x" * 16).encode())
    built.mark()

    recovery, _ = read(built, durable=len(built.data), kind=kind)
    recovery.finish()

    assert [(hole.first, hole.last) for hole in recovery.holes] == [(3, 3)]
    assert "digest" in recovery.damages[0].what


def test_records_of_an_older_start_are_not_read_behind_a_newer_one() -> None:
    """What a cut removed may shine through, if the power fails before the cut is durable."""
    built = typical((10,))
    built.start(12)
    kept = len(built.data)
    built.start_count -= 1
    built.produce(20)

    recovery, end = read(built)

    assert (end, recovery.torn) == (kept, True)


def test_a_bundle_lost_with_its_item_leaves_a_hole_at_its_position() -> None:
    built = typical((10,), (20,), (30,))
    start = [s for s, k in zip(built.starts, built.kinds, strict=True) if k == RecordKind.BUNDLE][1]
    end = built.starts[built.starts.index(start) + 2]
    broken = bytearray(built.data)
    broken[start:end] = bytes(end - start)

    recovery, _ = read(built, bytes(broken), durable=len(broken))
    recovery.finish()

    assert [(hole.first, hole.last) for hole in recovery.holes] == [(3, 3)]
    assert recovery.chronicle.position == 4
    assert recovery.chronicle.digest == built.chronicle.digest
    assert list(recovery.column.places).index(LOST) == 2
    assert recovery.exposed


def test_damage_at_the_end_that_could_have_been_an_item_ends_the_row() -> None:
    built = typical((10,), (20,))
    start = [s for s, k in zip(built.starts, built.kinds, strict=True) if k == RecordKind.BUNDLE][1]
    built.mark()
    broken = bytearray(built.data)
    broken[start:-PREFIX_BYTES] = bytes(len(broken) - PREFIX_BYTES - start)

    recovery, end = read(built, bytes(broken), durable=len(broken) - PREFIX_BYTES)
    recovery.finish()

    assert end == len(broken)
    assert [(hole.first, hole.last) for hole in recovery.holes] == [(3, 0)]


def base_at(built: Built, position: int) -> BaseForm:
    return BaseForm(position, b"d" * 16, encode_view(view(7, 11)), ("state", "t.0"))


def test_a_base_says_where_the_row_is_and_what_waited_is_no_more() -> None:
    built = typical((10,), (10,))
    built.bundle(10)
    base = base_at(built, 50)
    built.record(RecordKind.BASE, base.encode())
    built.chronicle.based(base)
    built.produce(10)
    built.synced()

    recovery, end = read(built, durable=built.durable)

    assert end == len(built.data)
    assert (recovery.damages, recovery.holes) == ([], [])
    found = recovery.chronicle
    assert (found.position, found.floor, found.waiting) == (51, 51, {})
    assert (found.installed, found.newest) == (base.view, base.view)
    assert found.digest == built.chronicle.digest
    assert (found.uuid, found.starts) == (built.chronicle.uuid, built.chronicle.starts)
    assert recovery.column.first == 51


def test_a_base_outlives_damage_before_it() -> None:
    built = typical((10,), (10,))
    hit = built.starts[-3]
    built.record(RecordKind.BASE, base_at(built, 50).encode())
    built.mark()
    data = bytearray(built.data)
    data[hit + 30] ^= 1

    recovery, _ = read(built, bytes(data), durable=built.durable)
    recovery.finish()

    assert recovery.chronicle.position == 50
    assert recovery.damages
    assert all(0 < hole.last < 50 for hole in recovery.holes)


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        (RecordKind.BASE, b"\x80"),
        (RecordKind.BASE, BaseForm(1, b"d" * 16, encode_view(view(7, 11)), ()).encode()),
        (RecordKind.SETTLED, b"\x80"),
    ],
    ids=["base", "base behind the row", "settled"],
)
def test_what_a_reserved_record_cannot_say_is_damage(kind: RecordKind, head: bytes) -> None:
    built = typical((10,), (10,))
    built.record(kind, head)
    built.mark()
    built.produce(10)

    recovery, _ = read(built, durable=built.durable)
    recovery.finish()

    assert recovery.chronicle.position == 4
    assert [damage.mended for damage in recovery.damages] == [False]


def test_what_is_settled_changes_nothing_of_the_row() -> None:
    built = typical((10,))
    built.record(RecordKind.SETTLED, SettledForm(1, 1, 1).encode())
    built.produce(10)

    recovery, end = read(built, durable=len(built.data))

    assert end == len(built.data)
    assert recovery.damages == []
    assert recovery.chronicle.position == 3


def test_damage_that_is_too_short_for_an_item_does_not_end_it() -> None:
    built = typical((10,))
    built.start(12)
    assert len(built.data) - built.starts[-1] < ITEM_LOSS_MIN
    built.mark()
    broken = bytearray(built.data)
    broken[built.starts[-2] + 30] ^= 1

    recovery, _ = read(built, bytes(broken), durable=len(broken) - PREFIX_BYTES)
    recovery.finish()

    assert recovery.holes == []
    assert recovery.exposed, "but a start was lost"


def test_the_smallest_bundle_with_its_item_is_as_long_as_is_said() -> None:
    built = typical()
    before = len(built.data)
    built.produce(0)

    assert len(built.data) - before >= ITEM_LOSS_MIN


def test_a_bundle_without_an_item_waits() -> None:
    built = typical((10,))
    where, crc = built.bundle(5)

    recovery, end = read(built)
    recovery.finish()

    assert end == len(built.data)
    assert list(recovery.chronicle.waiting) == [where]
    assert recovery.chronicle.waiting[where].crc == crc


def two_segments() -> tuple[Built, Built]:
    one = typical((10,), (20,))
    one.mark()
    two = Built(2, one.chronicle.copy(), start_count=one.start_count, view=one.view, s=one.s)
    two.segment(before=len(one.data))
    two.produce(30)
    two.mark()
    return one, two


def read_both(one: Built, two: Built, first: bytes, second: bytes, durable: int) -> Recovery:
    recovery = Recovery(durable, Chronicle(UUID), True)
    end = drive(recovery.scan(1, one.seed, len(first), 1), first)
    recovery.segment = 1
    assert recovery.ended(1, one.seed, end, len(one.data))
    drive(recovery.scan(2, two.seed, len(second), 1, before=len(one.data)), second)
    recovery.finish()
    return recovery


def test_the_copies_of_the_next_segment_are_evidence_too() -> None:
    one, two = two_segments()
    items = [s for s, k in zip(one.starts, one.kinds, strict=True) if k == RecordKind.ITEM]
    broken = bytearray(one.data)
    broken[items[-1] + 30] ^= 1

    recovery = read_both(one, two, bytes(broken), bytes(two.data), EVERYTHING)

    assert recovery.holes == []
    assert recovery.chronicle == two.chronicle
    assert [damage.mended for damage in recovery.damages] == [True]


@pytest.mark.parametrize("lost", [False, True])
def test_what_the_next_segment_says_was_in_one_has_a_place_in_its_column(lost: bool) -> None:
    """`lost`: the last bundle is damaged, too, so that nobody knows where it lay."""
    one, two = two_segments()
    bundle, item = [s for s, k in zip(one.starts, one.kinds, strict=True) if k in PRODUCED][-2:]
    broken = bytearray(one.data)
    for start in (bundle, item) if lost else (item,):
        broken[start + 30] ^= 1
    recovery = Recovery(EVERYTHING, Chronicle(UUID), True)
    drive(recovery.scan(1, one.seed, len(broken), 1), bytes(broken))
    recovery.segment, column = 1, recovery.column

    drive(recovery.scan(2, two.seed, len(two.data), 1, before=len(one.data)), bytes(two.data))

    assert (column.first, column.last) == (1, 3)
    assert column.places[-1] == (LOST if lost else place(1, bundle))
    assert (recovery.column.first, recovery.column.last) == (4, 4)


def test_damaged_copies_are_made_again_from_the_segment_before() -> None:
    one, two = two_segments()
    broken = bytearray(two.data)
    broken[100] ^= 1

    recovery = read_both(one, two, bytes(one.data), bytes(broken), EVERYTHING)

    assert recovery.chronicle == two.chronicle
    assert not recovery.exposed
    (repair,) = recovery.repairs
    assert repair.segment == 2
    assert repair.offset == 0
    # What it had claimed durable is not known, and claims less now.
    assert repair.content[PREFIX_BYTES:] == two.data[PREFIX_BYTES : len(repair.content)]


def test_copies_outlive_whatever_hit_the_records_that_said_it() -> None:
    one, two = two_segments()
    broken = bytearray(one.data)
    broken[one.starts[1] + 30] ^= 1  # START

    recovery = read_both(one, two, bytes(broken), bytes(two.data), EVERYTHING)

    assert not recovery.exposed
    assert list(recovery.chronicle.starts) == [11]
    assert len(recovery.damages) == 1


def test_a_segment_that_ends_too_early_is_torn_if_nothing_says_that_it_was_durable() -> None:
    one, two = two_segments()
    for durable, torn in ((place(1, 200), True), (place(1, len(one.data)), False)):
        recovery = Recovery(durable, Chronicle(UUID), True)
        first = bytes(one.data[: one.starts[-3]])
        end = drive(recovery.scan(1, one.seed, len(first), 1), first)
        assert recovery.ended(1, one.seed, end, len(one.data)) != torn
    assert two.data


def test_a_row_whose_beginning_is_lost_begins_where_the_first_item_says() -> None:
    _, two = two_segments()
    broken = bytearray(two.data)
    broken[100] ^= 1
    recovery = Recovery(EVERYTHING, Chronicle(UUID), False)
    drive(recovery.scan(2, two.seed, len(broken), 1), bytes(broken))
    recovery.finish()

    assert recovery.chronicle.position == two.chronicle.position
    assert recovery.chronicle.floor == two.chronicle.position
    assert recovery.exposed


@pytest.mark.parametrize("window", [1, 70_000, 1 << 20])
def test_records_larger_than_a_window_are_read(window: int) -> None:
    built = typical((200_000,), (10,), (70_000, 70_000), tuple([10] * 5000))

    for durable in (0, len(built.data)):
        recovery, end = read(built, durable=durable, window=window)
        assert end == len(built.data)
        assert recovery.chronicle == built.chronicle


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000), st.integers(0, 3000))
def test_no_bytes_make_recovery_fail(data: bytes, durable: int) -> None:
    built = Built()
    recovery, end = read(built, data, durable=durable - durable % 8)
    recovery.finish()

    assert 0 <= end <= padded(len(data))
