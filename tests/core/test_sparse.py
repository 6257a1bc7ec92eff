"""Rewriting: what stays of a segment, and that whoever reads on behind a gap misses nothing."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from core.segmentkit import UUID, Built, read, typical
from duckrow.node.chronicle import Chronicle, Waiting
from duckrow.node.env import Buffer, Held
from duckrow.node.errors import Corrupt
from duckrow.node.forms import BundleForm, GapForm, bodies, split_heads
from duckrow.node.places import offset_of, place
from duckrow.node.positions import LEFT_OUT
from duckrow.node.records import FLAG_REWRITTEN, RecordKind, decode, padded
from duckrow.node.recovery import EVERYTHING, Recovery
from duckrow.node.segments import Segment
from duckrow.node.sparse import BLOCK_BYTES, Rewriting


class Bytes:
    """A file in memory; `blocks` are those that were written to."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.blocks: dict[int, None] = {}

    @property
    def size(self) -> int:
        return len(self.data)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        data = b"".join(bytes(each) for each in buffers)
        if offset > self.size:
            self.truncate(offset)
        self.data[offset : offset + len(data)] = data
        for block in range(offset // BLOCK_BYTES, -(-(offset + len(data)) // BLOCK_BYTES)):
            self.blocks[block] = None

    async def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def truncate(self, size: int) -> None:
        self.data += bytes(max(0, size - self.size))
        del self.data[size:]

    def hold(self) -> Held:
        raise NotImplementedError

    async def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


@attrs.define
class Written:
    rewriting: Rewriting
    data: bytes
    places: array[int]  # as the index then says
    blocks: int


def rewritten(
    built: Built, places: array[int], live: set[int], data: bytes | None = None, again: bool = False
) -> Written:
    old, new = Bytes(bytes(built.data) if data is None else data), Bytes()
    segment = Segment(built.number, UUID, 1, len(places), old.size, rewritten=again)
    rewriting = Rewriting(segment, live, frozenset(places))
    after = array("Q", places)

    async def rewrite() -> None:
        await rewriting.look(old)
        await rewriting.copy(old, new)
        await rewriting.mark(after, 1)

    trio.run(rewrite)
    return Written(rewriting, bytes(new.data), after, len(new.blocks))


def bodies_of(data: bytes, seed: int, where: int) -> list[bytes]:
    record = decode(data, 0, offset_of(where), seed)
    assert record is not None
    form = BundleForm.decode(record.head)
    at = record.body_offset
    heads = split_heads(data[at : at + form.heads_length], form.commands)
    spans = bodies(heads, at + padded(form.heads_length))
    return [data[start : start + length] for start, length, _ in spans]


def kinds(data: bytes, seed: int) -> list[int]:
    found, offset = [], 0
    while offset < len(data):
        record = decode(data, 0, offset, seed)
        assert record is not None
        found.append(record.kind)
        offset = record.end
    return found


STEPS = st.lists(
    st.one_of(
        st.lists(st.sampled_from((0, 10, 500, 3_000, 9_000)), min_size=1, max_size=3),
        st.sampled_from(("receive", "order", "mark", "start", "view", "produce 20")),
    ),
    max_size=25,
)


def made(steps: list[list[int] | str]) -> Built:
    """A segment as a cluster might leave it: bundles wait for their items, in any order."""
    built = typical((50,))
    waiting: list[tuple[int, int]] = []
    for step in steps:
        if isinstance(step, list):
            built.produce(*step)
        elif step == "receive":
            waiting.append(received(built, 6_000))
        elif step == "order" and waiting:
            built.item(*waiting.pop(0))
        elif step == "mark":
            built.mark()
        elif step == "start":
            built.start(11)
        elif step == "view" and not waiting:
            built.install(11)
        elif step == "produce 20":
            for _ in range(20):
                built.produce(400)
    return built


def received(built: Built, *sizes: int) -> tuple[int, int]:
    where, crc = built.bundle(*sizes)
    built.chronicle.waiting[where] = Waiting(built.view, 1, built.s, crc)
    return where, crc


@settings(deadline=None, max_examples=150)
@given(STEPS, st.data())
def test_who_reads_a_rewritten_segment_learns_what_the_whole_one_said(
    steps: list[list[int] | str], data: st.DataObject
) -> None:
    built = made(steps)
    before, end = read(built, durable=len(built.data))
    bundles = [p for p, k in zip(built.starts, built.kinds, strict=True) if k == RecordKind.BUNDLE]
    live: set[int] = set()
    places, raw, again = before.column.places, bytes(built.data), False
    for share in (0.4, 0.1):  # the second time, less is alive
        if again:
            live = {p for p in sorted(live) if data.draw(st.floats(0, 1)) < share / 0.4}
        else:
            for start in bundles:
                where = place(1, start)
                for command, body in enumerate(bodies_of(raw, built.seed, where)):
                    if body and data.draw(st.floats(0, 1)) < share:
                        live.add(where + command)
        result = rewritten(built, places, live, raw, again)
        raw, places, again = result.data, result.places, True

        assert result.blocks * BLOCK_BYTES <= result.rewriting.allocated - result.rewriting.freed
        assert len(raw) == len(built.data)
        for kind in (Recovery, Slow):
            after, kept = read(built, raw, durable=len(raw), kind=kind, window=1)
            after.finish()
            assert kept == end
            assert (after.damages, after.holes, after.exposed) == ([], [], False)
            assert after.chronicle == built.chronicle
            assert after.column.places == places
            assert after.rewritten
        for where in live:
            assert (
                bodies_of(raw, built.seed, where & ~0x3FFF)[where & 0x3FFF]
                == bodies_of(bytes(built.data), built.seed, where & ~0x3FFF)[where & 0x3FFF]
            )


class Slow(Recovery):
    """Without the fast lane."""

    def _glide(
        self, window: bytes, base: int, offset: int, durable: int, segment: int, seed: int
    ) -> int:
        return offset


def small(count: int) -> Built:
    return typical(*[(100,)] * count)


def test_a_run_of_small_dead_bundles_becomes_one_gap_whatever_it_is_long() -> None:
    built = small(2_000)
    places = read(built)[0].column.places
    result = rewritten(built, places, {places[500], places[1_500]})

    found = kinds(result.data, built.seed)
    assert found.count(RecordKind.GAP) == 3
    assert found.count(RecordKind.BUNDLE) == found.count(RecordKind.ITEM) - 1 == 2
    assert RecordKind.MARK not in found
    assert result.blocks <= 5
    assert result.rewriting.allocated - result.rewriting.freed == result.blocks * BLOCK_BYTES
    assert [p & LEFT_OUT for p in result.places].count(0) == 3, "the view mark and two bundles"


def test_gaps_merge_when_what_lay_between_them_dies() -> None:
    built = small(2_000)
    places = read(built)[0].column.places
    once = rewritten(built, places, {places[500], places[1_500]})
    twice = rewritten(built, once.places, {places[500]}, once.data, again=True)
    at_once = rewritten(built, places, {places[500]})

    assert kinds(twice.data, built.seed).count(RecordKind.GAP) == 2
    assert twice.rewriting.freed == BLOCK_BYTES * (once.blocks - twice.blocks) > 0
    assert twice.data[8:] == at_once.data[8:]
    assert twice.places == at_once.places


def test_nothing_is_freed_twice() -> None:
    built = small(500)
    places = read(built)[0].column.places
    once = rewritten(built, places, {places[200]})
    twice = rewritten(built, once.places, {places[200]}, once.data, again=True)

    assert once.rewriting.freed > 0
    assert twice.rewriting.freed == 0
    assert twice.data == once.data


def test_where_no_whole_block_is_dead_nothing_changes_but_the_flag() -> None:
    built = small(200)
    places = read(built)[0].column.places
    result = rewritten(built, places, set(places[::8]))

    assert result.rewriting.freed == 0
    assert result.data[24:] == bytes(built.data[24:])
    opening = decode(result.data, 0, 0, built.seed)
    assert opening is not None
    assert opening.flags == FLAG_REWRITTEN
    assert result.places == places


def test_an_item_may_outlive_its_bundle_and_a_bundle_its_item() -> None:
    built = typical((10,))
    gone = received(built, 9_000)  # becomes a gap
    built.produce(10)  # stays
    kept = received(built, 10)  # too short to be worth a gap
    built.start(11)
    built.item(*gone)  # so is this
    built.start(11)
    built.item(*kept)  # this and the next one become a gap
    built.produce(9_000)
    before, _ = read(built)
    live = {before.column.places[2]}
    result = rewritten(built, before.column.places, live)

    after, _ = read(built, result.data)
    assert (after.damages, after.chronicle) == ([], built.chronicle)
    assert after.column.places == result.places
    assert [bool(p & LEFT_OUT) for p in result.places] == [False, True, False, True, True, True]
    first, second = result.rewriting.gaps
    assert (first.first, first.last) == (2, 2)
    assert (second.first, second.last) == (5, 6)
    assert offset_of(result.places[3]) == first.offset

    built.start(11)
    built.produce(9_000)
    before, _ = read(built)
    once = rewritten(built, before.column.places, live | {before.column.places[-1]})
    twice = rewritten(built, once.places, live, once.data, again=True)
    assert [gap.last for gap in twice.rewriting.gaps] == [2, 6, 7]
    assert read(built, twice.data)[0].chronicle == built.chronicle


def test_dead_bodies_beside_live_ones_are_left_out_where_they_fill_blocks() -> None:
    built = typical((100, 9_000, 300, 200, 60, 80, 9_000, 100, 3_000))
    where = read(built)[0].column.places[1]
    result = rewritten(built, array("Q", [0, where]), {where, where + 3, where + 5, where + 7})

    found = bodies_of(result.data, built.seed, where)
    there = [bool(any(body)) for body in found]
    # The one of 60 bytes, and the last one, fill no block.
    assert there == [True, False, False, True, True, True, False, True, True]
    assert result.rewriting.freed == BLOCK_BYTES * 2


def test_what_is_dead_at_the_end_frees_the_last_block_too() -> None:
    built = small(2)
    while len(built.data) // BLOCK_BYTES < 1 or len(built.data) % BLOCK_BYTES < 600:
        built.produce(100)
    places = read(built)[0].column.places
    last = next(p for p in reversed(places) if offset_of(p) < BLOCK_BYTES - 500)
    result = rewritten(built, places, set(places[: places.index(last)]))

    assert result.rewriting.freed == BLOCK_BYTES
    assert len(result.data) == len(built.data)


def test_a_gap_longer_than_any_frame_is_stepped_over() -> None:
    built = typical(*[(1 << 20,)] * 10, (7,))
    places = read(built)[0].column.places
    result = rewritten(built, places, {places[-1]})

    gap = next(
        record
        for start in built.starts
        if (record := decode(result.data, 0, start, built.seed)) and record.kind == RecordKind.GAP
    )
    assert gap.body_length > 8 << 20
    after, end = read(built, result.data, window=4096)
    assert end == len(built.data)
    assert after.chronicle == built.chronicle


def test_where_a_gap_is_damaged_its_positions_are_told_and_what_follows_is_read() -> None:
    built = typical(*[(3_000,)] * 8)
    places = read(built)[0].column.places
    result = rewritten(built, places, {places[-1]})
    gap = result.rewriting.gaps[0]
    broken = bytearray(result.data)
    broken[gap.offset + 30] ^= 1

    after, end = read(built, bytes(broken), durable=len(broken))

    assert end == len(broken)
    assert after.chronicle.position == built.chronicle.position
    assert after.chronicle.digest == built.chronicle.digest
    assert [(hole.first, hole.last) for hole in after.holes] == [(gap.first, gap.last)]
    assert after.column.places[-1] == places[-1]
    with pytest.raises(Corrupt, match="is not rewritten"):
        rewritten(built, after.column.places, set(), bytes(broken), again=True)


def test_without_the_copies_at_the_beginning_the_row_begins_with_the_gap() -> None:
    built = typical(*[(3_000,)] * 8)
    places = read(built)[0].column.places
    result = rewritten(built, places, {places[-1]})
    gap = result.rewriting.gaps[0]
    start = built.starts[2]  # behind SEGMENT and START

    recovery = Recovery(EVERYTHING, Chronicle(UUID), False)
    broken = bytes(start) + result.data[start:]
    after, _ = read(built, broken, recovery=recovery)

    assert after.chronicle.digest == built.chronicle.digest
    assert after.chronicle.floor <= gap.first


@given(st.binary(max_size=60))
def test_anything_else_is_no_gap(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        GapForm.decode(raw)


def test_a_gap_comes_back_as_it_went() -> None:
    form = GapForm(3, 9, b"a" * 16, b"b" * 16, {1: 7, 2: 9}, (place(1, 80), place(1, 160)))
    assert GapForm.decode(form.encode()) == form
    empty = GapForm(3, 2, b"a" * 16, b"a" * 16, {}, ())
    assert GapForm.decode(empty.encode()) == empty
    for wrong in (form._replace(last=1), form._replace(first=0), form._replace(before=b"short")):
        with pytest.raises(Corrupt):
            GapForm.decode(wrong.encode())
