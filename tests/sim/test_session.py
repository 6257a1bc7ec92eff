"""What a client may do to a node: nothing that costs more than its limits or ends another's session."""

from __future__ import annotations

import gc
import struct

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duckrow.node import cbor, columns, cursors, frames, makers, output, requests
from duckrow.node.calls import Key, Told
from duckrow.node.commands import Kind
from duckrow.node.effects import Code
from duckrow.node.env import Peer
from duckrow.node.limits import (
    CLIENT_REQUESTS_MAX,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    MIB,
)
from duckrow.node.pulled import Pulled
from duckrow.node.reading import Pull
from duckrow.node.requests import Ask, Outcome, Verb
from duckrow.node.server import Server, ServerOptions
from duckrow.node.session import Session

from .wire import PID, There, Wire, serve

FEW = 15  # examples, of several sessions each

# -- hello ----------------------------------------------------------------------------------


def test_a_client_is_told_which_row_the_node_has_and_what_its_limits_are() -> None:
    async def work(there: There) -> None:
        wire = await there.connect(hello=False)
        welcome = requests.Welcome.of(await wire.hello())

        assert (welcome.version, welcome.node) == (requests.VERSION, "m1")
        assert welcome.lineage == there.server.welcome().lineage > 0
        assert welcome.limits["requests"] == CLIENT_REQUESTS_MAX

    serve(work)


def test_who_says_nothing_is_closed_after_five_seconds() -> None:
    async def work(there: There) -> None:
        wire = await there.connect(hello=False)
        began = trio.current_time()
        _, code, text = await wire.failure()

        assert (code, text) == ("refused", "no hello came within 5 seconds")
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        assert await wire.is_closed()

    serve(work)


def test_a_hello_that_comes_byte_by_byte_has_five_seconds_altogether() -> None:
    async def work(there: There) -> None:
        wire = await there.connect(hello=False)
        head = requests.request(1, Verb.HELLO, requests.VERSION, "slow", "", {})
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            for byte in b"".join(frames.encode(head)):
                await wire.stream.send_all(bytes([byte]))
                await trio.sleep(1)

        assert trio.current_time() - began < 8

    serve(work)


def test_more_than_a_kilobyte_before_the_hello_is_refused_unread() -> None:
    async def work(there: There) -> None:
        wire = await there.connect(hello=False)
        await wire.stream.send_all(struct.pack("<I", HELLO_BYTES_MAX))

        assert (await wire.failure())[1] == "limit"
        assert await wire.is_closed()

    serve(work)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (cbor.dumps([1, int(Verb.TOPICS)]), "refused"),
        (cbor.dumps([1, int(Verb.HELLO)]), "corrupt"),
        (cbor.dumps([1, int(Verb.HELLO), 99, "x", "", {}]), "refused"),
        (cbor.dumps([1, int(Verb.HELLO), 1, b"x", "", {}]), "corrupt"),
        (cbor.dumps([-1, int(Verb.HELLO), 1, "x", "", {}]), "corrupt"),
        (cbor.dumps({"hello": 1}), "corrupt"),
        (cbor.dumps([]), "corrupt"),
        (b"\xff", "corrupt"),
        (b"", "corrupt"),
    ],
)
def test_whoever_begins_otherwise_is_told_and_closed(head: bytes, code: str) -> None:
    async def work(there: There) -> None:
        wire = await there.connect(hello=False)
        await wire.stream.send_all(b"".join(frames.encode(head)))

        assert (await wire.failure())[:2] == (0, code)
        assert await wire.is_closed()
        assert there.event("session_ended")

    serve(work)


def test_a_client_that_is_not_trusted_needs_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    from duckrow.node import server

    monkeypatch.setattr(server, "peer_of", lambda _stream: Peer("tcp:10.0.0.1:1", trusted=False))

    async def work(there: There) -> None:
        for token in ("", "wrong", "sécret", "secret "):
            wire = await there.connect(hello=False)
            await wire.send(Verb.HELLO, requests.VERSION, "x", token, {})
            assert (await wire.failure())[2].startswith("the token is missing or wrong")
            assert await wire.is_closed()
        await there.connect(token="secret")

    serve(work, server=ServerOptions(token="secret"))


def test_a_client_of_the_own_machine_needs_no_token() -> None:
    async def work(there: There) -> None:
        await there.connect(token="")

    serve(work, server=ServerOptions(token="secret"), survives=False)


