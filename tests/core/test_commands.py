"""Heads: what the makers write the readers read, and nothing else passes for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import cbor, makers
from duckrow.node.checksum import crc32c
from duckrow.node.commands import (
    COMMON_FIELDS,
    Command,
    Commit,
    Delete,
    Head,
    Kind,
    Produce,
    Prune,
    Settings,
    Stage,
    Switch,
    TopicPolicy,
    check_body,
    decode_head,
    encode_head,
)
from duckrow.node.errors import Corrupt, LimitExceeded, Refused
from duckrow.node.limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    COMMIT_STAGES_MAX,
    HEAD_BYTES_MAX,
    IDS_PER_BATCH_MAX,
    KEYED_ENTRIES_MAX,
    NUMBER_LIMIT,
    PARTITIONS_MAX,
)
from duckrow.node.makers import Turn
from duckrow.node.names import is_topic_name

PID = bytes(range(16))
TURN = Turn(PID, 5, epoch=2, done=3, time=1_700_000_000_000_000)
POLICY = {"max_entries": 10, "when_full": "reject", "max_age": None}

NUMBERS = st.integers(0, NUMBER_LIMIT - 1)
TURNS = st.builds(
    Turn, st.binary(min_size=16, max_size=16), NUMBERS, epoch=NUMBERS, done=NUMBERS, time=NUMBERS
)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,128}", fullmatch=True).filter(is_topic_name)
READERS: list[Any] = [Produce, Stage, Commit, TopicPolicy, Delete, Prune, Switch, Settings]
EVERY_KIND: dict[str, Callable[[], Command]] = {
    "produce": lambda: makers.produce(TURN, "t", b"body", 2),
    "ids": lambda: makers.produce(TURN, "t", b"body", 2, ids=[b"a", b"b"], expect_last=0),
    "keyed": lambda: makers.produce(TURN, "t", b"body", 2, key_hashes=b"hash" * 2),
    "stage": lambda: makers.stage(TURN, "t", b"body", 1, writer=b"w", batch=7, task=3),
    "commit": lambda: makers.commit(TURN, b"w", 7, [(10, 0), (11, 2)]),
    "create": lambda: makers.create(TURN, "t", POLICY),
    "configure": lambda: makers.configure(TURN, "t", POLICY, topic_id=9),
    "delete": lambda: makers.delete(TURN, "t", topic_id=9),
    "prune": lambda: makers.prune(TURN, "t", 1_000, partition=3),
    "skip": lambda: makers.skip(TURN, "t", 3),
    "clock": lambda: makers.clock(TURN),
    "barrier": lambda: makers.barrier(TURN),
    "switch": lambda: makers.switch(TURN, 2),
    "settings": lambda: makers.settings(TURN, {"topics": 10}),
}


@given(TURNS, TOPICS, st.binary(max_size=100), st.data())
def test_a_produce_is_read_as_it_was_made(
    turn: Turn, topic: str, body: bytes, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 50))
    partitions = data.draw(st.integers(1, PARTITIONS_MAX))
    partition = data.draw(st.integers(0, partitions - 1))
    topic_id, last = data.draw(NUMBERS), data.draw(NUMBERS | st.none())
    hashes = data.draw(st.none() | st.binary(min_size=4 * count, max_size=4 * count))
    each_id = st.binary(min_size=1, max_size=64)
    ids = data.draw(st.none() | st.lists(each_id, min_size=count, max_size=count))
    command = makers.produce(
        turn,
        topic,
        body,
        count,
        partition=partition,
        partitions=partitions,
        topic_id=topic_id,
        codec=1,
        key_hashes=hashes,
        ids=ids,
        expect_last=last,
    )

    head = decode_head(command.head)

    assert head[:COMMON_FIELDS] == (
        *(Kind.PRODUCE, turn.pid, turn.epoch, topic, partition, turn.seq, turn.done, turn.time),
        *(len(body), crc32c(body), topic_id),
    )
    assert Produce.of(head) == Produce(partitions, count, 1, hashes, ids, last)
    assert encode_head(head) == command.head
    check_body(head, command.body)


def test_every_kind_is_read_as_it_was_made() -> None:
    made = {name: decode_head(make().head) for name, make in EVERY_KIND.items()}

    assert Stage.of(made["stage"]) == Stage(1, 1, 0, None, b"w", 7, 3)
    assert Commit.of(made["commit"]) == Commit(b"w", 7, ((10, 0), (11, 2)))
    assert TopicPolicy.of(made["create"]) == TopicPolicy("t", POLICY)
    assert TopicPolicy.of(made["configure"]) == TopicPolicy("t", POLICY)
    assert Delete.of(made["delete"]) == Delete("t")
    assert Prune.of(made["prune"]) == Prune("t", 3, 1_000)
    assert Switch.of(made["switch"]) == Switch(2)
    assert Settings.of(made["settings"]) == Settings({"topics": 10})


def test_only_batches_and_skips_go_in_a_lane_of_their_topic() -> None:
    """The answer to a deletion has to survive the topic; so its lane is none of the topic's."""
    lanes = {name: decode_head(make().head).lane for name, make in EVERY_KIND.items()}

    assert {name for name, lane in lanes.items() if lane != (PID, "", 0)} == {
        *("produce", "ids", "keyed", "stage", "skip"),
    }
    assert lanes["skip"] == (PID, "t", 3)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_fields_that_a_later_version_adds_are_ignored(name: str) -> None:
    head = decode_head(EVERY_KIND[name]().head)
    later = decode_head(encode_head(head._replace(extra=(*head.extra, "new", [1], None))))

    assert later[:COMMON_FIELDS] == head[:COMMON_FIELDS]
    if head.extra:
        assert reader_of(later).of(later) == reader_of(head).of(head)


