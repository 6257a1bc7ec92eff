"""Captures and hashes: the same state again, however slowly it was taken."""

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.commandsets import drawn_by, play
from core.rowkit import BOB, SECOND, Row
from duckrow.node import cbor, makers
from duckrow.node.capture import CHUNK_BYTES_MAX, capture, hashing, restore, state_hash
from duckrow.node.errors import Corrupt
from duckrow.node.limits import RUNS_MAX
from duckrow.node.state import State


def busy() -> Row:
    """Something in every table."""
    row = Row((1, 1), (2, 2), create="on-produce", ids_max=5)
    row.create("a", when_full="block", max_entries=3, partitions=3, archive=2)
    row.create("b", max_age=60 * SECOND, max_bytes=1_000)
    for n in range(200):
        row.time += SECOND
        row.produce("b", size=3)
        row.produce("c", ids=[b"%d" % n], pid=BOB)
        if n < 10:
            row.produce("a", partitions=3, partition=1)
    for batch in (1, 2):
        row.ask(makers.stage(row.turn(topic="c"), "c", b"x", 1, writer=b"w", batch=batch, task=1))
    row.ask(makers.commit(row.turn(), b"v", 1, []))
    row.item(origin=2)
    return row


def test_a_restored_state_is_the_same_state() -> None:
    row = busy()
    again = restore(capture(row.state))

    assert state_hash(again) == state_hash(row.state)
    assert again.position == row.state.position
    assert again.topics.rows == row.state.topics.rows
    assert again.partitions.rows == row.state.partitions.rows
    assert list(again.lanes.rows.items()) == list(row.state.lanes.rows.items())
    assert again.waiting.rows == row.state.waiting.rows
    assert again.stages.rows == row.state.stages.rows
    assert again.ids.rows == row.state.ids.rows
    assert list(again.writers.rows.items()) == list(row.state.writers.rows.items())
    assert (again.view, again.stamps) == (row.state.view, row.state.stamps)
    assert (again.settings, again.version) == (row.state.settings, row.state.version)


def test_a_fresh_state_is_captured_too() -> None:
    assert state_hash(restore(capture(State()))) == state_hash(State())


def test_chunks_are_small_and_plain_cbor() -> None:
    row = Row()
    for n in range(3 * RUNS_MAX):
        row.item(row.batch("big", size=n % 7, done=n))
    row.item(*(row.batch(f"topic-{n}") for n in range(3_000)))
    row.create("w", when_full="block", max_entries=256)
    row.produce("w")
    names = [[b"%064d" % (n * 256 + k) for k in range(256)] for n in range(12)]
    for ids in names:
        row.produce("w", 256, ids=ids)
    chunks = list(capture(row.state, CHUNK_BYTES_MAX))

    assert len(chunks) > 10
    assert max(map(len, chunks)) <= CHUNK_BYTES_MAX
    assert all(cbor.dumps(cbor.loads(chunk, CHUNK_BYTES_MAX)) == chunk for chunk in chunks)
    assert state_hash(restore(chunks)) == state_hash(row.state)


def test_what_changes_meanwhile_does_not_show() -> None:
    row = busy()
    expected = state_hash(row.state)
    taking = capture(row.state)
    row.delete("b")
    row.produce("c")
    row.create("b")
    row.produce("b")
    row.prune(1, "a", 1)
    row.set(lanes_max=1, ids_max=1)
    row.tick(99_999)
    row.mark((7, 1))

    assert state_hash(restore(taking)) == expected


def test_a_hash_that_is_made_in_slices_is_that_of_the_moment_at_which_it_was_begun() -> None:
    row = busy()
    row.item(*(row.batch(f"topic-{n}") for n in range(300, 0, -1)))
    expected = state_hash(row.state)
    slices = hashing(row.state)
    assert next(slices) == b""
    row.delete("b")
    row.delete("topic-7")
    row.create("a-first-one")
    row.produce("c")
    row.set(lanes_max=1, ids_max=1)
    row.tick(99_999)
    *others, found = slices

    assert found == expected != state_hash(row.state)
    assert len(others) > 2
    assert not row.state.capturing


def test_one_capture_is_taken_at_a_time() -> None:
    row = busy()
    first = capture(row.state)
    with pytest.raises(AssertionError, match="already"):
        capture(row.state)
    next(first)
    first.close()
    first.close()

    assert list(first) == []
    assert state_hash(restore(capture(row.state))) == state_hash(row.state)
    list(capture(row.state))