def test_one_client_too_many_is_told_so() -> None:
    async def work(there: There) -> None:
        wires = [await there.connect() for _ in range(3)]
        more = await there.connect(hello=False)

        assert (await more.failure())[1:] == ("no-quorum", "this node serves 3 clients already")
        assert await more.is_closed()
        assert there.server.refused == 1
        await wires[0].stream.aclose()
        await trio.sleep(0.1)
        await (await there.connect()).stream.aclose()
        await trio.sleep(0.1)

    serve(work, server=ServerOptions(connections_max=3))


def test_clients_of_one_other_machine_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def peer(host: str) -> None:
        found = Peer(f"tcp:{host}:1", trusted=False, host=host)
        monkeypatch.setattr("duckrow.node.server.peer_of", lambda _stream: found)

    async def work(there: There) -> None:
        peer("10.0.0.9")
        wires = [await there.connect() for _ in range(2)]
        more = await there.connect(hello=False)

        reason = "this node serves 2 clients of 10.0.0.9 already"
        assert (await more.failure())[1:] == ("no-quorum", reason)
        peer("10.0.0.8")
        await there.connect()
        peer("")  # of this machine
        for _ in range(3):
            await there.connect()
        await wires[0].stream.aclose()
        await trio.sleep(0.1)
        peer("10.0.0.9")
        await there.connect()
        peer("")

    serve(work, server=ServerOptions(host_connections_max=2))


# -- frames ---------------------------------------------------------------------------------


def test_a_frame_that_has_begun_has_to_come_at_a_kilobyte_a_second() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.stream.send_all(struct.pack("<I", MIB))
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await wire.stream.send_all(b"x")
                await trio.sleep(1)

        assert trio.current_time() - began < 10

    serve(work)


def test_a_frame_may_come_slowly_as_long_as_it_comes() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        command = wire.batch([b"x" * 20_000])
        data = b"".join(
            frames.encode(requests.request(9, Verb.ORDER, command.head, False), command.body)
        )
        for at in range(0, len(data), 1000):
            await wire.stream.send_all(data[at : at + 1000])
            await trio.sleep(0.9)

        assert (await wire.answer())[:2] == (9, Outcome.DONE)

    serve(work)


def test_a_frame_that_we_did_not_go_on_with_is_not_held_against_its_client() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        there.world.hosts["a"].media.sync_latency = 60.0
        orders = [wire.batch([b"%d" % each]) for each in range(CLIENT_REQUESTS_MAX + 1)]
        frames_ = [
            b"".join(frames.encode(requests.request(2, Verb.ORDER, each.head, False), each.body))
            for each in orders
        ]
        sent = b"".join(frames_[:-1])
        await wire.stream.send_all(sent + frames_[-1][:10])
        await trio.sleep(59)
        await wire.stream.send_all(frames_[-1][10:])
        for _ in orders:
            assert (await wire.answer())[1] == Outcome.DONE

    serve(work)


def test_an_idle_client_stays() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await trio.sleep(7 * 86_400)

        assert await wire.ask(Verb.TOPICS) == [[], False]

    serve(work)


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX, 0xFFFF_FFFF, 0, 1])
def test_a_length_that_cannot_be_ends_the_session(length: int) -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.stream.send_all(struct.pack("<IH", length, 0))

        assert (await wire.failure())[0] == 0
        assert await wire.is_closed()

    serve(work)


def test_whoever_leaves_in_the_middle_of_a_frame_leaves_nothing() -> None:
    async def work(there: There) -> None:
        for hello in (True, False):
            wire = await there.connect(hello=hello)
            await wire.stream.send_all(struct.pack("<IH", 500, 10) + b"abc")
            await wire.stream.aclose()
        await trio.sleep(3)

        assert there.server.sessions == {}

    serve(work)


