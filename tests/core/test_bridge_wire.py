"""Messages between bridges as bytes: whatever is said arrives, and whatever else arrives is refused.

The examples of docs/reference/peer-wire.md are made and read here, too.
"""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.bridge import wire
from duckrow.bridge.imageforms import ImageOffer, ImageSlice, NoImage, WantImage
from duckrow.bridge.messages import (
    Accept,
    Accepted,
    Acks,
    Ask,
    Base,
    Change,
    Control,
    Decided,
    Fetch,
    Follow,
    Hand,
    Join,
    Leave,
    Link,
    Mended,
    Message,
    Newer,
    Prepare,
    Promise,
    Refusal,
    Report,
    Tail,
)
from duckrow.bridge.wire import Encoder, Kind, decode
from duckrow.bridge.wirecontrol import PayloadKind
from duckrow.node import cbor, makers
from duckrow.node.appending import encoded
from duckrow.node.checksum import crc32c
from duckrow.node.commands import Command
from duckrow.node.errors import Corrupt, LimitExceeded
from duckrow.node.forms import encode_view
from duckrow.node.frames import Frame, FrameReader
from duckrow.node.incoming import Piece
from duckrow.node.row import Bundle, Item, Member, View
from reference import ROOT

TEXT = (ROOT / "docs" / "reference" / "peer-wire.md").read_text()
PID = bytes(range(16))
TIME = 1_700_000_000_000_000

NUMBERS = st.integers(0, 2**64 - 1)
IDS = st.integers(0, 40)
VECTORS = st.dictionaries(IDS, NUMBERS, max_size=5)
BALLOTS = st.tuples(NUMBERS, IDS)
UUIDS = st.binary(min_size=16, max_size=16)
VIEWS = st.builds(
    View,
    id=NUMBERS,
    members=st.lists(st.builds(Member, IDS, NUMBERS, IDS), max_size=3).map(tuple),
    cluster=UUIDS,
    lineage=NUMBERS,
    durability=st.sampled_from(["fsync", "write", "memory"]),
    min_copies=IDS,
    voters=st.lists(st.tuples(IDS, IDS, UUIDS, st.booleans()), max_size=3).map(tuple),
    cut=VECTORS.map(lambda cut: tuple(cut.items())),
    cont=st.lists(IDS, max_size=3).map(tuple),
)


def produce(seq: int, body: bytes) -> Command:
    return makers.produce(makers.Turn(PID, seq=seq, time=TIME), "rides", body, 1)


COMMANDS = st.one_of(
    st.builds(produce, st.integers(1, 2**40), st.binary(min_size=1, max_size=70)),
    st.builds(lambda seq: makers.clock(makers.Turn(PID, seq=seq, time=TIME)), st.integers(1, 99)),
)
BUNDLES = st.builds(
    Bundle,
    NUMBERS,
    IDS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(COMMANDS, min_size=1, max_size=4).map(tuple),
)


def item(position: int, content: Bundle | View) -> Item:
    crc = crc32c(encode_view(content)) if isinstance(content, View) else encoded(content).crc
    return Item(position, 0, crc, content)


ITEMS = st.builds(item, NUMBERS, BUNDLES | VIEWS)
BOOLEANS = st.booleans()
REPORTS = st.builds(Report, BOOLEANS, st.none() | VECTORS, NUMBERS, NUMBERS, BOOLEANS, BOOLEANS)
PIECES = st.builds(Piece, NUMBERS, st.binary(max_size=9), st.binary(max_size=99))
PAYLOADS = st.one_of(
    st.builds(Prepare, NUMBERS, BALLOTS, VIEWS),
    st.builds(Promise, NUMBERS, BALLOTS, st.none(), st.none(), REPORTS),
    st.builds(Promise, NUMBERS, BALLOTS, BALLOTS, VIEWS, REPORTS),
    st.builds(Accept, NUMBERS, BALLOTS, VIEWS, VIEWS),
    st.builds(Accepted, NUMBERS, BALLOTS),
    st.builds(Refusal, NUMBERS, BALLOTS),
    st.builds(Decided, VIEWS),
    st.builds(Fetch, NUMBERS, VECTORS),
    st.builds(Tail, NUMBERS, st.lists(BUNDLES, max_size=3).map(tuple)),
    st.builds(Join, NUMBERS, UUIDS, NUMBERS, NUMBERS),
    st.builds(
        Change, NUMBERS, IDS, IDS, st.booleans(), IDS, IDS, st.sampled_from(["", "fsync", "memory"])
    ),
    st.builds(Hand, st.lists(COMMANDS, min_size=1, max_size=4).map(tuple), NUMBERS),
    st.builds(Leave, NUMBERS),
)
LINKS = st.builds(
    Link,
    NUMBERS,
    NUMBERS,
    st.tuples(NUMBERS, st.just(b"") | UUIDS),
    NUMBERS,
    st.sampled_from(["ok", "soft", "hard"]),
    st.dictionaries(IDS, st.lists(IDS, max_size=4).map(tuple), max_size=5),
    VECTORS,
    st.none() | st.tuples(NUMBERS, NUMBERS),
    st.just(b"") | UUIDS,
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    LINKS,
    BUNDLES,
    st.builds(Acks, NUMBERS, IDS, NUMBERS, VECTORS, NUMBERS),
    st.builds(Base, NUMBERS, IDS, NUMBERS),
    st.builds(Follow, NUMBERS, ITEMS),
    st.builds(Newer, VIEWS),
    st.builds(Control, IDS, NUMBERS, NUMBERS, st.none() | IDS, PAYLOADS),
    st.builds(Ask, st.lists(NUMBERS, max_size=9).map(tuple)),
    st.builds(Mended, ITEMS),
    st.builds(WantImage, NUMBERS, NUMBERS, NUMBERS),
    st.builds(
        ImageOffer, NUMBERS, st.binary(min_size=16, max_size=16), VIEWS, VECTORS, NUMBERS, VECTORS
    ),
    st.builds(
        ImageSlice, NUMBERS, st.just(0), NUMBERS, NUMBERS, st.binary(max_size=99), st.just(())
    ),
    st.builds(
        ImageSlice,
        NUMBERS,
        st.integers(1, 2**64 - 1),
        NUMBERS,
        NUMBERS,
        st.just(b""),
        st.lists(PIECES, max_size=3).map(tuple),
    ),
    st.builds(NoImage, NUMBERS),
)


