"""A node on the simulated network, as small as it can be, and the other end of the wire.

It is for simulations only: it speaks the product's frames, keeps requests in order of arrival, and
has no manners (no limits, no login).  What is tested is what lies behind it.

    request    [reference, verb, ...] body        order: a command's head and body
    answer     [reference, verb, ...] body        result, pulled, topics, error
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from duckrow.node import cbor, cursors, frames
from duckrow.node.codec import decode
from duckrow.node.commands import Command
from duckrow.node.effects import Result
from duckrow.node.entries import Batch
from duckrow.node.env import Env
from duckrow.node.errors import Damaged, Disconnected, DuckrowError
from duckrow.node.keeper import Keeper
from duckrow.node.reading import Pull

PORT = 7000


async def serve(env: Env, node: Keeper, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    async def handle(stream: trio.abc.Stream) -> None:
        lock, reader = trio.Lock(), _reader()
        async with trio.open_nursery() as nursery:
            while (frame := await _next(stream, reader)) is not None:
                nursery.start_soon(_request, node, frame, stream, lock)
            nursery.cancel_scope.cancel()

    await env.net.serve(handle, PORT, task_status=task_status)


async def _request(
    node: Keeper, frame: frames.Frame, stream: trio.abc.Stream, lock: trio.Lock
) -> None:
    reference, verb, *rest = cbor.loads_array(frame.head, 1 << 20)
    try:
        head, bodies = await VERBS[verb](node, frame.body, *rest)
    except Damaged as error:
        head, bodies = ["damaged", error.partition, error.first, error.last, str(error)], []
    except DuckrowError as error:
        head, bodies = ["error", error.code, str(error)], []
    async with lock:
        try:
            await stream.send_all(b"".join(frames.encode(cbor.dumps([reference, *head]), *bodies)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # whoever asked is gone


async def _order(node: Keeper, body: Any, head: bytes) -> tuple[list[Any], list[Any]]:
    return ["result", *await node.order(Command(head, body))], []


async def _pull(
    node: Keeper,
    _body: Any,
    topic: str,
    topic_id: int,
    partition: int | None,
    done: list[tuple[int, int]] | None,
    since: int,
    limit: int,
    wait: float,
) -> tuple[list[Any], list[Any]]:
    after = cursors.Cursor(dict(done), since) if done is not None else cursors.Cursor()
    found = await node.reader.pull(
        Pull(topic, after, partition=partition, topic_id=topic_id, limit=limit, wait=wait)
    )
    batches = [[*batch[:-1], len(batch.body)] for batch in found.batches]
    going = found.after
    return [
        "pulled",
        found.topic_id,
        found.missing,
        [[p, n] for p, n in going.done.items()] if isinstance(going, cursors.Cursor) else None,
        going.since if isinstance(going, cursors.Cursor) else 0,
        [[p, *span] for p, span in found.spans.items()],
        batches,
    ], [batch.body for batch in found.batches]


async def _topics(node: Keeper, _body: Any) -> tuple[list[Any], list[Any]]:
    topics = node.state.topics.rows
    return [
        "topics",
        [[name, topic.id, topic.policy.partitions] for name, topic in topics.items()],
    ], []


VERBS: dict[str, Callable[..., Any]] = {"order": _order, "pull": _pull, "topics": _topics}


class Client:
    """One connection at a time, requests in any number; a broken one fails all that wait."""

    def __init__(self, env: Env, host: str) -> None:
        self._env, self._host = env, host
        self._stream: trio.abc.Stream | None = None
        self._waiting: dict[int, list[Any]] = {}
        self._reference = 0
        self._dialled = trio.Event()
        self._dialling = trio.Lock()
        self._sending = trio.Lock()

    async def run(self) -> None:
        """Receives, for as long as the client is used."""
        while True:
            stream = self._stream
            if stream is None:
                self._dialled = trio.Event()
                await self._dialled.wait()
                continue
            reader = _reader()
            try:
                while (frame := await _next(stream, reader)) is not None:
                    reference, *answer = cbor.loads_array(frame.head, 1 << 20)
                    call = self._waiting.pop(reference, None)
                    if call is not None:
                        call[1] = (answer, frame.body)
                        call[0].set()
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, Disconnected):
                pass
            await self._drop(stream)

    async def call(self, head: list[Any], body: Any = b"") -> tuple[list[Any], Any]:
        """
        Raises:
            Disconnected: nobody knows whether it was done.
        """
        async with self._dialling:
            if self._stream is None:
                try:
                    self._stream = await self._env.net.connect(self._host, PORT)
                except OSError as error:
                    raise Disconnected(f"no connection: {error}") from error
                self._dialled.set()
        self._reference += 1
        reference = self._reference
        call: list[Any] = [trio.Event(), None]
        self._waiting[reference] = call
        stream = self._stream
        try:
            async with self._sending:
                await stream.send_all(b"".join(frames.encode(cbor.dumps([reference, *head]), body)))
            await call[0].wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            await self._drop(stream)
            raise Disconnected("the connection broke") from error
        except trio.Cancelled:
            # Half a frame may have been sent: this connection is good for nothing any more.
            with trio.CancelScope(shield=True):
                await self._drop(stream)
            raise
        finally:
            self._waiting.pop(reference, None)
        if call[1] is None:
            raise Disconnected("the connection broke")
        answer: tuple[list[Any], Any] = call[1]
        return answer

    async def order(self, command: Command) -> Result | str:
        """The result, or the error's code."""
        answer, _ = await self.call(["order", command.head], command.body)
        return Result(*answer[1:]) if answer[0] == "result" else str(answer[1])

    async def _drop(self, stream: trio.abc.Stream) -> None:
        if self._stream is stream:
            self._stream = None
            for call in self._waiting.values():
                call[0].set()
        await trio.aclose_forcefully(stream)


def batches_of(topic: str, heads: list[list[Any]], body: Any) -> list[Batch]:
    """What a client would show its user."""
    found = []
    offset = 0
    for partition, first, _count, start, stop, time, _position, pid, codec, length in heads:
        columns = decode(codec, bytes(body[offset : offset + length]))
        lo, hi = start - first, stop - first
        found.append(Batch(topic, partition, start, time, pid, columns, lo, hi))
        offset += length
    return found


def _reader() -> frames.FrameReader:
    reader = frames.FrameReader()
    reader.accept_hello()
    return reader


async def _next(stream: trio.abc.Stream, reader: frames.FrameReader) -> frames.Frame | None:
    """None: the other side has ended the stream, between two frames."""
    while (frame := reader.next_frame()) is None:
        data = await stream.receive_some()
        if not data:
            reader.end_of_data()
            return None
        reader.receive_data(data)
    return frame