@pytest.mark.parametrize(
    "fields",
    [
        (99,),
        (Verb.ORDER,),
        (Verb.ORDER, b"", False),
        (Verb.ORDER, b"\x80", False),
        (Verb.ORDER, "head", False),
        (Verb.ORDER, b"x" * 100, 1),
        (Verb.PULL,),
        (Verb.PULL, "t", -1, None, 0, 10, 10, 0, 0),
        (Verb.PULL, "t", [], None, 0, 10, 10, 0, 0),
        (Verb.PULL, "t", [0, 0, 1], None, 0, 10, 10, 0, 0),
        (Verb.PULL, "t", [7, 7], None, 0, 10, 10, 0, 0),
        (Verb.PULL, "t", {"a": 1}, None, 0, 10, 10, 0, 0),
        (Verb.PULL, 5, 0, None, 0, 10, 10, 0, 0),
        (Verb.PULL, "t", 0, None, 0, 0, 10, 0, 0),
        (Verb.PULL, "t", 0, None, 0, 10, 0, 0, 0),
        (Verb.PULL, "t", 0, None, 0, 10, 1 << 40, 0, 0),
        (Verb.PULL, "t", 0, True, 0, 10, 10, 0, 0),
        (Verb.PULL, "t", 0, None, 0, 10, 10, 0, 1 << 40),
        (Verb.FOLLOW, "t", 0, None, 0, 10, 10, 0, 0),
        (Verb.FOLLOW, "t", 0, None, 0, 10, 10, 0, 0, "much"),
        (Verb.RECEIPT,),
        (Verb.RECEIPT, "t", 0, PID, 1, 1, False),
        (Verb.RECEIPT, "t", 0, b"", 1 << 62, 1, True),
        (Verb.RECEIPT, "t", [], PID, 1, 1, False),
        (Verb.TOPIC,),
        (Verb.TOPIC, "none"),
        (Verb.TOPIC, []),
    ],
)
def test_a_request_that_cannot_be_fails_and_the_session_goes_on(fields: tuple[object, ...]) -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        reference = await wire.send(*fields)  # type: ignore[arg-type]

        assert (await wire.failure())[0] == reference
        assert await wire.ask(Verb.TOPICS) == [[], False]

    serve(work)


@pytest.mark.parametrize(
    "fields",
    [
        (Verb.CANCEL,),
        (Verb.CANCEL, []),
        (Verb.CANCEL, {"a": []}),
        (Verb.CANCEL, 7),
        (Verb.CREDIT,),
        (Verb.CREDIT, [], 1),
        (Verb.CREDIT, 7, -1),
    ],
)
def test_what_is_not_answered_does_nothing_if_it_cannot_be(fields: tuple[object, ...]) -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.send(*fields)  # type: ignore[arg-type]

        assert await wire.ask(Verb.TOPICS) == [[], False]

    serve(work)


def test_a_body_that_is_not_what_its_head_says_never_comes_into_the_row() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        turn = makers.Turn(b"p" * 16, 1, 1)
        for body, count in ((columns.encode([b"one"]), 2), (b"no columns", 1)):
            command = makers.produce(turn, "t", body, count)
            await wire.send(Verb.ORDER, command.head, False, body=command.body)
            assert (await wire.failure())[1] == "corrupt"
        command = makers.produce(turn, "t", columns.encode([b"one"]), 1)
        await wire.order(command)
        assert (await wire.answer())[1] == Outcome.DONE

    serve(work)


def test_a_body_that_does_not_fit_its_checksum_is_refused() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        command = wire.batch([b"value"])
        body = bytearray(command.body)
        body[-1] ^= 1
        await wire.send(Verb.ORDER, command.head, False, body=body)

        assert (await wire.failure())[1] == "corrupt"
        await wire.order(command)
        assert (await wire.answer())[1] == Outcome.DONE

    serve(work)


@pytest.mark.parametrize("kind", [Kind.CLOCK, Kind.SWITCH, Kind.SETTINGS])
def test_commands_of_nodes_are_not_for_clients(kind: Kind) -> None:
    turn = makers.Turn(PID, 1)
    made = {
        Kind.CLOCK: lambda: makers.clock(turn),
        Kind.SWITCH: lambda: makers.switch(turn, 1),
        Kind.SETTINGS: lambda: makers.settings(turn, {"topics_max": 1}),
    }

    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.order(made[kind]())

        assert (await wire.failure())[1] == "refused"

    serve(work)


@settings(max_examples=FEW)
@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.binary(max_size=300), max_size=5)), max_size=8)
)
@example([(False, [b"GET / HTTP/1.1\r\n\r\n"]), (True, [b"\x00" * 300]), (True, [b"\xff" * 300])])
def test_garbage_ends_the_session_that_sent_it_and_no_other(
    sessions: list[tuple[bool, list[bytes]]],
) -> None:
    async def work(there: There) -> None:
        other = await there.connect()
        for hello, data in sessions:
            wire = await there.connect(hello=hello)
            try:
                for part in data:
                    await wire.stream.send_all(part)
                    await trio.sleep(0.1)
            except trio.BrokenResourceError:
                pass
            await wire.stream.aclose()

        assert (await other.produce(b"v")).code == Code.ORDERED

    serve(work)