def frames_of(data: bytes, *, chunk: int = 1 << 20) -> list[Frame]:
    reader = FrameReader()
    reader.accept_hello()
    found = []
    for start in range(0, len(data), chunk):
        reader.receive_data(data[start : start + chunk])
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    assert reader.received == 0
    return found


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 200))
def test_what_is_said_arrives_however_it_is_cut(messages: list[Message], chunk: int) -> None:
    data = b"".join(wire.pieces(messages, Encoder()))

    assert [decode(frame) for frame in frames_of(data, chunk=chunk)] == messages


@given(MESSAGES, st.data())
def test_bytes_that_changed_are_refused_or_mean_something_else(
    message: Message, data: st.DataObject
) -> None:
    """Nothing but `Corrupt` and `LimitExceeded` comes out, and never a bundle with other bytes."""
    (frame,) = frames_of(b"".join(Encoder().encode(message)))
    parts = [bytearray(frame.head), bytearray(frame.body)]
    in_body = bool(parts[1]) and data.draw(st.booleans())
    part = parts[1 if in_body else 0]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(part) - 1))
        part[at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del part[data.draw(st.integers(0, len(part) - 1)) :]
    try:
        found = decode(Frame(bytes(parts[0]), bytes(parts[1])))
    except (Corrupt, LimitExceeded):
        return
    assert decode(*frames_of(b"".join(Encoder().encode(found)))) == found
    assert not in_body or found == message, "the head says what the body is, but for its padding"


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2**64 - 1)
    | st.binary(max_size=20)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


@given(st.integers(0, 13), st.lists(ANYTHING, max_size=14), st.binary(max_size=100))
def test_nonsense_is_refused(kind: int, fields: list[Any], body: bytes) -> None:
    try:
        found = decode(Frame(cbor.dumps([kind, *fields]), body))
    except (Corrupt, LimitExceeded):
        return
    assert decode(*frames_of(b"".join(Encoder().encode(found)))) == found


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "1"},
        {"id": -1},
        {"members": (Member(1, "x", 1),)},  # type: ignore[arg-type]
        {"voters": ((1, 1, b"short", True),)},
        {"voters": ((1, 1, b"v" * 16, 1),)},
        {"cut": ((1, None),)},
        {"durability": 1},
        {"cluster": b"c"},
        {"cont": ("x",)},
    ],
)
def test_a_view_of_other_things_is_refused(changes: dict[str, Any]) -> None:
    """What is on the own disk is trusted; a neighbour may be of another version, or broken."""
    raw = encode_view(attrs.evolve(VIEW, **changes))

    for head in ([int(Kind.NEWER), raw], [int(Kind.FOLLOW), 1, 1, crc32c(raw), raw]):
        with pytest.raises(Corrupt):
            decode(Frame(cbor.dumps(head), b""))


def test_an_item_with_the_checksum_of_another_is_refused() -> None:
    for content in (VIEW, BUNDLE):
        wrong = item(7, content)._replace(crc=1)
        for message in (Follow(1, wrong), Mended(wrong)):
            with pytest.raises(Corrupt, match="is not what it was"):
                decode(*frames_of(b"".join(Encoder().encode(message))))


def test_the_bodies_of_a_bundle_are_neither_copied_to_send_nor_to_take() -> None:
    body = bytes(1 << 20)
    bundle = Bundle(1, 2, 3, 4, TIME, (produce(1, body),))

    buffers = Encoder().encode(bundle)
    assert any(each is body for each in buffers)

    (frame,) = frames_of(b"".join(buffers), chunk=1 << 16)
    found = decode(frame)
    assert isinstance(found, Bundle)
    taken = found.commands[0].body
    assert isinstance(taken, memoryview)
    assert taken.obj is memoryview(frame.body).obj


