"""Health and metrics over HTTP, as strangers may ask for them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from duckrow.node import watching
from duckrow.node.alone import Options, open_node
from duckrow.node.metrics import METRICS
from duckrow.node.realio import real_env
from duckrow.node.server import Server, ServerOptions
from duckrow.node.tally import BOUNDS, Histogram
from duckrow.node.watching import CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_SECONDS_MAX, Watching

SAMPLE = re.compile(
    r'([a-z_]+)(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? -?[0-9.]+(e-?[0-9]+)?'
).fullmatch


def run(work: Callable[[], Awaitable[None]]) -> None:
    trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0.01))


async def asked(there: Watching, *parts: bytes, pause: float = 0.0) -> bytes:
    """What it answers to a request that comes in parts; b"" if it only hangs up."""
    near, far = trio.testing.memory_stream_pair()
    received = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(there.handle, far)
        try:
            for part in parts:
                await near.send_all(part)
                await trio.sleep(pause)
        except trio.BrokenResourceError:
            pass
        async for data in near:
            received += data
    return received


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def test_before_there_is_a_node_it_is_healthy_and_not_ready() -> None:
    async def main() -> None:
        there = Watching(Histogram())
        assert status(await asked(there, b"GET /healthz HTTP/1.1\r\n\r\n")) == 200
        for path in (b"/readyz", b"/readyz?active", b"/metrics"):
            answer = await asked(there, b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            assert status(answer) == 503
            assert b"the row is being recovered" in answer

    run(main)


def test_a_request_may_come_in_pieces() -> None:
    async def main() -> None:
        parts = [bytes([byte]) for byte in b"GET /healthz HTTP/1.0\r\nA: b\r\n\r\n"]
        answer = await asked(Watching(Histogram()), *parts)
        head, body = answer.split(b"\r\n\r\n")
        assert (status(answer), body) == (200, b"ok\n")
        assert b"Content-Length: 3\r\n" in head
        assert b"Connection: close" in head

    run(main)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"POST /healthz HTTP/1.1\r\n\r\n", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/2\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\xff\xfe \x00 HTTP/1.1\n\n", 400),
        (b"GET /" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n", 431),
    ],
)
def test_what_is_not_there_is_refused(request_: bytes, expected: int) -> None:
    async def main() -> None:
        assert status(await asked(Watching(Histogram()), request_)) == expected

    run(main)


def test_whoever_asks_too_slowly_is_closed() -> None:
    async def main() -> None:
        began = trio.current_time()
        request = [b"G", b"E", b"T", b" ", b"/", b"h", b"e", b"a"]
        assert await asked(Watching(Histogram()), *request, pause=1.0) == b""
        assert trio.current_time() - began < HEAD_SECONDS_MAX + 2

    run(main)


def test_whoever_does_not_take_the_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        near, far = trio.testing.lockstep_stream_pair()  # sends wait until they are received
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watching(Histogram()).handle, far)
            await near.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
        with pytest.raises(trio.BrokenResourceError):
            await near.send_all(b"x")

    run(main)


def test_so_many_at_a_time_are_served_and_the_others_closed() -> None:
    async def main() -> None:
        there = Watching(Histogram())
        streams = []
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS_MAX):
                near, far = trio.testing.memory_stream_pair()
                streams.append(near)
                nursery.start_soon(there.handle, far)
            await trio.sleep(0.1)
            assert await asked(there) == b""
            nursery.cancel_scope.cancel()
        assert status(await asked(there, b"GET /healthz HTTP/1.1\r\n\r\n")) == 200

    run(main)


def test_every_metric_is_told_in_the_form_that_prometheus_reads(tmp_path: Path) -> None:
    async def main() -> None:
        env = real_env("m1", tmp_path)
        syncs = Histogram()
        for seconds in (0.00005, 0.001, 0.3, 99.0):
            syncs.add(seconds)
        there = Watching(syncs)
        async with open_node(env, Options()) as keeper:
            server = Server(keeper, ServerOptions(name='a "quoted" \\ name\n'), env.disk.free)
            there.ready(keeper, server)
            text = there.answer("/metrics").body
            server.stop()
            assert there.answer("/readyz").status == 503
        lines = text.splitlines()
        assert all(SAMPLE(line) for line in lines if not line.startswith(("#", "duckrow_info")))
        assert r'node="a \"quoted\" \\ name\n"' in text
        told = {
            line.split(" ")[2]: line.split(" ")[3] for line in lines if line.startswith("# TYPE")
        }
        assert told == {metric.name: metric.kind for metric in METRICS}
        for bound, count in zip((BOUNDS[0], 0.001, 0.5, BOUNDS[-1]), (1, 2, 3, 3), strict=True):
            assert f'duckrow_sync_seconds_bucket{{le="{bound:g}"}} {count}' in lines
        assert 'duckrow_sync_seconds_bucket{le="+Inf"} 4' in lines

    trio.run(main)


def test_it_says_nothing_of_what_the_machine_does_not_tell() -> None:
    def fails() -> int:
        raise OSError

    assert watching._machine(fails) == 0