FIELD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 1 << 64)
    | st.text(max_size=5)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=FEW)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*map(int, Verb), 0, 99]),
            st.lists(FIELD, max_size=11),
            st.binary(max_size=30),
        ),
        max_size=50,
    )
)
def test_well_formed_nonsense_never_ends_more_than_its_session(
    asked: list[tuple[int, list[object], bytes]],
) -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        for reference, (verb, fields, body) in enumerate(asked, 2):
            head = cbor.dumps([reference, verb, *fields])
            try:
                await wire.stream.send_all(b"".join(frames.encode(head, body)))
                await trio.sleep(0.01)
            except trio.BrokenResourceError:
                wire = await there.connect()
        await trio.sleep(0.5)

    serve(work)


@settings(max_examples=FEW)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3),
            st.floats(0, 1),
        ),
        max_size=8,
    )
)
def test_a_frame_with_a_wrong_byte_never_ends_more_than_its_session(
    sessions: list[tuple[list[tuple[float, int]], float]],
) -> None:
    async def work(there: There) -> None:
        for wrong, end in sessions:
            wire = await there.connect()
            command = wire.batch([b"one", b"two"])
            sent = [
                *frames.encode(requests.request(2, Verb.ORDER, command.head, False), command.body),
                *frames.encode(requests.request(3, Verb.PULL, *Ask("t", wait_us=1000).fields())),
                *frames.encode(requests.request(4, Verb.FOLLOW, *Ask("t").fields(), 1000)),
                *frames.encode(requests.request(5, Verb.TOPIC, "t")),
            ]
            raw = bytearray(b"".join(sent))
            for at, byte in wrong:
                raw[int(at * len(raw))] = byte
            await wire.stream.send_all(raw[: round(end * len(raw))])
            await trio.sleep(0.1)

    serve(work)


# -- orders ---------------------------------------------------------------------------------


def test_orders_are_pipelined_and_all_are_answered() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        references = [await wire.order(wire.batch([b"%d" % n])) for n in range(500)]
        answers = [await wire.answer() for _ in references]

        assert [answer[0] for answer in answers] == references
        assert [answer[2][1] for answer in answers] == [*range(1, 501)]

    serve(work)


def test_orders_are_not_taken_in_without_end_before_some_are_answered() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        there.world.hosts["a"].media.sync_latency = 1.0
        most, tell = 0, there.keeper.calls.tell

        def counted(key: Key, told: Told, *, accepted: bool = False) -> None:
            nonlocal most
            tell(key, told, accepted=accepted)
            most = max(most, len(there.keeper.calls))

        there.keeper.calls.tell = counted  # type: ignore[method-assign]
        for _ in range(50):
            await wire.order(wire.batch([b"x" * MIB]))
        for _ in range(50):
            assert (await wire.answer())[1] == Outcome.DONE

        assert 1 < most <= 17

    serve(work)


def test_into_the_last_space_of_a_disk_goes_only_what_makes_room() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.produce(b"v")
        media = there.world.hosts["a"].media
        media.capacity = media.used
        await wire.order(wire.batch([bytes(20_000)]))
        assert (await wire.failure())[1] == "full"

        await wire.order(makers.skip(makers.Turn(PID, 1, 1), "t"))  # asks what became of it
        _, outcome, fields, _ = await wire.answer()
        assert (outcome, fields[:2]) == (Outcome.DONE, [Code.ORDERED, 1])
        turn = makers.Turn(b"o" * 16, 1)
        for command in (makers.skip(turn, "t"), makers.create(turn, "u"), makers.barrier(turn)):
            await wire.order(command)
            _, code, text = await wire.failure()
            assert (code, text[:40]) == ("full", "the disk is full, and its reserve is for")
        makes_room = [
            makers.prune(makers.Turn(b"o" * 16, 1), "t", 1),
            makers.configure(makers.Turn(b"o" * 16, 2), "t", {"max_entries": 1}),
            makers.delete(makers.Turn(b"o" * 16, 3), "t"),
        ]
        for command in makes_room:
            await wire.order(command)
            _, outcome, fields, _ = await wire.answer()
            assert (outcome, fields[0]) == (Outcome.DONE, Code.ORDERED)

    serve(work)