def test_no_byte_of_a_bundle_can_change_on_its_way() -> None:
    (frame,) = frames_of(b"".join(Encoder().encode(BUNDLE)))
    body, refused = bytes(frame.body), 0
    for at in range(len(body)):
        try:
            changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
            assert decode(Frame(frame.head, changed)) == BUNDLE, "but for its padding"
        except Corrupt:
            refused += 1

    assert refused == sum(2 + len(head) + len(body) for head, body in BUNDLE.commands)


def test_a_bundle_for_several_neighbours_is_encoded_once() -> None:
    encoder, bundle = Encoder(), Bundle(1, 2, 3, 4, TIME, (produce(1, b"x"),))

    assert encoder.encode(bundle) is encoder.encode(bundle)


def test_a_bundle_of_more_commands_than_it_has_bytes_costs_nothing() -> None:
    fields = [1, 1, 1, 1, 1, 1 << 60, 4, 0]

    with pytest.raises(Corrupt, match="cannot have"):
        decode(Frame(cbor.dumps([int(Kind.BUNDLE), *fields]), b"\0\0\0\0"))


def test_fields_that_come_later_are_ignored() -> None:
    base = Base(1, 2, 3)

    assert decode(Frame(cbor.dumps([int(Kind.BASE), *base, "later"]), b"")) == base


def test_an_image_may_have_more_segments_than_fit_a_head() -> None:
    """Of 64 MiB each: 3 TiB of them."""
    segments = dict.fromkeys(range(1 << 20, (1 << 20) + 50000), 1 << 26)
    offer = ImageOffer(4711, b"\x44" * 16, VIEW, {1: 40}, 81920, segments)

    [frame] = frames_of(b"".join(Encoder().encode(offer)))
    assert decode(frame) == offer


# -- the page ---------------------------------------------------------------------------------

VIEW = View(
    id=1,
    members=(Member(1, 11, 1),),
    cluster=b"\x11" * 16,
    lineage=77,
    durability="fsync",
    voters=((1, 1, b"\x22" * 16, True),),
)
BUNDLE = Bundle(
    1, 1, 2, 5, TIME, (makers.barrier(makers.Turn(PID, seq=1, time=TIME)), produce(1, b"one"))
)
EXAMPLES: dict[str, Message] = {
    "link": Link(1, 9, (0, b""), 1, "ok", {1: (1,), 3: (2, 3)}, {1: 7, 3: 0}, (2, 9), b"\x11" * 16),
    "bundle": BUNDLE,
    "acks": Acks(1, 1, 2, {1: 2, 3: 9}, 40),
    "base": Base(1, 3, 8),
    "follow": Follow(2, item(10, VIEW)),
    "want image": WantImage(4711, 7, 4096),
    "image offer": ImageOffer(4711, b"\x44" * 16, VIEW, {1: 40}, 81920, {7: 8192, 8: 0}),
    "image slice": ImageSlice(4711, 7, 4096, 4296, pieces=(Piece(4160, b"\x80", b"12345678"),)),
    "no image": NoImage(4711),
    "prepare": Control(3, 33, 1, None, Prepare(2, (4, 3), VIEW)),
    "join": Control(2, 22, 5, None, Join(22, b"\x33" * 16, 1, 9)),
    "change": Control(1, 11, 6, None, Change(3, 4, 1, instead_of=2)),
}


def examples() -> dict[str, bytes]:
    found = {}
    for name, block in re.findall(r"^```hex ([a-z ]+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        found[name] = bytes.fromhex("".join(line.split("|")[0] for line in block.splitlines()))
    return found


def table(heading: str) -> dict[str, int]:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return {n: int(v) for n, v in re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", section, re.MULTILINE)}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_of_the_page_is_what_is_sent(name: str) -> None:
    assert examples()[name] == b"".join(Encoder().encode(EXAMPLES[name]))
    (frame,) = frames_of(examples()[name])
    assert decode(frame) == EXAMPLES[name]


def test_the_page_knows_every_kind() -> None:
    assert table("Messages") == {kind.name: int(kind) for kind in Kind}
    assert table("Control") == {kind.name: int(kind) for kind in PayloadKind}


def test_a_link_that_says_the_same_is_the_same_and_one_that_says_more_is_read() -> None:
    said = [
        Link(1, position, (0, b""), 1, "ok", {1: (1,)}, {1: 7}, None, b"\x11" * 16)
        for position in (9, 9, 10, 9)
    ]
    decoder, heard = wire.Decoder(), []
    for link in said:
        reader = FrameReader()
        reader.accept_hello()
        reader.receive_data(b"".join(Encoder().encode(link)))
        frame = reader.next_frame()
        assert frame is not None
        heard.append(decoder.decode(frame))

    assert heard == said
    assert heard[0] is heard[1]


def test_what_is_remembered_of_a_bundle_is_never_taken_for_another() -> None:
    for s in range(1, 100):
        bundle = Bundle(1, 2, s, s, 0, (Command(b"head %d" % s, b""),))
        assert encoded(bundle).crc == encoded(bundle._replace()).crc
        assert encoded(bundle).crc != encoded(bundle._replace(s=s + 1)).crc
        assert b"head %d" % s in bytes(encoded(bundle).body[0])
