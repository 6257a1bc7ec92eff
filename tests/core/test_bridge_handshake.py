"""The handshake between bridges: only who knows the secret comes in, as who it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.bridge.handshake import Door, Handshake, Hello, Kind, Role, check_secret, refusal
from duckrow.node import cbor, frames
from duckrow.node.addresses import Tcp
from duckrow.node.errors import Conflict, Corrupt, DuckrowError, LimitExceeded, Refused
from duckrow.node.frames import Frame, FrameReader

SECRET = b"a secret of the cluster"
CLUSTER = b"c" * 16


def hello(id_: int, **changes: Any) -> Hello:
    known = Hello(1, CLUSTER, "fsync", id_, bytes([id_]) * 16, 100 + id_, 5, bytes([id_]) * 32)
    return known._replace(**changes)


def door(id_: int, linked: dict[int, Hello] | None = None) -> Door:
    others = frozenset({1, 2, 3} - {id_})
    return Door(id_, "fsync", CLUSTER, others, lambda: linked or {})


def frame(data: bytes) -> Frame:
    """One, within what a stranger may send."""
    reader = FrameReader()
    reader.receive_data(data)
    found = reader.next_frame()
    assert found is not None
    assert reader.received == 0
    return found


def shake(dialler: Handshake, listener: Handshake) -> list[bytes]:
    """What went over the line; raises what either side raises."""
    sent = [dialler.start()]
    sides = [listener, dialler]
    while sent[-1]:
        sent.append(sides[0].receive(frame(sent[-1])))
        sides.reverse()
    return sent[:-1]


def dial(own: Hello | None = None, secret: bytes = SECRET, of: Door | None = None) -> Handshake:
    return Handshake(Role.DIALLER, own or hello(1), secret, of or door(1))


def listen(own: Hello | None = None, secret: bytes = SECRET, of: Door | None = None) -> Handshake:
    return Handshake(Role.LISTENER, own or hello(2), secret, of or door(2))


def test_both_know_each_other_after_four_messages() -> None:
    dialler, listener = dial(), listen()

    assert len(shake(dialler, listener)) == 4
    assert dialler.peer == hello(2)
    assert listener.peer == hello(1)


def test_a_listener_proves_nothing_to_who_has_not_proven_itself() -> None:
    listener = listen()
    frames = [listener.receive(frame(dial().start()))]
    with pytest.raises(Refused, match="another secret"):
        listener.receive(
            frame(
                shake(dial(secret=b"guessed, and wrong"), listen(secret=b"guessed, and wrong"))[2]
            )
        )

    assert [cbor.loads_array(frame(each).head)[0] for each in frames] == [Kind.HELLO]
    assert listener.peer is None


def test_a_listener_with_another_secret_is_refused() -> None:
    dialler, listener = dial(), listen(secret=b"of another cluster")
    answer = listener.receive(frame(dialler.start()))
    proof = dialler.receive(frame(answer))

    with pytest.raises(Refused, match="another secret"):
        listener.receive(frame(proof))


def test_a_proof_is_good_for_one_handshake_only() -> None:
    _, _, proof, back = shake(dial(), listen())
    again = listen(hello(2, nonce=b"n" * 32))
    again.receive(frame(dial().start()))

    with pytest.raises(Refused):
        again.receive(frame(proof))
    dialler = dial()
    dialler.receive(frame(listen(hello(2, nonce=b"n" * 32)).receive(frame(dial().start()))))
    with pytest.raises(Refused):
        dialler.receive(frame(back))


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    dialler = dial()
    dialler.start()
    proof = dialler.receive(frame(b"".join(frames.encode(hello(2).encode()))))

    with pytest.raises(Refused):
        dialler.receive(frame(proof))


@given(st.integers(0, 3), st.data())
def test_a_message_that_was_changed_on_its_way_ends_it(which: int, data: st.DataObject) -> None:
    dialler, listener = dial(), listen()
    sides, message = [listener, dialler], dialler.start()
    try:
        for turn in range(4):
            if turn == which:
                at = data.draw(st.integers(6, len(message) - 1))
                changed = bytes([message[at] ^ 1 << data.draw(st.integers(0, 7))])
                message = message[:at] + changed + message[at + 1 :]
            message = sides[0].receive(frame(message))
            sides.reverse()
    except DuckrowError:
        return
    pytest.fail("both took it for good")


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"version": 2}, Refused, "speaks version 2"),
        ({"id": 2}, Conflict, "has the id of this node"),
        ({"id": 9}, Refused, "no neighbour"),
        ({"durability": "write"}, Conflict, "a cluster has one level"),
        ({"cluster": b"d" * 16}, Conflict, "never merged"),
    ],
)
def test_who_does_not_belong_here_is_told_why(
    change: dict[str, object], error: type[DuckrowError], why: str
) -> None:
    """U5."""
    listener = listen()
    with pytest.raises(error, match=why) as refused:
        listener.receive(frame(dial(hello(1, **change)).start()))

    with pytest.raises(error, match=f"the other side refuses: .*{why}"):
        dial().receive(frame(refusal(refused.value)))


def test_a_blank_node_may_come_in() -> None:
    dialler = dial(hello(1, cluster=b""))
    shake(dialler, listen())

    assert dialler.peer == hello(2)


def test_a_store_whose_starts_go_backwards_is_refused_by_who_knew_it() -> None:
    """U4."""
    at = door(2)
    shake(dial(hello(1, start_count=7, incarnation=70)), listen(of=at))
    shake(dial(hello(1, start_count=7, incarnation=70)), listen(of=at))
    shake(dial(hello(1, start_count=8, incarnation=80)), listen(of=at))

    for count in (6, 7, 8):
        with pytest.raises(Conflict, match="restored from a copy"):
            shake(dial(hello(1, start_count=count, incarnation=1)), listen(of=at))
    other = hello(1, start_count=1, incarnation=1, uuid=b"fresh disk of 1.")
    shake(dial(other), listen(of=at))


def test_of_two_that_come_with_one_id_at_once_the_second_is_refused_when_the_first_is_in() -> None:
    """U5: When it said hello nobody was there."""
    linked: dict[int, Hello] = {}
    at = door(2, linked)
    other = hello(1, uuid=b"another store...", incarnation=9)
    listeners = listen(of=at), listen(of=at)
    diallers = dial(), dial(other, of=door(1))
    proofs = [
        dialler.receive(frame(listener.receive(frame(dialler.start()))))
        for dialler, listener in zip(diallers, listeners, strict=True)
    ]
    listeners[0].receive(frame(proofs[0]))
    assert listeners[0].peer is not None
    linked[1] = listeners[0].peer

    with pytest.raises(Conflict, match="two have one id"):
        listeners[1].receive(frame(proofs[1]))


def test_who_has_not_proven_itself_changes_nothing_that_is_remembered() -> None:
    at = door(2)
    listen(of=at).receive(frame(dial(hello(1, start_count=1000, incarnation=9)).start()))

    shake(dial(hello(1, start_count=7)), listen(of=at))


def test_a_second_store_of_one_id_is_refused_while_the_first_is_linked() -> None:
    """U5."""
    linked = {1: hello(1)}
    at = door(2, linked)
    with pytest.raises(Conflict, match="two have one id"):
        shake(dial(hello(1, uuid=b"another disk of1")), listen(of=at))

    shake(dial(), listen(of=at))  # the same one, again: its old connection may be dead
    linked.clear()
    shake(dial(hello(1, uuid=b"another disk of1")), listen(of=at))


def test_without_a_secret_only_the_own_machine_is_reached() -> None:
    near, far = Tcp("127.0.0.1", 1), Tcp("10.0.0.1", 1)
    check_secret(b"", [near, near])
    check_secret(SECRET, [near, far])
    with pytest.raises(Refused, match=r"10\.0\.0\.1:1 can be reached .* no secret"):
        check_secret(b"", [near, far])
    with pytest.raises(Refused, match="needs 16"):
        check_secret(b"short", [near])


@given(st.binary(max_size=200), st.booleans())
def test_nonsense_ends_it(data: bytes, framed: bool) -> None:
    for side in (dial(), listen()):
        try:
            side.receive(Frame(cbor.dumps([int(Kind.HELLO), data]) if framed else data, b""))
        except (Corrupt, LimitExceeded):
            continue
        pytest.fail("it was taken for something")


def test_every_message_fits_what_a_stranger_may_send() -> None:
    big = hello(1, id=2**64 - 1, incarnation=2**64 - 1, start_count=2**64 - 1)

    assert len(dial(big).start()) < 200
    assert len(refusal(Conflict("\N{SNOWMAN}" * 10_000))) <= 1024