def test_a_client_that_leaves_with_orders_under_way_leaves_nothing_and_they_are_done() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        for n in range(10):
            await wire.order(wire.batch([b"%d" % n]))
        await wire.stream.aclose()
        await trio.sleep(1)

        assert (len(there.keeper.calls), there.server.sessions) == (0, {})
        topic = there.keeper.state.topic("t")
        assert topic is not None
        assert there.keeper.state.partition(topic.id, 0).last == 10

    serve(work)


def test_a_batch_that_waits_for_room_is_told_twice_and_forgotten_when_its_client_leaves() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        turn = makers.Turn(b"o" * 16, 1)
        await wire.order(makers.create(turn, "t", {"max_entries": 1, "when_full": "block"}))
        await wire.answer()
        await wire.produce(b"first")
        for _ in range(2):
            await wire.order(wire.batch([b"more"]))
            assert (await wire.answer())[1:3:1][0] == Outcome.MORE
        await other.order(makers.prune(makers.Turn(b"o" * 16, 2), "t", 1))
        await other.answer()
        _, outcome, fields, _ = await wire.answer()
        assert (outcome, fields[:2]) == (Outcome.DONE, [Code.ORDERED, 2])
        await wire.stream.aclose()
        await trio.sleep(1)

        assert len(there.keeper.calls) == 0

    serve(work)


def test_a_receipt_is_waited_for_and_forgotten_when_its_client_leaves() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await wire.produce(b"one")
        waits = await other.send(Verb.RECEIPT, "t", 0, PID, 1, 2, True)
        never = await other.send(Verb.RECEIPT, "t", 0, PID, 1, 9, True)
        await trio.sleep(1)
        await wire.produce(b"two")
        reference, outcome, fields, _ = await other.answer()
        assert (reference, outcome, fields[:2]) == (waits, Outcome.DONE, [Code.ORDERED, 2])
        assert never != waits
        await other.stream.aclose()
        await trio.sleep(1)

        assert len(there.keeper.calls) == 0

    serve(work)


# -- reads ----------------------------------------------------------------------------------


def test_answers_come_in_the_order_in_which_they_are_known() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        pull = await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        topics = await wire.send(Verb.TOPICS)
        assert (await wire.answer())[0] == topics
        order = await wire.order(wire.batch([b"v"]))

        assert {(await wire.answer())[0] for _ in range(2)} == {pull, order}

    serve(work)


def test_where_readers_make_topics_a_produce_finds_none_before_the_first_of_them() -> None:
    async def work(there: There) -> None:
        keeper = there.keeper
        turn = makers.Turn(keeper.fresh_pid(), 1)
        await keeper.order(makers.settings(turn, {"create": "on-subscribe"}))
        wire, reader = await there.connect(), await there.connect()
        assert (await wire.produce(b"early")).code == Code.NOT_FOUND
        pull = await reader.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        follow = await reader.send(Verb.FOLLOW, *Ask("u").fields(), MIB)
        wrong = await reader.send(Verb.PULL, *Ask("no topic").fields())
        assert (await reader.failure())[:2] == (wrong, "refused")
        assert (await wire.produce(b"one")).code == Code.ORDERED
        assert (await reader.answer())[0] == pull
        assert (await wire.produce(b"two", topic="u")).code == Code.ORDERED
        assert (await reader.answer())[0] == follow

    serve(work)


def test_a_pull_that_waits_ends_empty_when_its_time_is_over() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        began = trio.current_time()
        pulled = await wire.pull(Ask("t", wait_us=3_000_000))

        assert pulled.batches == []
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)

    serve(work)


def test_a_pull_that_waits_tells_what_was_pruned_meanwhile() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"1", b"2", b"3")
        turn = makers.Turn(b"o" * 16, 1)
        await other.order(makers.prune(turn, "t", 3))
        await other.answer()
        await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        await trio.sleep(1)
        await other.produce(b"4")
        pulled = requests.decode_pulled(*(await wire.answer())[2:])

        assert (pulled.missing, [batch.start for batch in pulled.batches]) == (3, [4])

    serve(work)