JUNK: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.just([]) | st.just({})
)


@pytest.mark.parametrize("field", range(COMMON_FIELDS))
@given(junk=JUNK | st.sampled_from([-1, -(2**63), NUMBER_LIMIT, 2**64 - 1, b"short", b"x" * 17]))
def test_a_common_field_of_the_wrong_form_is_corrupt(field: int, junk: object) -> None:
    fields = cbor.loads_array(EVERY_KIND["produce"]().head)
    if type(junk) is str and type(fields[field]) is str:
        return
    fields[field] = junk

    with pytest.raises(Corrupt):
        decode_head(cbor.dumps(fields))


@pytest.mark.parametrize(
    "name", [n for n, make in EVERY_KIND.items() if decode_head(make().head).extra]
)
@given(data=st.data())
def test_extra_fields_of_the_wrong_form_are_corrupt(name: str, data: st.DataObject) -> None:
    head = decode_head(EVERY_KIND[name]().head)
    reader = reader_of(head)
    field = data.draw(st.integers(0, len(head.extra) - 1))
    junk = data.draw(
        JUNK | st.sampled_from([-1, NUMBER_LIMIT, b"", [-1], [[1]], [[1, 2, 3]], [b""]])
    )
    wrong = head._replace(extra=(*head.extra[:field], junk, *head.extra[field + 1 :]))

    try:
        read = reader.of(wrong)
    except Corrupt:
        return

    # What passes for another value of the field must be one of its type.
    assert {type(value) for value in read} <= {int, str, bytes, list, dict, tuple, type(None)}
    assert bool not in map(type, read)
    assert not any(type(value) is int and not 0 <= value < NUMBER_LIMIT for value in read)


@pytest.mark.parametrize(
    "name", [n for n, make in EVERY_KIND.items() if decode_head(make().head).extra]
)
def test_a_missing_field_is_corrupt(name: str) -> None:
    head = decode_head(EVERY_KIND[name]().head)

    for kept in range(len(head.extra)):
        with pytest.raises(Corrupt):
            reader_of(head).of(head._replace(extra=head.extra[:kept]))
    for kept in range(COMMON_FIELDS):
        with pytest.raises(Corrupt):
            decode_head(cbor.dumps(list(head)[:kept]))


