"""What goes out over one link: the urgent first, the bulk in order, and no more bytes than needed."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from duckrow.bridge.imageforms import ImageSlice, NoImage
from duckrow.bridge.messages import (
    Acks,
    Base,
    Control,
    Hand,
    Leave,
    Link,
    Message,
    Tail,
)
from duckrow.bridge.sending import AT_ONCE_BYTES, Sending
from duckrow.bridge.wire import Encoder, decode
from duckrow.node import makers
from duckrow.node.frames import FrameReader
from duckrow.node.row import Bundle

LINK = Link(1, 1, (0, b""), 1, "ok", {}, {}, None)


def bundle(s: int, size: int = 10) -> Bundle:
    turn = makers.Turn(b"p" * 16, seq=s, time=1)
    return Bundle(1, 1, s, s, 1, (makers.produce(turn, "t", bytes(size), 1),))


def acks(member: int, beat: int) -> Acks:
    return Acks(1, member, beat, {1: beat}, beat)


def leave(n: int) -> Control:
    return Control(1, 1, n, None, Leave(n))


def tail(n: int) -> Control:
    return Control(1, 1, n, 2, Tail(1, (bundle(n),)))


def hand(n: int, size: int = 10) -> Control:
    return Control(1, 1, n, 2, Hand(bundle(n, size).commands, position=n))


def sent(sending: Sending, chance: random.Random | None = None) -> list[Message]:
    """All that comes out, over a socket that takes what it likes."""
    reader = FrameReader()
    reader.accept_hello()
    found = []
    while out := sending.fill():
        data = b"".join(out)
        count = len(data) if chance is None else chance.randint(0, len(data))
        sending.sent(count)
        reader.receive_data(data[:count])
        while (frame := reader.next_frame()) is not None:
            found.append(decode(frame))
    assert sending.is_empty
    assert sending.bulk_bytes == 0
    return found


def test_what_is_urgent_passes_the_bundles() -> None:
    sending = Sending(Encoder())
    bulk: list[Message] = [bundle(1), Base(1, 2, 5), bundle(2), tail(3), hand(4)]
    for message in [*bulk, acks(1, 1), leave(1), LINK]:
        sending.put(message)

    assert sent(sending) == [acks(1, 1), leave(1), LINK, *bulk]


def test_what_is_urgent_passes_what_a_full_socket_did_not_take() -> None:
    """F10: over a slow link that was seconds of followed items, and a ballot failed (seed 1000116)."""
    sending, reader = Sending(Encoder()), FrameReader()
    reader.accept_hello()
    found: list[Message] = []

    def take(count: int) -> None:
        data = b"".join(sending.fill())[:count]
        sending.sent(len(data))
        reader.receive_data(data)
        found.extend(decode(frame) for frame in iter(reader.next_frame, None))

    for s in range(1, 100):
        sending.put(bundle(s, 1000))
    take(1500)  # the second is begun
    sending.put(leave(1))
    take(1)
    sending.put(leave(2))
    for _ in range(3):
        take(1500)

    assert found[:2] == [bundle(1, 1000), bundle(2, 1000)]
    assert found[2:5] == [leave(1), leave(2), bundle(3, 1000)], "behind it, and not the rest"


def test_what_is_handed_on_counts_among_what_waits() -> None:
    sending = Sending(Encoder())
    sending.put(hand(1, 5000))

    assert sending.bulk_bytes > 5000
    assert sent(sending) == [hand(1, 5000)]


def test_what_is_handed_on_again_while_it_waits_is_not_sent_again() -> None:
    sending = Sending(Encoder())
    for n in (1, 2):
        sending.put(Control(1, 1, n, 2, Hand(bundle(1, 5000).commands, position=n)))

    assert sent(sending) == [hand(1, 5000)]


def test_of_links_and_acks_the_newest_goes_out_and_controls_all() -> None:
    sending = Sending(Encoder())
    for n in range(100):
        for message in (acks(1, n), acks(2, n), LINK._replace(position=n), leave(n)):
            sending.put(message)

    found = sent(sending)
    assert [each for each in found if not isinstance(each, Control)] == [
        acks(1, 99),
        acks(2, 99),
        LINK._replace(position=99),
    ]
    assert [each for each in found if isinstance(each, Control)] == [leave(n) for n in range(100)]


def test_bundles_wait_as_what_they_are_and_not_as_bytes() -> None:
    sending = Sending(Encoder())
    for s in range(1, 100):
        sending.put(bundle(s, 100_000))
    assert sending.bulk_bytes > 99 * 100_000

    assert sum(map(len, sending.fill())) < AT_ONCE_BYTES + 101_000
    sending.put(acks(1, 1))
    positions = [type(each) for each in sent(sending)]
    assert positions.index(Acks) <= 3, "behind what the socket was given, and nothing else"


def test_parts_of_an_image_that_are_asked_for_again_do_not_pile_up() -> None:
    """Over a slow link each was asked for again before it came, and came again before the next one, and again."""
    sending = Sending(Encoder())
    for _ in range(100):
        sending.put(ImageSlice(7, 0, 0, 1000, bytes(1000)))
    sending.put(ImageSlice(7, 0, 1000, 2000, bytes(1000)))

    assert [each[:4] for each in sent(sending) if isinstance(each, ImageSlice)] == [
        (7, 0, 1000, 2000)
    ]


def test_segments_of_an_image_that_were_asked_for_together_all_go_out_and_each_once() -> None:
    sending = Sending(Encoder())
    sending.put(ImageSlice(7, 0, 1000, 2000, bytes(1000)))
    for segment in (1, 2, 3, 2, 3):
        sending.put(ImageSlice(7, segment, 0, 1000))

    assert [each[:3] for each in sent(sending) if isinstance(each, ImageSlice)] == [
        (7, 1, 0),
        (7, 2, 0),
        (7, 3, 0),
    ]


def test_no_part_of_an_earlier_image_comes_behind_the_word_that_there_is_none() -> None:
    """The next may be another machine's of the same position: what lies where in it is not the same."""
    sending = Sending(Encoder())
    sending.put(ImageSlice(7, 1, 0, 1000))
    sending.put(NoImage(7))

    assert sent(sending) == [NoImage(7)]


ANY = st.one_of(
    st.builds(bundle, st.integers(1, 99), st.sampled_from([1, 3000, 90_000])),
    st.builds(Base, st.just(1), st.just(1), st.integers(1, 9)),
    st.builds(tail, st.integers(1, 99)),
    st.builds(acks, st.integers(1, 3), st.integers(1, 9)),
    st.builds(leave, st.integers(1, 99)),
)


@given(st.lists(ANY, max_size=12), st.integers())
def test_however_little_the_socket_takes_all_arrives(messages: list[Message], seed: int) -> None:
    sending, chance = Sending(Encoder()), random.Random(seed)
    for message in messages:
        sending.put(message)
    found = sent(sending, chance)

    kinds = (Bundle, Base)
    bulk = [m for m in messages if isinstance(m, kinds) or _is_tail(m)]
    assert [m for m in found if isinstance(m, kinds) or _is_tail(m)] == bulk
    newest = {m.member: m for m in messages if isinstance(m, Acks)}
    assert {m.member: m for m in found if isinstance(m, Acks)} == newest
    controls = [m for m in messages if isinstance(m, Control) and not _is_tail(m)]
    assert [m for m in found if isinstance(m, Control) and not _is_tail(m)] == controls


def _is_tail(message: Message) -> bool:
    return isinstance(message, Control) and isinstance(message.payload, Tail)