def test_one_read_too_many_at_once_is_refused_and_the_others_go_on() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        ask = Ask("t", wait_us=60_000_000)
        pulls = [await wire.send(Verb.PULL, *ask.fields()) for _ in range(CLIENT_REQUESTS_MAX + 1)]
        assert (await wire.failure())[:2] == (pulls[-1], "limit")
        await (await there.connect()).produce(b"v")

        assert sorted([(await wire.answer())[0] for _ in pulls[:-1]]) == pulls[:-1]

    serve(work)


def test_a_pull_that_is_cancelled_is_not_answered() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        pull = await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        await wire.send(Verb.CANCEL, pull)
        assert await wire.ask(Verb.TOPICS) == [[], False]
        await (await there.connect()).produce(b"v")
        await trio.sleep(0.1)

        assert (await wire.ask(Verb.TOPICS))[1] is False
        assert there.keeper.waiters.statistics().waiting == 0

    serve(work)


def test_a_client_that_leaves_while_it_pulls_and_follows_leaves_nothing() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.send(Verb.PULL, *Ask("t", wait_us=60_000_000).fields())
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), 1000)
        await trio.sleep(1)
        assert there.keeper.waiters.statistics().waiting == 2
        await wire.stream.aclose()
        await trio.sleep(1)

        assert there.keeper.waiters.statistics().waiting == 0
        assert there.server.sessions == {}

    serve(work)


def test_a_session_that_ended_does_not_wait_for_the_garbage_collector() -> None:
    """The daemon looks for rings among old objects next to never."""

    async def work(there: There) -> None:
        wire, broken = await there.connect(), await there.connect()
        await wire.order(wire.batch([b"one"]))
        await wire.send(Verb.PULL, *Ask("none", wait_us=60_000_000).fields())
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), 1000)
        await trio.sleep(6)
        await broken.stream.send_all(b"\xff" * 8)
        await wire.stream.aclose()
        await trio.sleep(6)

        assert [each for each in gc.get_objects() if isinstance(each, Session)] == []

    gc.collect()
    gc.disable()
    try:
        serve(work)
    finally:
        gc.enable()


async def followed(wire: Wire, count: int) -> list[int]:
    """The first numbers of so many answers."""
    found = []
    for _ in range(count):
        _, outcome, fields, body = await wire.answer()
        assert outcome == Outcome.MORE
        found += [batch.start for batch in requests.decode_pulled(fields, body).batches]
    return found


def test_a_follow_sends_what_comes_until_its_credit_is_used_up() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        ask = Ask("t", limit=1)
        follow = await wire.send(Verb.FOLLOW, *ask.fields(), 2)
        await other.produce(b"1")
        await other.produce(b"2")
        assert await followed(wire, 1) == [1]
        with trio.move_on_after(10) as scope:
            await wire.answer()
        assert scope.cancelled_caught, "more than the credit was sent"
        await wire.send(Verb.CREDIT, follow, MIB)
        assert await followed(wire, 1) == [2]
        await other.produce(b"3")
        assert await followed(wire, 1) == [3]
        await wire.send(Verb.CANCEL, follow)
        await wire.ask(Verb.TOPICS)
        assert there.keeper.waiters.statistics().waiting == 0

    serve(work)


def test_what_many_followers_at_one_place_are_shown_is_found_once() -> None:
    async def work(there: There) -> None:
        other = await there.connect()
        wires = [await there.connect() for _ in range(20)]
        for wire in wires:
            await wire.send(Verb.FOLLOW, *Ask("t").fields(), MIB)
        await trio.sleep(1)
        found, pull = 0, there.keeper.reader.pull

        async def counted(ask: Pull) -> Pulled:
            nonlocal found
            pulled = await pull(ask)
            found += bool(pulled.batches)
            return pulled

        there.keeper.reader.pull = counted  # type: ignore[method-assign]
        await other.produce(b"one")

        assert [await followed(wire, 1) for wire in wires] == [[1]] * 20
        assert found == 1

    serve(work)


