"""What a node and its bridge say to each other, there and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import bridgewire as wire
from duckrow.node import cbor, makers
from duckrow.node.bridgewire import Said, Told, Welcome
from duckrow.node.checksum import crc32c
from duckrow.node.commands import Command
from duckrow.node.env import Buffer
from duckrow.node.errors import Corrupt, NoQuorum, NotFound
from duckrow.node.forms import encode_view
from duckrow.node.frames import Frame, FrameReader
from duckrow.node.row import Bundle, Item, Member, RowStatus, View
from duckrow.node.rowwire import encode_bundle

TURN = makers.Turn(bytes(16), seq=1, time=5)
VIEW = View(3, (Member(1, 2, 1),), b"c" * 16, 7, "fsync")
OTHER, OWN = 1, 2  # nodes; bundles here are of the second


def command(size: int) -> Command:
    return makers.produce(TURN, "rides", bytes(size), 1) if size else makers.barrier(TURN)


def bundle(*sizes: int) -> Bundle:
    return Bundle(1, 2, 3, 4, 5, tuple(map(command, sizes)))


def item(content: Bundle | View, place: int = 99) -> Item:
    if isinstance(content, View):
        return Item(7, place, crc32c(encode_view(content)), content)
    return Item(7, place, encode_bundle(content).head[-1], content)


def frame(buffers: list[Buffer]) -> tuple[int, list[Any], Buffer]:
    reader = FrameReader()
    reader.accept_hello()
    reader.receive_data(b"".join(buffers))
    found = reader.next_frame()
    assert found is not None
    return *wire.opened(found), found.body


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=5))
def test_commands_arrive_with_their_bodies(sizes: list[int]) -> None:
    kind, fields, body = frame(wire.submit(bundle(*sizes).commands))

    assert kind == Said.SUBMIT
    assert wire.commands_of(fields, body).commands == bundle(*sizes).commands


@pytest.mark.parametrize("content", [bundle(10, 0, 3000), bundle(0), VIEW])
def test_an_item_that_was_just_ordered_comes_whole(content: Bundle | View) -> None:
    kind, fields, body = frame(wire.item(item(content), OTHER))

    assert kind == Told.ITEM
    assert wire.item_of(fields, body) == item(content)


def test_an_item_of_the_past_comes_without_its_bodies() -> None:
    whole = item(bundle(10, 0, 3000))
    content = whole.content
    assert isinstance(content, Bundle)
    heads = content._replace(commands=tuple(Command(head) for head, _ in content.commands))
    past = whole._replace(content=heads)
    for buffers in (wire.item(past, OTHER), wire.item(whole, OWN)):  # or of what the node has
        assert sum(map(len, buffers)) < 400
        _, fields, body = frame(buffers)
        assert wire.item_of(fields, body) == past


def test_heads_that_are_not_those_of_the_item_are_refused() -> None:
    content = bundle(10)
    past = item(content._replace(commands=(Command(content.commands[0].head),)))
    for wrong in (past._replace(crc=1), item(bundle(10))._replace(crc=1)):
        _, fields, body = frame(wire.item(wrong, OTHER))
        with pytest.raises(Corrupt, match=r"are not what they were|is not what it was"):
            wire.item_of(fields, body)


def test_what_else_is_told_arrives() -> None:
    ordered = ((1, 2, 3), (0, 2, 9))
    welcome = Welcome(wire.VERSION, 2, b"u" * 16, (b"f" * 16,), "write", 5, ordered, "image-4-1")
    _, fields, _ = frame(wire.welcome(welcome))
    assert wire.welcome_of(fields) == welcome

    status = RowStatus(False, (1, 2), 9, 8, 3, "soft", ("m3",), True)
    _, fields, _ = frame(wire.status(status, 4))
    assert wire.status_of(fields) == (4, status)

    _, fields, body = frame(wire.refused(bundle(10, 0).commands, NoQuorum("too much")))
    assert fields[:3] == ["no-quorum", "too much", {"retry_after": 1.0}]
    heads = [head for head, _ in bundle(10, 0).commands]
    found = wire.commands_of(fields[3:], body, heads_only=True)
    assert [head for head, _ in found.commands] == heads

    _, fields, body = frame(wire.answer(5, [1, 2], b"body"))
    assert (wire.answer_of(fields), bytes(body)) == ((5, [1, 2]), b"body")
    reference, error = wire.answer_of(frame(wire.failure(6, NotFound("gone")))[1])
    assert reference == 6
    assert isinstance(error, NotFound)
    assert str(error) == "gone"


def test_a_row_may_have_more_segments_than_fit_a_head() -> None:
    """Of 64 MiB each: 3 TiB of them."""
    facts = [
        (n, 1000 * n, 1000 * n + 999, 1 << 40, 1 << 26, True, n % 2 > 0) for n in range(50_000)
    ]
    kind, _, body = frame(wire.segments(facts))
    assert kind == Told.SEGMENTS
    assert list(wire.segments_of(body)) == facts

    numbers = tuple(range(1 << 40, (1 << 40) + 50_000))
    kind, fields, body = frame(wire.given(1, 2, b"view", numbers))
    assert kind == Said.GIVEN
    assert wire.given_of(fields, body) == (1, 2, b"view", numbers)


def test_a_bridge_of_another_version_is_refused() -> None:
    _, fields, _ = frame(wire.welcome(Welcome(99, 2, b"u" * 16, (), "write", 5, (), "")))

    with pytest.raises(Corrupt, match="speaks version 99"):
        wire.welcome_of(fields)


@given(
    st.lists(st.none() | st.integers() | st.binary(max_size=9) | st.booleans(), max_size=12),
    st.binary(max_size=40),
)
def test_nonsense_is_refused(fields: list[Any], body: bytes) -> None:
    for read in (wire.item_of, wire.commands_of):
        try:
            read(list(fields), body)
        except Corrupt:
            continue
        assert read is wire.commands_of
        assert not body.strip(b"\0")
    with pytest.raises(Corrupt):
        wire.opened(Frame(cbor.dumps({}), b""))
    with pytest.raises(Corrupt):
        wire.welcome_of(["x", *fields])
