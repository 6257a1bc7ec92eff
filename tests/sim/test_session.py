"""Who comes to a node, and is let in or not; and what becomes of all when the node stops."""

from __future__ import annotations

import struct

import pytest
import trio

from duckrow.node import cbor, frames, requests
from duckrow.node.effects import Code
from duckrow.node.env import Peer
from duckrow.node.limits import CLIENT_REQUESTS_MAX, HELLO_BYTES_MAX, MIB
from duckrow.node.pulled import Pulled
from duckrow.node.reading import Pull
from duckrow.node.requests import Ask, Outcome, Verb
from duckrow.node.server import Server, ServerOptions
from duckrow.node.session import Session

from .wire import There, serve


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

        _, code, said = await more.failure()
        assert (code, said.partition(":")[0]) == ("no-quorum", "this node serves 3 clients already")
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
        _, code, said = await more.failure()
        assert (code, said.partition(":")[0]) == ("no-quorum", reason)
        assert said.endswith("raise node.host_connections")
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


def test_a_node_that_stops_does_not_wait_for_what_is_asked_since() -> None:
    """Who follows asks again at once: of very many there was always one that was being answered."""

    async def work(there: There) -> None:
        reader = there.server.node.reader
        pull = reader.pull

        async def slow(ask: Pull) -> Pulled:
            await trio.sleep(0.05)
            return await pull(ask)

        async def follow() -> None:
            wire = await there.connect()
            while True:
                await wire.send(Verb.PULL, *Ask("quiet", wait_us=60_000_000).fields())
                await wire.answer()

        reader.pull = slow  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(follow)
                await trio.sleep(0.01)
            await trio.sleep(1)
            there.server.stop()
            with trio.fail_after(1):
                await there.server.drain()
            nursery.cancel_scope.cancel()

    serve(work, survives=False)


def test_a_node_that_stops_waits_until_its_answers_are_taken() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await other.produce(b"x" * MIB)
        pull = await wire.send(Verb.PULL, *Ask("t").fields())
        await trio.sleep(1)  # more is found than a socket takes, and nobody reads
        there.server.stop()
        with trio.move_on_after(10) as waited:
            await there.server.drain()
        assert waited.cancelled_caught, "it did not wait for who was to be answered"

        assert (await wire.answer())[:2] == (pull, Outcome.DONE)
        with trio.fail_after(1):
            await there.server.drain()

    serve(work, survives=False)