def test_what_one_was_shown_is_not_shown_to_who_asks_for_something_else_or_later() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.produce(b"1", b"2", b"3")
        ask = Ask("t")

        async def numbers(ask: Ask) -> list[tuple[int, int]]:
            return [(batch.start, batch.stop) for batch in (await wire.pull(ask)).batches]

        assert await numbers(ask) == await numbers(ask) == [(1, 4)]
        assert await numbers(ask._replace(limit=2)) == [(1, 3)]
        assert await numbers(ask._replace(after=1)) == [(2, 4)]
        assert await numbers(ask._replace(topic="other")) == []
        await wire.order(makers.prune(makers.Turn(b"o" * 16, 1), "t", 2))
        await wire.answer()
        assert await numbers(ask) == [(3, 4)]
        await wire.order(makers.delete(makers.Turn(b"o" * 16, 2, 0, 1), "t"))
        await wire.answer()
        assert await numbers(ask) == []

    serve(work)


def test_a_follow_from_the_end_begins_with_what_is_new() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"old")
        await wire.send(Verb.FOLLOW, *Ask("t", cursors.LAST).fields(), MIB)
        await trio.sleep(1)
        await other.produce(b"new")

        assert await followed(wire, 1) == [2]

    serve(work)


def test_a_follower_that_never_reads_costs_no_more_than_its_share() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await wire.send(Verb.FOLLOW, *Ask("t").fields(), 1 << 40)
        for _ in range(12):
            await other.produce(b"x" * MIB)
        await trio.sleep(10)
        queued = [session.told()["queued"] for session in there.server.sessions.values()]

        assert MIB < max(queued) <= 3 * MIB
        assert len(await followed(wire, 12)) == 12, "and it goes on where it was"

    serve(work)


def test_a_client_that_asks_and_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "OUTPUT_BYTES_MAX", MIB)

    async def work(there: There) -> None:
        wire = await there.connect()
        request = b"".join(frames.encode(requests.request(1, Verb.PULL))) * 1000
        with pytest.raises(trio.BrokenResourceError):
            while True:
                for session in there.server.sessions.values():
                    assert session.told()["queued"] <= MIB
                await wire.stream.send_all(request)
        assert there.event("client_too_slow")

    serve(work)


def test_topics_and_clients_are_told_page_by_page() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        for n in range(1000):
            await wire.produce(b"v", topic=f"{'long.name.' * 12}{n:04d}")
        names: list[str] = []
        more = True
        while more:
            page, more = await wire.ask(Verb.TOPICS, *names[-1:])
            names += [name for name, *_ in page]
        others = [await there.connect(hello=False) for _ in range(250)]
        for n, other in enumerate(others):
            await other.hello(name=f"{'ü' * 100}{n}")
        ids: list[int] = []
        more = True
        while more:
            page, more = await wire.ask(Verb.CLIENTS, *ids[-1:])
            ids += [each["id"] for each in page]

        assert names == [f"{'long.name.' * 12}{n:04d}" for n in range(1000)]
        assert len(ids) == len(set(ids)) == 251

    serve(work)


# -- the end --------------------------------------------------------------------------------


def test_what_is_answered_while_the_server_ends_does_no_harm() -> None:
    async def work(there: There) -> None:
        keeper = there.keeper
        server = Server(keeper, ServerOptions(), there.env.disk.free)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            nursery.cancel_scope.cancel()
        wire = await there.connect()
        session = Session(server, wire.stream, Peer("late", trusted=True), 1)
        session._output.put([bytes(MIB)])
        session._output.flush()  # more than a socket takes
        keeper.on_turn = there.server.flush

    serve(work)


def test_a_node_that_stops_answers_what_it_took_and_takes_nothing_new() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        pull = await wire.send(Verb.PULL, *Ask("quiet", wait_us=60_000_000).fields())
        follow = await wire.send(Verb.FOLLOW, *Ask("quiet").fields(), 1000)
        await wire.produce(b"before")
        taken = [await wire.order(wire.batch([b"taken"])) for _ in range(5)]
        await trio.sleep(0.1)
        there.server.stop()
        refused = await wire.order(wire.batch([b"new"]))
        answers = {}
        for _ in range(8):
            reference, outcome, fields, _ = await wire.answer()
            answers[reference] = outcome, fields[0]
        await there.server.drain()

        assert [answers[each] for each in taken] == [(Outcome.DONE, Code.ORDERED)] * 5
        assert answers[refused] == answers[follow] == (Outcome.FAILED, "no-quorum")
        assert answers[pull][0] == Outcome.DONE
        late = await there.connect(hello=False)
        await late.send(Verb.HELLO, requests.VERSION, "late", "", {})
        assert (await late.failure())[1] == "no-quorum"

    serve(work, survives=False)
