"""Bodies of codec 0: round trips, cuts and joins, what other readers see, and what strangers send."""

from __future__ import annotations

import contextlib
import sys
import tracemalloc
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import FrameType
from typing import Any, NamedTuple

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duckrow.node import columns, layout
from duckrow.node.checksum import crc32c
from duckrow.node.columns import Columns, Headers, cut, decode, encode, join
from duckrow.node.errors import Corrupt, LimitExceeded, Refused
from duckrow.node.layout import Column
from duckrow.node.limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, HEADERS_MAX
from duckrow.node.strings import Strings, shifted


class Batch(NamedTuple):
    """What `encode` takes, all columns of the same length."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    created: Sequence[int] | None

    def of(self, lo: int, hi: int) -> Batch:
        return Batch(*(None if column is None else column[lo:hi] for column in self))  # type: ignore[arg-type]


PAIRS = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9)), max_size=3).map(tuple)
TIMES = st.integers(-(2**63), 2**63 - 1)


@st.composite
def batches(draw: st.DrawFn, created: bool | None = None) -> Batch:
    count = draw(st.integers(1, 40))

    def column(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(of, min_size=count, max_size=count)

    times = column(TIMES) if created else st.none()
    return Batch(
        draw(column(st.binary(max_size=20))),
        draw(st.none() | column(st.none() | st.binary(max_size=9))),
        draw(st.none() | column(PAIRS)),
        draw(st.none() | column(TIMES) if created is None else times),
    )


def content(found: Columns) -> Batch:
    everything = 0, found.entries
    return Batch(
        found.value_list(*everything),
        found.key_list(*everything),
        found.header_list(*everything),
        None if found.created is None else found.created.tolist(),
    )


def full(batch: Batch) -> Batch:
    """What is read of a batch: columns that were not given say that there is nothing."""
    count = len(batch.values)
    return batch._replace(keys=batch.keys or [None] * count, headers=batch.headers or [()] * count)


@given(batches())
def test_what_was_encoded_is_decoded(batch: Batch) -> None:
    body = encode(*batch)

    for form in (body, bytearray(body), memoryview(b"\0" + body)[1:]):
        for trusted in (False, True):
            found = decode(form, trusted=trusted)
            assert content(found) == full(batch)
            assert len(found) == found.entries == len(batch.values)


@given(batches(), st.data())
def test_a_part_of_the_columns_is_read_without_the_rest(batch: Batch, data: st.DataObject) -> None:
    lo = data.draw(st.integers(0, len(batch.values) - 1))
    hi = data.draw(st.integers(lo + 1, len(batch.values)))
    found, expected = decode(encode(*batch)), full(batch).of(lo, hi)

    assert found.value_list(lo, hi) == expected.values
    assert found.key_list(lo, hi) == expected.keys
    assert found.header_list(lo, hi) == expected.headers


@given(batches(), st.data())
def test_a_cut_is_what_encoding_the_part_gives(batch: Batch, data: st.DataObject) -> None:
    lo = data.draw(st.integers(0, len(batch.values) - 1))
    hi = data.draw(st.integers(lo + 1, len(batch.values)))

    assert cut(decode(encode(*batch)), lo, hi) == encode(*batch.of(lo, hi))


@given(st.booleans().flatmap(lambda created: st.lists(batches(created), min_size=1, max_size=5)))
def test_a_join_is_what_encoding_all_gives(parts: list[Batch]) -> None:
    whole = Batch(
        [value for part in parts for value in part.values],
        [key for part in parts for key in full(part).keys or ()],
        [header for part in parts for header in full(part).headers or ()],
        [time for part in parts for time in part.created or ()] or None,
    )

    assert join([decode(encode(*part)) for part in parts]) == encode(*whole)


@given(batches(), st.data())
def test_cutting_in_two_and_joining_gives_the_same_bytes(batch: Batch, data: st.DataObject) -> None:
    body = encode(*batch)
    whole = decode(body)
    middle = data.draw(st.integers(0, len(batch.values)))
    parts = [(0, middle), (middle, whole.entries)]
    cuts = [decode(cut(whole, lo, hi)) for lo, hi in parts if lo < hi]

    assert join(cuts) == body


@given(batches())
def test_a_body_is_plain_cbor_to_any_decoder(batch: Batch) -> None:
    body = encode(*batch)
    found = decode(body)

    plain = cbor2.loads(body)

    assert list(plain) == sorted(plain)
    assert set(plain) <= set(range(8))
    assert plain[0] == cbor2.CBORTag(70, bytes(found.values.ends))
    assert plain[1] == b"".join(batch.values)
    if found.created is not None:
        assert plain[5] == cbor2.CBORTag(79, array("q", batch.created or ()).tobytes())
    for ends, data, strings in ((2, 3, found.keys), (6, 7, found.headers)):
        if strings is None:
            assert not {ends, data} & set(plain)
        else:
            assert plain[ends] == cbor2.CBORTag(70, bytes(strings.ends))
            assert plain[data] == bytes(strings.data)


SIZES = [0, 1, 2, 22, 23, 24, 25, 255, 256, 257, 65_535, 65_536, 70_000]


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 70, 79]), st.sampled_from(SIZES) | st.integers(0, 600)),
        max_size=8,
    )
)
def test_every_typed_array_starts_on_a_multiple_of_8_and_all_is_plain(
    shape: list[tuple[int | None, int]],
) -> None:
    data = [(b"column %d" % key * (size // 8 + 1))[:size] for key, (_, size) in enumerate(shape)]
    body = layout.write(
        [Column(key, tag, [data[key]]) for key, (tag, _) in enumerate(shape)],
    )

    plain = cbor2.loads(body)
    read = layout.read(body, keys_below=8)

    for key, (tag, size) in enumerate(shape):
        assert plain[key] == (data[key] if tag is None else cbor2.CBORTag(tag, data[key]))
        assert read[key] == layout.Found(tag, memoryview(data[key]))
        # The name of the column is in no head; shorter ones might be.
        assert tag is None or size < len("column n") or body.index(data[key]) % 8 == 0


@pytest.mark.parametrize("keys", [[1, 0], [0, 0, 1], [0, 1, 1], [0, 1, 8]])
def test_columns_twice_unknown_or_in_another_order_are_corrupt(keys: list[int]) -> None:
    good = {0: Column(0, 70, [U32[2,]]), 1: Column(1, None, [b"ab"]), 8: Column(8, None, [b""])}

    with pytest.raises(Corrupt, match="not known, or not in order"):
        decode(layout.write([good[key] for key in keys]))


def test_a_body_of_one_entry_is_small() -> None:
    assert len(encode([b"x" * 100])) == 115


def test_the_bytes_are_as_documented() -> None:
    """The format on every disk: this must never change."""
    body = encode([b"ab", b"c"], [b"k", None], [(), [("h", b"v")]], [1, 2])

    assert body == bytes.fromhex(
        "a8"  # a map of 8 pairs
        "00 d9 0046 59 0008  02000000 03000000"  # value ends: 2, 3
        "01 43 616263"
        "02 da 00000046 5a 00000008  01000000 01000000"  # key ends: 1, 1
        "03 41 6b"
        "04 41 02"  # the second has no key
        "1805 d9 004f 5a 00000010  0100000000000000 0200000000000000"  # created: 1, 2
        "06 d8 46 5a 00000008  00000000 05000000"  # header ends: 0, 5
        "07 45 82 61 68 41 76"  # ["h", b"v"]
    )


def test_columns_that_say_nothing_are_left_out() -> None:
    plain = encode([b"a", b"b"])

    assert encode([b"a", b"b"], [None, None], [None, {}], None) == plain
    assert set(cbor2.loads(encode([b"a"], [b""]))) == {0, 1, 2, 3}
    assert set(cbor2.loads(encode([b"a"], None, [{"h": b""}]))) == {0, 1, 6, 7}
    assert cut(decode(encode([b"a", b"b"], [None, b"k"])), 0, 1) == encode([b"a"])


def test_a_header_whose_name_is_no_text_is_refused() -> None:
    """As of a command line that was not written in UTF-8."""
    with pytest.raises(Refused, match=r"the name of a header is no text: 'h\\udcff'"):
        encode([b""], None, [{"h\udcff": b"v"}])


def test_headers_may_repeat_a_name_and_keep_their_order() -> None:
    pairs = (("b", b"1"), ("a", b"2"), ("b", b"3"))

    assert decode(encode([b"x"], None, [pairs])).header_list(0, 1) == [pairs]


def test_a_missing_key_is_not_an_empty_key() -> None:
    found = decode(encode([b"1", b"2", b"3"], [b"", None, b"k"]))

    assert found.key_list(0, 3) == [b"", None, b"k"]
    assert found.key_list(1, 3) == [None, b"k"]


def test_the_largest_batch_is_encoded_cut_and_joined() -> None:
    body = encode([b"v"] * BATCH_ENTRIES_MAX, [None, b"k"] * (BATCH_ENTRIES_MAX // 2))
    found = decode(body)
    halves = [decode(cut(found, 0, 30_001)), decode(cut(found, 30_001, BATCH_ENTRIES_MAX))]

    assert join(halves) == body
    with pytest.raises(LimitExceeded, match=r"65,537.*65,536"):
        join([*halves, decode(encode([b"one more"]))])


def test_what_is_too_large_is_refused_by_name() -> None:
    mib = ENTRY_BYTES_MAX
    largest = [b"v" * (mib - 10)]
    too_many: list[tuple[str, Any]] = [
        ("entries", lambda: encode([b""] * (BATCH_ENTRIES_MAX + 1))),
        ("batch in bytes", lambda: encode([b"x" * mib] * 4)),
        ("batch in bytes", lambda: encode([b"x" * mib] * 5)),
        ("entry in bytes", lambda: encode([b"x" * (mib + 1)])),
        ("entry in bytes", lambda: encode([b"x" * mib], [b"k"])),
        ("entry in bytes", lambda: encode(largest, [b"key"], [{"h": b"four more"}])),
        ("number of headers", lambda: encode([b""], None, [[("h", b"")] * (HEADERS_MAX + 1)])),
        ("headers in bytes", lambda: encode([b""], None, [{"h": b"v" * 65_536}])),
        ("batch in bytes", lambda: join([decode(encode(largest))] * 5)),
        ("batch in bytes", lambda: decode(bytes(BATCH_BYTES_MAX + 1))),
        ("entry in bytes", lambda: decode(crafted([b"x" * (mib + 1)]))),
        ("entries", lambda: decode(crafted([b""] * (BATCH_ENTRIES_MAX + 1)))),
    ]

    for what, make in too_many:
        with pytest.raises(LimitExceeded, match=what) as caught:
            make()
        assert caught.value.value > caught.value.limit
    assert decode(encode(largest, [b"k"], [{"h": b"v"}])).header_list(0, 1) == [(("h", b"v"),)]


def crafted(values: list[bytes]) -> bytes:
    """A body that `encode` would refuse."""
    ends = array("I", accumulate(map(len, values)))
    return layout.write([Column(0, 70, [ends.tobytes()]), Column(1, None, values)])


def test_columns_that_do_not_belong_together_are_refused() -> None:
    refused: list[Any] = [
        lambda: encode([]),
        lambda: encode([b"a"], [b"k", b"l"]),
        lambda: encode([b"a"], None, [None, None]),
        lambda: encode([b"a"], None, None, []),
        lambda: encode([b"a"], None, [{"h": "text"}]),  # type: ignore[dict-item]
        lambda: encode([b"a"], None, [{b"h": b"v"}]),  # type: ignore[dict-item]
        lambda: join([decode(encode([b"a"], None, None, [1])), decode(encode([b"b"]))]),
    ]

    for make in refused:
        with pytest.raises(Refused):
            make()


U32 = {ends: array("I", ends).tobytes() for ends in [(), (1,), (2,), (1, 2), (2, 1), (3,), (1, 3)]}


@pytest.mark.parametrize(
    "columns_of_body",
    [
        pytest.param([], id="no columns"),
        pytest.param([(0, 70, U32[2,])], id="no values"),
        pytest.param([(1, None, b"ab")], id="no ends"),
        pytest.param([(0, 70, U32[()]), (1, None, b"")], id="no entries"),
        pytest.param([(0, 70, U32[1,]), (1, None, b"ab")], id="ends before the last"),
        pytest.param([(0, 70, U32[3,]), (1, None, b"ab")], id="ends behind the last"),
        pytest.param([(0, 70, U32[2, 1]), (1, None, b"a")], id="ends that go back"),
        pytest.param([(0, 70, U32[2,][:3]), (1, None, b"ab")], id="part of an end"),
        pytest.param([(0, None, U32[2,]), (1, None, b"ab")], id="ends without a tag"),
        pytest.param([(0, 79, U32[1, 2]), (1, None, b"ab")], id="ends with another tag"),
        pytest.param([(0, 70, U32[2,]), (1, 70, b"abcd")], id="values with a tag"),
        pytest.param([(0, 70, U32[2,]), (1, None, b"ab"), (2, 70, U32[2,])], id="no keys"),
        pytest.param([(0, 70, U32[2,]), (1, None, b"ab"), (3, None, b"k")], id="no key ends"),
        pytest.param(
            [(0, 70, U32[2,]), (1, None, b"ab"), (2, 70, U32[1, 2]), (3, None, b"kl")],
            id="more keys than values",
        ),
        pytest.param(
            [(0, 70, U32[2,]), (1, None, b"ab"), (4, None, b"\0")], id="null keys without keys"
        ),
        pytest.param(
            [
                (0, 70, U32[2,]),
                (1, None, b"ab"),
                (2, 70, U32[1,]),
                (3, None, b"k"),
                (4, None, b"\2"),
            ],
            id="a null key too many",
        ),
        pytest.param(
            [
                (0, 70, U32[2,]),
                (1, None, b"ab"),
                (2, 70, U32[1,]),
                (3, None, b"k"),
                (4, None, b"\0\0"),
            ],
            id="null keys too long",
        ),
        pytest.param([(0, 70, U32[2,]), (1, None, b"ab"), (5, 79, bytes(16))], id="times too many"),
        pytest.param([(0, 70, U32[2,]), (1, None, b"ab"), (5, 79, b"1234")], id="half a time"),
        pytest.param([(0, 70, U32[2,]), (1, None, b"ab"), (7, None, b"h")], id="no header ends"),
        pytest.param([(0, 70, U32[2,]), (1, None, b"ab"), (8, None, b"")], id="an unknown column"),
    ],
)
def test_a_map_that_is_no_batch_is_corrupt(
    columns_of_body: list[tuple[int, int | None, bytes]],
) -> None:
    body = layout.write([Column(key, tag, [data]) for key, tag, data in columns_of_body])

    with pytest.raises(Corrupt):
        decode(body)


GOOD = encode([b"ab"])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xa0", id="an empty map"),
        pytest.param(b"\x80", id="an array"),
        pytest.param(b"\xbf" + GOOD[1:] + b"\xff", id="a map without a length"),
        pytest.param(b"\xb8\x02" + GOOD[1:], id="all one byte further: not aligned"),
        pytest.param(GOOD + b"\0", id="something behind it"),
        pytest.param(GOOD[:-1], id="the last byte is missing"),
        pytest.param(b"\xa3" + GOOD[1:], id="a column is missing"),
        pytest.param(b"\xbb" + b"\xff" * 8, id="a map of 2^64"),
        pytest.param(b"\xa1\x01\x5b" + b"\xff" * 8, id="values of 2^64"),
        pytest.param(b"\xa1\x20\x40", id="a negative key"),
        pytest.param(b"\xa1\x61a\x40", id="a text as a key"),
        pytest.param(b"\xa2\x01\x40\x01\x40", id="a key twice"),
        pytest.param(b"\xa2\x01\x40\x00\x40", id="keys in another order"),
        pytest.param(b"\xa1\x01\x5f\x40\xff", id="values in pieces"),
        pytest.param(b"\xa1\x01\x60", id="text for values"),
        pytest.param(b"\xa1\x00\xd8\x46\xd8\x46\x40", id="a tag on a tag"),
    ],
)
def test_cbor_that_is_no_body_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(body)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x81\x61h",
        b"\x82\x61h\x61v",
        b"\x82\x41h\x41v",
        b"\xa0",
        b"\xff",
        b"\x80\x80",
        b"\x9f\xff",
    ],
)
def test_headers_that_are_none_are_corrupt_when_they_are_asked_for(raw: bytes) -> None:
    ends = len(raw).to_bytes(4, "little")
    body = layout.write([*ONE_VALUE, Column(6, 70, [ends]), Column(7, None, [raw])])
    found = decode(body)

    assert found.value_list(0, 1) == [b"v"]
    with pytest.raises(Corrupt):
        found.header_list(0, 1)


ONE_VALUE = [Column(0, 70, [U32[1,]]), Column(1, None, [b"v"])]


@given(
    st.binary(max_size=300)
    | st.binary(max_size=300).map(lambda rest: b"\xa2\x00\xd9\x00\x46" + rest)
)
def test_any_bytes_are_a_batch_or_refused(body: bytes) -> None:
    assert_batch_or_refused(body)


@settings(max_examples=300)
@given(batches(), st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), max_size=4))
@example(Batch([b"a"], [b"k"], None, None), [(8, 0xFF)])
def test_a_body_with_changed_bytes_is_a_batch_or_refused(
    batch: Batch, changes: list[tuple[int, int]]
) -> None:
    body = bytearray(encode(*batch))
    for at, byte in changes:
        body[at % len(body)] = byte

    assert_batch_or_refused(bytes(body))


@given(batches(), st.data())
def test_a_body_that_was_cut_off_or_spliced_is_a_batch_or_refused(
    batch: Batch, data: st.DataObject
) -> None:
    body = encode(*batch)
    a, b = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, len(body)))

    assert_batch_or_refused(body[:a])
    assert_batch_or_refused(body[:a] + body[b:])


def assert_batch_or_refused(body: bytes) -> None:
    """Whatever passes `decode` can be read, cut and joined; nothing else ever escapes."""
    try:
        found = decode(body)
    except (Corrupt, Refused):
        return
    count = found.entries

    assert sum(map(len, found.value_list(0, count))) == len(found.values.data)
    assert len(found.key_list(0, count)) == count
    assert [decode(cut(found, i, i + 1)).value_list(0, 1)[0] for i in range(count)] == (
        found.value_list(0, count)
    )
    assert decode(join([found, found])).entries == 2 * count
    with contextlib.suppress(Corrupt, Refused):
        assert len(found.header_list(0, count)) == count


def test_hostile_ends_cost_neither_time_nor_memory() -> None:
    """Random ends of the largest batch are the worst for sorting; huge counts must not allocate.

    Time is counted in steps of Python, which a busy machine does not make more of.
    """
    ends = array("I", [(i * 2_654_435_761) % 2**32 for i in range(BATCH_ENTRIES_MAX)]).tobytes()
    worst = layout.write([Column(0, 70, [ends]), Column(1, None, [b"x"])])
    steps = 0

    def count(_frame: FrameType, _event: str, _arg: object) -> Callable[..., Any]:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    tracemalloc.start()
    sys.settrace(count)
    try:
        with pytest.raises(Corrupt):
            decode(worst)
    finally:
        sys.settrace(before)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert steps < 1_000
    assert peak < 8 * 2**20


@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50),
    st.integers(-(2**32), 2**32),
)
def test_ends_are_shifted_all_at_once(ends: list[int], by: int) -> None:
    by = max(-min(ends), min(by, 2**32 - 1 - max(ends)))

    assert shifted(memoryview(array("I", ends)), by) == array("I", [e + by for e in ends]).tobytes()


@given(st.integers(0, 9), st.integers(1, 99), st.data())
def test_values_of_one_length_are_cut_out_as_any_others(
    length: int, count: int, data: st.DataObject
) -> None:
    values = [bytes([65 + i]) * length for i in range(count)]
    lo = data.draw(st.integers(0, count - 1))
    hi = data.draw(st.integers(lo + 1, count))

    assert decode(encode(values)).value_list(lo, hi) == values[lo:hi]
    if count > 2 and length:
        values[1], values[-1] = values[1] + b"x", values[-1][1:]
        assert decode(encode(values)).value_list(lo, hi) == values[lo:hi]


EDGES = st.sampled_from([0, 1, 2, 3, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])


@example([2**32 - 1, 3], False)
@given(st.lists(EDGES | st.integers(0, 9), min_size=1, max_size=9), st.booleans())
def test_ends_are_whole_if_they_rise_to_the_end_of_the_data(ends: list[int], rise: bool) -> None:
    if rise:
        ends.sort()
    size = ends[-1] if ends[-1] < 2**20 else 5
    strings = Strings(memoryview(array("I", ends)), memoryview(bytes(size)))

    assert strings.whole() == (ends == sorted(ends) and ends[-1] == size)


def test_the_hash_of_a_key_is_its_crc32c_and_of_none_zero() -> None:
    hashes = array("I", columns.key_hashes([b"a", None, b"", b"key"]))

    assert hashes.tolist() == [crc32c(b"a"), 0, 0, crc32c(b"key")]


@pytest.mark.parametrize("length", [0, 1, 23, 24, 100, 255, 256, 65_535, 65_536, ENTRY_BYTES_MAX])
def test_a_body_of_one_value_is_known_by_its_beginning(length: int) -> None:
    value = b"v" * length
    body = columns.encode([value])

    assert columns.encode_one(value) == body
    assert columns.is_one(body)
    assert columns.is_one(memoryview(body))


@given(st.binary(max_size=80), st.integers(0, 60), st.integers(0, 255))
def test_only_a_whole_body_is_known_by_its_beginning(value: bytes, at: int, byte: int) -> None:
    body = bytearray(columns.encode([value]))
    body[at % len(body)] = byte
    for changed in (bytes(body), bytes(body[:-1]), bytes(body) + b"x", bytes(body[:at])):
        if columns.is_one(changed):
            assert len(columns.decode(changed)) == 1


def test_other_bodies_are_not_taken_for_one_value() -> None:
    others = [columns.encode([b"a", b"b"]), columns.encode([b"a"], keys=[b"k"]), b"", b"x" * 20]

    assert [columns.is_one(body) for body in others] == [False] * 4
