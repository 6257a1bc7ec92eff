"""Watching: a node's metrics and its health over HTTP, for machines that look after machines.

    GET /metrics          what there is to measure, for Prometheus
    GET /healthz          200 as long as the process runs
    GET /readyz           200 once it serves what it has; 503 before, and when it stops
    GET /readyz?active    200 if it may order as well

As little of HTTP as that needs: GET and HEAD, one request a connection, a small head within a few
seconds, few connections at a time.  It is there before the row is recovered.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import trio

from . import metrics
from .keeper import Keeper
from .metrics import Seen
from .server import Server
from .tally import Histogram

HEAD_BYTES_MAX: Final = 8 * 1024
HEAD_SECONDS_MAX: Final = 5.0
SEND_SECONDS_MAX: Final = 10.0
CONNECTIONS_MAX: Final = 64
PLAIN: Final = "text/plain; charset=utf-8"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    status: int
    body: str
    kind: str = PLAIN


class Watching:
    def __init__(self, syncs: Histogram) -> None:
        self._syncs = syncs
        self._began = self._ready = time.monotonic()
        self._node: tuple[Keeper, Server] | None = None
        self._connections = 0

    def ready(self, keeper: Keeper, server: Server) -> None:
        """From here on there is a node."""
        self._node = keeper, server
        self._ready = time.monotonic()

    def begins_anew(self) -> None:
        """There is none, until it is ready again."""
        self._node, self._began = None, time.monotonic()

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serves one request."""
        if self._connections >= CONNECTIONS_MAX:
            await trio.aclose_forcefully(stream)
            return
        self._connections += 1
        try:
            answer, with_body = await self._answered(stream)
            if answer is not None:
                with trio.move_on_after(SEND_SECONDS_MAX):
                    await stream.send_all(_encoded(answer, with_body=with_body))
                    if isinstance(stream, trio.abc.HalfCloseableStream):
                        await stream.send_eof()
        finally:
            self._connections -= 1
            await trio.aclose_forcefully(stream)

    async def _answered(self, stream: trio.abc.Stream) -> tuple[Answer | None, bool]:
        head = b""
        with trio.move_on_after(HEAD_SECONDS_MAX):
            while b"\r\n\r\n" not in head and b"\n\n" not in head:
                if len(head) > HEAD_BYTES_MAX:
                    return Answer(431, "the request is too long\n"), True
                data = await stream.receive_some(HEAD_BYTES_MAX)
                if not data:
                    return None, False
                head += data
            method, target = _request(head)
            if method not in ("GET", "HEAD"):
                known = method.isalpha() and method.isupper()
                return Answer(405 if known else 400, "GET is all there is\n"), True
            return self.answer(target), method == "GET"
        return None, False

    def answer(self, target: str) -> Answer:
        path, _, query = target.partition("?")
        match path:
            case "/healthz":
                return Answer(200, "ok\n")
            case "/readyz":
                why = self._why_not(active="active" in query.split("&"))
                return Answer(503, f"{why}\n") if why else Answer(200, "ok\n")
            case "/metrics":
                if self._node is None:
                    return Answer(503, "the row is being recovered\n")
                return Answer(200, metrics.text(self._seen(*self._node)), PROMETHEUS)
        return Answer(404, "there are /metrics, /healthz and /readyz\n")

    def _why_not(self, *, active: bool) -> str:
        """Empty: it is as it should be."""
        if self._node is None:
            return "the row is being recovered"
        keeper, server = self._node
        if server.stopping:
            return "the node is stopping"
        status = keeper.row.status()
        if active and not status.active:
            return str(keeper.row.broken or "the node may not order now")
        return ""

    def _seen(self, keeper: Keeper, server: Server) -> Seen:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Seen(
            keeper=keeper,
            server=server,
            syncs=self._syncs,
            recovery_seconds=self._ready - self._began,
            now=trio.current_time(),
            began=trio.current_time() - (time.monotonic() - self._ready),
            resident=_resident(),
            cpu_seconds=used.ru_utime + used.ru_stime,
            files=_files(),
        )


def _request(head: bytes) -> tuple[str, str]:
    """Method and target; empty if it is no request."""
    line = head.splitlines()[0].decode("latin-1").split(" ") if head.strip() else []
    if len(line) != 3 or not line[2].startswith("HTTP/1."):
        return "", ""
    return line[0], line[1]


def _encoded(answer: Answer, *, with_body: bool) -> bytes:
    body = answer.body.encode()
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.kind}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


def _resident() -> int:
    return _machine(
        lambda: int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    )


def _files() -> int:
    return _machine(lambda: len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - only how many


def _machine(read: Callable[[], int]) -> int:
    """0 where the machine does not say it."""
    try:
        return read()
    except OSError:
        return 0