def test_hashes_and_ids_have_to_be_one_for_each_entry() -> None:
    keyed, named, staged = (decode_head(EVERY_KIND[n]().head) for n in ("keyed", "ids", "stage"))
    wrong: list[tuple[Head, int, object]] = [
        *((keyed, 3, hashes) for hashes in (b"", b"four", b"seven b", b"nine byte", bytes(12))),
        *(
            (named, 4, ids)
            for ids in ([], [b"a"], [b"a", b"b", b"c"], [b"a", b"i" * 65], [b"", b"b"])
        ),
        *((staged, 3, hashes) for hashes in (b"", b"fiver", bytes(8))),
    ]

    many = named._replace(extra=(1, IDS_PER_BATCH_MAX + 1, *named.extra[2:]))
    wrong.append((many, 4, [b"i"] * (IDS_PER_BATCH_MAX + 1)))

    for head, field, junk in wrong:
        extra = (*head.extra[:field], junk, *head.extra[field + 1 :])
        with pytest.raises(Corrupt):
            reader_of(head).of(head._replace(extra=extra))


@given(st.binary(max_size=100) | st.builds(cbor.dumps, st.lists(JUNK | NUMBERS, max_size=20)))
def test_any_bytes_are_a_head_or_corrupt(raw: bytes) -> None:
    try:
        head = decode_head(raw)
        for reader in READERS:
            reader.of(head)
    except Corrupt:
        pass


@given(st.sampled_from(sorted(EVERY_KIND)), st.integers(0, 10_000), st.integers(0, 255))
def test_a_head_with_a_changed_byte_is_a_head_or_corrupt(name: str, at: int, byte: int) -> None:
    raw = bytearray(EVERY_KIND[name]().head)
    raw[at % len(raw)] = byte

    try:
        head = decode_head(raw)
        reader_of(head).of(head)
    except Corrupt:
        pass


def reader_of(head: Head) -> Any:
    return {
        Kind.PRODUCE: Produce,
        Kind.STAGE: Stage,
        Kind.COMMIT: Commit,
        Kind.CREATE: TopicPolicy,
        Kind.CONFIGURE: TopicPolicy,
        Kind.DELETE: Delete,
        Kind.PRUNE: Prune,
        Kind.SWITCH: Switch,
        Kind.SETTINGS: Settings,
    }.get(head.kind, Produce)  # type: ignore[call-overload]


def test_a_body_that_changed_is_found() -> None:
    command = makers.produce(TURN, "t", b"body", 1)
    head = decode_head(command.head)

    with pytest.raises(Corrupt, match="crc32c"):
        check_body(head, b"b0dy")
    with pytest.raises(Corrupt, match="3 bytes"):
        check_body(head, b"bod")


def test_a_refusal_names_the_limit_and_the_value() -> None:
    ids = [b"i"] * (IDS_PER_BATCH_MAX + 1)
    beyond: list[tuple[Callable[[], Command], int]] = [
        (lambda: makers.produce(TURN, "t", b"", BATCH_ENTRIES_MAX + 1), BATCH_ENTRIES_MAX),
        (lambda: makers.produce(TURN, "t", bytes(BATCH_BYTES_MAX + 1), 1), BATCH_BYTES_MAX),
        (lambda: makers.produce(TURN, "t", b"", 257, ids=ids), IDS_PER_BATCH_MAX),
        (lambda: makers.produce(TURN, "t", b"", 1, ids=[b"i" * 65]), 64),
        (lambda: makers.produce(TURN, "t", b"", 1, codec=256), 255),
        (lambda: makers.produce(TURN, "t", b"", 1, partitions=1_025), PARTITIONS_MAX),
        (lambda: makers.produce(TURN, "t", b"", 1, partition=1_024), PARTITIONS_MAX - 1),
        (lambda: makers.produce(TURN, "t", b"", 1, expect_last=1 << 63), NUMBER_LIMIT - 1),
        (
            lambda: makers.produce(TURN, "t", b"", 16_001, key_hashes=bytes(64_004)),
            KEYED_ENTRIES_MAX,
        ),
        (lambda: makers.stage(TURN, "t", b"", 1, writer=b"w" * 65, batch=1, task=1), 64),
        (lambda: makers.commit(TURN, b"w", 1, [(1, 1)] * 4_097), COMMIT_STAGES_MAX),
        (lambda: makers.prune(TURN, "t", 1, partition=1_024), PARTITIONS_MAX - 1),
        (lambda: makers.create(TURN, "t", {"x": "y" * HEAD_BYTES_MAX}), HEAD_BYTES_MAX),
    ]

    for make, limit in beyond:
        with pytest.raises(LimitExceeded) as caught:
            make()
        assert caught.value.limit == limit
        assert caught.value.value > limit
        assert f"{limit:,}" in str(caught.value)


