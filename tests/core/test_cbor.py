"""The strict decoder: what it reads, and everything it must not."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duckrow.node import cbor
from duckrow.node.errors import Corrupt, LimitExceeded, Refused
from duckrow.node.limits import HEAD_BYTES_MAX, HEAD_DEPTH_MAX, HEAD_ITEMS_MAX

MARK = b"\xfe" * 8

SCALARS = (
    st.integers(-(2**64), 2**64 - 1)
    | st.binary(max_size=300)
    | st.text(max_size=50)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
    ),
    max_leaves=20,
).filter(lambda value: depth(value) <= HEAD_DEPTH_MAX)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(VALUES)
def test_what_was_written_is_read(value: object) -> None:
    raw = cbor.dumps(value)

    assert cbor.loads(raw) == value
    assert cbor.loads(memoryview(bytearray(raw))) == value


@given(VALUES, st.binary(min_size=1, max_size=30))
@example([1], MARK)
@example([1], b"\x48" + MARK)
@example([1], b"\x48")
@example([1], b"\x58\x08")
@example([1], b"\x48" + MARK[:-1])
@example([1], b"\x58\x08" + MARK)
def test_what_follows_the_value_is_refused(value: object, rest: bytes) -> None:
    with pytest.raises(Corrupt):
        cbor.loads(cbor.dumps(value) + rest)


@given(VALUES, st.data())
def test_a_value_that_was_cut_is_refused(value: object, data: st.DataObject) -> None:
    raw = cbor.dumps(value)
    kept = data.draw(st.integers(0, len(raw) - 1))

    with pytest.raises(Corrupt):
        cbor.loads(raw[:kept])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_corrupt(raw: bytes) -> None:
    assert_value_or_corrupt(raw)


@given(VALUES, st.integers(0, 400), st.integers(0, 255))
def test_one_changed_byte_gives_a_value_or_corrupt(value: object, at: int, byte: int) -> None:
    raw = bytearray(cbor.dumps(value))
    raw[at % len(raw)] = byte

    assert_value_or_corrupt(bytes(raw))


def assert_value_or_corrupt(raw: bytes) -> None:
    try:
        value = cbor.loads(raw)
    except Corrupt:
        return

    assert repr(value) == repr(cbor2.loads(raw))


@given(st.lists(st.sampled_from([MARK, MARK * 3, b"\x48" + MARK, b"x" + MARK]), min_size=1))
def test_a_value_that_holds_the_mark_of_the_decoder_is_read(value: list[bytes]) -> None:
    raw = cbor.dumps(value)

    assert cbor.loads(raw) == value
    for rest in (b"\x00", MARK, b"\x48" + MARK, b"\x48", b"\x58\x08"):
        with pytest.raises(Corrupt):
            cbor.loads(raw + rest)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x9f\x01\xff", id="an array without a length"),
        pytest.param(b"\xbf\xff", id="a map without a length"),
        pytest.param(b"\x5f\x41a\xff", id="a byte string in pieces"),
        pytest.param(b"\x7f\x61a\xff", id="a text in pieces"),
        pytest.param(b"\xa2\x61a\x01\x61a\x02", id="a key twice"),
        pytest.param(b"\xa1\x01\x02", id="a number as a key"),
        pytest.param(b"\xa1\x80\x02", id="an array as a key"),
        pytest.param(b"\x62\xff\xff", id="text that is not UTF-8"),
        pytest.param(b"\x81" * 9 + b"\x01", id="too deep"),
        pytest.param(b"\x81" * 60_000, id="far too deep"),
        pytest.param(b"\x9b" + b"\xff" * 8, id="an array of 2^64"),
        pytest.param(b"\x5b\x7f" + b"\xff" * 7, id="a byte string of 2^63"),
        pytest.param(b"\x58\x20abc", id="a byte string that is not all there"),
        pytest.param(b"\xff", id="a stop without a beginning"),
        pytest.param(b"\x1c", id="a reserved length"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_ambiguous_slow_or_broken_forms_are_refused(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        cbor.loads(raw)


def test_every_tag_is_refused_also_those_that_cbor2_builds_by_itself() -> None:
    payloads = [b"\x00", b"\x60", b"\x42ab", b"\x82\x01\x02", b"\xa0", b"\x6a2020-01-01"]
    for tag in [*range(1_100), 43_000, 55_799, 55_800, 65_535]:
        for payload in payloads:
            with pytest.raises(Corrupt):
                cbor.loads(b"\x81\xd9" + tag.to_bytes(2, "big") + payload)


def test_the_limits_of_a_head_are_named() -> None:
    with pytest.raises(LimitExceeded, match=r"65,536.*65,535"):
        cbor.loads(bytes(HEAD_BYTES_MAX + 1))
    with pytest.raises(LimitExceeded, match=r"257.*256"):
        cbor.loads_array(cbor.dumps([0] * (HEAD_ITEMS_MAX + 1)))


def test_the_largest_head_is_read() -> None:
    head = [b"\x01" * (HEAD_BYTES_MAX - 4)]

    assert len(cbor.dumps(head)) == HEAD_BYTES_MAX
    assert cbor.loads_array(cbor.dumps(head)) == head


@given(SCALARS | st.dictionaries(st.text(max_size=3), SCALARS, max_size=3))
def test_only_an_array_is_an_array(value: object) -> None:
    with pytest.raises(Corrupt):
        cbor.loads_array(cbor.dumps(value))


def test_the_complaint_about_a_value_is_short_whatever_the_value() -> None:
    huge = ["x" * 60_000, b"y" * 60_000, {"k": "z" * 60_000}, list(range(10_000))]

    assert len(str(cbor.malformed("a head", huge))) < 400
    assert isinstance(cbor.malformed("a head", huge), Corrupt)
    assert not isinstance(cbor.malformed("a head", huge), Refused)
