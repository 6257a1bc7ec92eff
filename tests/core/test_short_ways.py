"""What is written and read for every entry has a shorter way: it says the same as the general one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duckrow.node import cbor, makers, requests
from duckrow.node.commands import decode_head
from duckrow.node.effects import Result
from duckrow.node.limits import BATCH_ENTRIES_MAX, NUMBER_LIMIT, PARTITIONS_MAX
from duckrow.node.makers import Turn
from duckrow.node.requests import Outcome, Verb

EDGES = [edge + near for bits in (0, 8, 16, 32, 63) for edge in [1 << bits] for near in (-1, 0, 1)]
NUMBERS = st.integers(0, NUMBER_LIMIT - 1) | st.sampled_from([0, 23, 24, *EDGES[:-2]])
PIDS = st.binary(min_size=16, max_size=16)
NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,128}", fullmatch=True)
RESULTS = st.builds(Result, *[NUMBERS] * 7, st.booleans())
OUTCOMES = st.sampled_from([int(Outcome.DONE), int(Outcome.MORE)])


@given(st.lists(NUMBERS, max_size=20))
def test_numbers_are_written_as_by_cbor(values: list[int]) -> None:
    raw = cbor.numbers(*values)

    assert raw == b"".join(map(cbor.dumps, values))
    assert cbor.numbers_in(raw, 0, len(values)) == (values, len(raw))


@pytest.mark.parametrize("value", [-1, -24, -25, -(1 << 32), 1 << 64])
def test_what_is_no_such_number_is_not_written(value: int) -> None:
    with pytest.raises(struct.error):
        cbor.numbers(1, value)


@pytest.mark.parametrize("length", [0, 1, 23, 24, 255, 256, 65_535])
def test_bytes_are_written_as_by_cbor(length: int) -> None:
    assert cbor.bytes_head(length) + bytes(length) == cbor.dumps(bytes(length))


@given(NUMBERS, st.binary(max_size=600), st.booleans())
@example(1, bytes(24), True)
@example(1, bytes(255), False)
def test_an_order_is_a_request(reference: int, head: bytes, accepted: bool) -> None:
    raw = requests.order(reference, head, accepted)

    assert raw == requests.request(reference, Verb.ORDER, head, accepted)
    short = requests.order_in(raw)
    assert short is None or short == (reference, head, accepted)
    if 24 <= len(head) < 256 and reference < 1 << 32:
        assert short is not None


@given(NUMBERS, OUTCOMES, RESULTS)
def test_a_result_is_an_answer(reference: int, outcome: int, result: Result) -> None:
    raw = requests.result(reference, outcome, result)

    assert raw == cbor.dumps([reference, outcome, *result])
    assert requests.result_in_answer(raw) == (reference, outcome, result)


@given(
    NUMBERS,
    st.binary(min_size=30, max_size=100),
    st.booleans(),
    RESULTS,
    st.data(),
)
def test_what_a_shorter_way_reads_is_what_the_general_way_reads(
    reference: int, head: bytes, accepted: bool, result: Result, data: st.DataObject
) -> None:
    """Also of bytes that were cut, or changed, or are followed by others."""
    order = requests.order(reference, head, accepted)
    answer = requests.result(reference, requests.DONE, result)
    for raw in (order, answer):
        at = data.draw(st.integers(0, len(raw) - 1))
        byte = data.draw(st.integers(0, 255))
        for broken in (raw[:at], raw + bytes([byte]), raw[:at] + bytes([byte]) + raw[at + 1 :]):
            if (found := requests.order_in(broken)) is not None:
                assert requests.opened(broken) == (found[0], Verb.ORDER, [*found[1:]])
            told = requests.result_in_answer(broken)
            # A reference that nobody can have given is nobody's, whoever reads it.
            if told is not None and told[0] < NUMBER_LIMIT:
                reference, outcome, fields = requests.opened(broken)
                assert told == (reference, outcome, requests.result_in(fields))


@given(
    PIDS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NAMES,
    st.binary(max_size=300),
    st.integers(1, BATCH_ENTRIES_MAX),
    st.integers(0, PARTITIONS_MAX - 1),
    st.integers(1, PARTITIONS_MAX),
)
def test_a_plain_produce_is_made_as_any_other(
    pid: bytes,
    seq: int,
    epoch: int,
    done: int,
    time: int,
    topic: str,
    body: bytes,
    count: int,
    partition: int,
    partitions: int,
) -> None:
    turn = Turn(pid, seq, epoch, done, time)
    where = topic, body, count, partition, partitions
    short = makers.produce_checked(turn, *where, None, None, None)

    whole = makers.produce(turn, topic, body, count, partition=partition, partitions=partitions)
    assert short == whole
    assert decode_head(short.head) == decode_head(whole.head)