def test_nothing_and_less_than_nothing_are_refused() -> None:
    refused: list[Callable[[], Command]] = [
        lambda: makers.produce(TURN, "t", b"", 0),
        lambda: makers.produce(TURN, "t", b"", 1, partitions=0),
        lambda: makers.produce(TURN, "t", b"", 1, partition=-1),
        lambda: makers.produce(TURN, "t", b"", 1, expect_last=-1),
        lambda: makers.produce(TURN, "t", b"", 1, ids=[b""]),
        lambda: makers.produce(TURN, "t", b"", 2, ids=[b"one"]),
        lambda: makers.produce(TURN, "t", b"", 2, key_hashes=b"four"),
        lambda: makers.stage(TURN, "t", b"", 1, writer=b"", batch=1, task=1),
        lambda: makers.commit(TURN, b"w", -1, []),
        lambda: makers.switch(TURN, -1),
    ]

    for make in refused:
        with pytest.raises(Refused):
            make()


def test_the_largest_of_everything_fits_a_head() -> None:
    turn = Turn(PID, *[NUMBER_LIMIT - 1] * 4)
    topic, most = "t" * 128, NUMBER_LIMIT - 1
    hashes = b"\xff" * 4 * KEYED_ENTRIES_MAX
    keyed = makers.produce(
        turn,
        topic,
        b"",
        KEYED_ENTRIES_MAX,
        partition=1_023,
        partitions=1_024,
        topic_id=most,
        key_hashes=hashes,
        expect_last=most,
    )
    named = makers.produce(turn, topic, b"", 256, topic_id=most, ids=[b"i" * 64] * 256)
    staged = makers.stage(
        *(turn, topic, b"", KEYED_ENTRIES_MAX),
        writer=b"w" * 64,
        batch=most,
        task=most,
        key_hashes=hashes,
    )
    committed = makers.commit(turn, b"w" * 64, most, [(most, 16_383)] * COMMIT_STAGES_MAX)

    assert Produce.of(decode_head(keyed.head)).key_hashes == hashes
    assert Produce.of(decode_head(named.head)).ids == [b"i" * 64] * 256
    assert Stage.of(decode_head(staged.head)).key_hashes == hashes
    assert len(Commit.of(decode_head(committed.head)).stages) == COMMIT_STAGES_MAX


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 128, "...", ".a"])
def test_a_topic_may_be_called_so(name: str) -> None:
    assert is_topic_name(name)
    assert decode_head(makers.produce(TURN, name, b"", 1).head).topic == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 129, "a b", "a/b", "a\n", "a\x00", "ä", "\u017f", "a:b", "\uff41"]
)
def test_a_topic_may_not_be_called_so(name: str) -> None:
    assert not is_topic_name(name)
    for make in (makers.create, makers.delete):
        with pytest.raises(Refused, match="not allowed"):
            make(TURN, name)
    with pytest.raises(Refused, match="not allowed"):
        makers.produce(TURN, name, b"", 1)


def test_the_complaint_about_an_endless_name_is_short() -> None:
    with pytest.raises(Refused) as caught:
        makers.create(TURN, "x" * 1_000_000)

    assert len(str(caught.value)) < 300