def test_a_capture_in_pieces_is_refused() -> None:
    row = Row()
    row.item(*(row.batch(f"topic-{n}") for n in range(3_000)))
    chunks = list(capture(row.state))
    assert len(chunks) > 4
    wrong: list[list[bytes]] = [
        [],
        chunks[:-1],
        chunks[1:],
        chunks[:2] + chunks[3:],
        [*chunks, chunks[-1]],
        [*chunks[:1], *chunks],
    ]
    for pieces in wrong:
        with pytest.raises(Corrupt):
            restore(pieces)


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        (0, 1, "another state"),
        (0, 2, 2),
        (0, 4, "5"),
        (0, 7, [1]),
        (1, 1, b"a"),
        (1, 3, [0, 0]),
        (2, 3, "x"),
        (2, 7, b"odd"),
        (4, 7, [1]),
        (5, 1, None),
        (5, 4, "nowhere"),
        (9, 1, 1),
        (9, 3, b""),
        (255, 1, 3),
        (255, 0, 77),
    ],
)
def test_a_capture_with_a_wrong_field_is_refused(table: int, field: int, value: Any) -> None:
    chunks = [cbor.loads(chunk, CHUNK_BYTES_MAX) for chunk in capture(busy().state)]
    rows = [row for chunk in chunks for row in chunk]
    row = next(row for row in rows if row[0] == table)
    row[field] = value

    with pytest.raises(Corrupt):
        restore([cbor.dumps(rows[n : n + 50]) for n in range(0, len(rows), 50)])


@given(st.integers(0, 10**9))
def test_no_flipped_byte_makes_anything_but_corrupt(seed: int) -> None:
    """Files have checksums; what remains here is that nothing else is raised."""
    rng = random.Random(seed)
    chunks = list(CAPTURED)
    at = rng.randrange(len(chunks))
    where = rng.randrange(len(chunks[at]))
    chunk = bytearray(chunks[at])
    chunk[where] ^= 1 << rng.randrange(8)
    chunks[at] = bytes(chunk)
    with contextlib.suppress(Corrupt):
        restore(chunks)


CAPTURED = list(capture(busy().state))


def test_the_hash_does_not_depend_on_how_the_state_came_to_be() -> None:
    """In other bundles, and with a restart in between: the tables have other histories."""
    one, two = Row(), Row()
    for row in (one, two):
        for name in "abc":
            row.create(name)
    one.item(one.batch("a"), one.batch("b"))
    two.item(two.batch("a"), two.batch("b"))
    two.rest()
    for row in (one, two):
        row.delete("b")
        row.create("b")

    assert state_hash(one.state) == state_hash(two.state)


def test_the_hash_sees_every_table() -> None:
    hashes = set()
    row = Row()

    def look() -> None:
        row.state.position = 0  # or every item would make another one
        hashes.add(state_hash(row.state))
        row.state.position = len(row.items)

    look()
    row.tick(1)
    look()
    row.set(stage_expiry=9)
    look()
    row.mark((1, 1), (2, 1))
    look()
    row.produce(ids=[b"x"])
    look()
    row.skip(2)
    look()
    row.configure(max_entries=1, when_full="block")
    look()
    row.produce(seq=3)
    look()
    row.ask(makers.stage(row.turn(topic="u"), "u", b"x", 1, writer=b"w", batch=1, task=1))
    look()
    row.ask(makers.commit(row.turn(), b"v", 1, []))
    look()

    assert len(hashes) == 10


def test_the_hash_sees_which_lane_is_the_least_recent() -> None:
    """It decides who is forgotten."""
    row = Row()
    row.produce("a")
    row.produce("b")
    before = state_hash(row.state)
    oldest = row.state.lanes.oldest()
    row.state.lanes.renew(oldest, row.state.lanes.rows[oldest])

    assert state_hash(row.state) != before


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_capture_shows_the_moment_at_which_it_was_begun(seed: int) -> None:
    """In slices of a row each, with commands applied in between."""
    rng = random.Random(seed)
    row = Row()
    play(row, drawn_by(rng, rng.randrange(60)))
    expected = state_hash(row.state)
    taking = capture(row.state, chunk_bytes=1)
    chunks = []
    for each in drawn_by(rng, rng.randrange(60)):
        for _ in range(rng.randrange(3)):
            chunks += [chunk for chunk in [next(taking, None)] if chunk is not None]
        play(row, [each])
    chunks += taking

    assert state_hash(restore(chunks)) == expected
