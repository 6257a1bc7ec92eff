"""What a client may send to a node: nothing that costs more than its limits or ends another's session."""

from __future__ import annotations

import struct

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duckrow.node import cbor, columns, frames, makers, requests
from duckrow.node.checksum import crc32c
from duckrow.node.commands import Kind
from duckrow.node.effects import Code
from duckrow.node.limits import CLIENT_REQUESTS_MAX, FRAME_BYTES_MAX, MIB
from duckrow.node.requests import Ask, Outcome, Verb

from .wire import PID, There, serve

FEW = 15  # examples, of several sessions each


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


def test_a_name_that_is_too_long_to_be_quoted_is_refused_all_the_same() -> None:
    """It had no answer at all, and stood in the log as a fault of the node, with the whole name."""

    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.send(Verb.TOPIC, "\0" * 60_000)
        with trio.fail_after(5):
            _, code, text = await wire.failure()
        assert (code, text[-3:]) == ("not-found", "...")
        assert (await wire.produce(b"v")).code == Code.ORDERED

    serve(work)


def test_what_is_no_batch_brings_no_body() -> None:
    """It would get into the last space of a disk, or be larger than a frame to the other machines."""

    async def work(there: There) -> None:
        wire, body = await there.connect(), bytes(1_000)
        for made in (
            makers.barrier(makers.Turn(PID, 1)),
            makers.prune(makers.Turn(PID, 1), "t", 1),
        ):
            fields = [*cbor.loads_array(made.head)]
            fields[8:10] = len(body), crc32c(body)
            await wire.send(Verb.ORDER, cbor.dumps(fields), False, body=body)
            _, code, text = await wire.failure()
            assert (code, "1,000" in text) == ("refused", True)
        assert (await wire.produce(b"v")).code == Code.ORDERED

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
