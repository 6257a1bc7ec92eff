"""The machine's sockets: TCP, and Unix sockets between processes of one machine."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import trio

from .addresses import OWN_SOCKET, Address, Tcp, Unix, is_loopback
from .dialling import notice_death
from .env import Buffer, Handler, Peer

log = logging.getLogger(__name__)

SOCKET_MODE = 0o600
FOLDER_MODE = 0o700
BACKLOG = 1024
KEEPALIVE_IDLE = 60  # seconds without a word, and then one every KEEPALIVE_SECONDS
KEEPALIVE_SECONDS = 15
KEEPALIVE_TRIES = 4
BIND_TRIES = 100
BIND_SECONDS = 0.01  # between two of them
IOV_MAX = os.sysconf("SC_IOV_MAX")

RECEIVE_BYTES = 64 * 1024

Where = TypeVar("Where")


class RealNet:
    """TCP, and Unix sockets between processes of one machine.

    `addresses` maps names of hosts to where they are: an address for TCP; the absolute path of a
    folder, in which each port is a Unix socket of that name; or unix:/path, whatever the port.
    """

    def __init__(self, name: str, addresses: Mapping[str, str]) -> None:
        self._name, self._addresses = name, addresses

    async def connect(self, host: str, port: int) -> RealStream:
        address = self._addresses[host]
        if address.startswith("/"):
            return await connect_to(Unix(f"{address}/{port}"))
        if address.startswith(OWN_SOCKET):
            return await connect_to(Unix(address.removeprefix(OWN_SOCKET)))
        return await connect_to(Tcp(address, port))

    async def serve(
        self,
        handler: Handler,
        port: int,
        *,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        address = self._addresses[self._name]
        if address.startswith("/"):
            assert port, "a Unix socket needs a number for its name"
            await self._serve_unix(handler, Path(address, str(port)), port, task_status)
        else:
            listeners = await _listen_tcp(Tcp(address, port))
            port = listeners[0].socket.getsockname()[1]
            await _serve(handler, listeners, port, task_status)

    async def _serve_unix(
        self, handler: Handler, path: Path, port: int, task_status: trio.TaskStatus[int]
    ) -> None:
        async with _listen_unix(path) as listener:
            await _serve(handler, [listener], port, task_status)


class RealStream(trio.abc.HalfCloseableStream):
    """A socket's stream that also takes bytes without waiting, and brings them where they belong."""

    __slots__ = ("_fd", "_stream", "peer", "socket")

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        self._fd = stream.socket.fileno()  # -1 once it is closed
        self.peer = _peer_of(stream.socket)
        if self.socket.family != socket.AF_UNIX:
            _keep_alive(self.socket)

    async def send_all(self, data: Buffer) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As of any stream; the way through fewer calls takes a fifth off an idle connection."""
        size = RECEIVE_BYTES if max_bytes is None else max_bytes
        self._check_open()
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return os.read(self._fd, size)
            except OSError as error:
                _look_at(error)

    async def aclose(self) -> None:
        self._fd = -1
        await self._stream.aclose()

    def send_now(self, buffers: Iterable[Buffer]) -> int:
        """How many bytes of them the kernel took; 0: none now.

        Raises:
            OSError: the connection is gone.
        """
        try:
            return os.writev(self._fd, [*islice(buffers, IOV_MAX)])
        except BlockingIOError:
            return 0

    async def receive_into(self, buffer: memoryview) -> int:
        """0: the other side has ended the stream."""
        try:
            # Of a large frame there is mostly more by now.
            count = os.readv(self._fd, [buffer])
        except OSError:  # there is not; or it breaks again below
            self._check_open()
            while True:
                await trio.lowlevel.wait_readable(self._fd)
                try:
                    return os.readv(self._fd, [buffer])
                except OSError as error:
                    _look_at(error)
        await trio.lowlevel.cancel_shielded_checkpoint()  # nothing that was read may be lost
        return count

    def _check_open(self) -> None:
        if self._fd < 0:
            raise trio.ClosedResourceError("this stream was closed")


def _look_at(error: OSError) -> None:
    """
    Raises:
        BrokenResourceError: unless bytes had come that were broken, and were dropped.
    """
    if not isinstance(error, BlockingIOError):
        raise trio.BrokenResourceError(f"the connection broke: {error}") from error


class _Listener(trio.abc.Listener[RealStream]):
    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener

    async def accept(self) -> RealStream:
        return RealStream(await self._listener.accept())

    async def aclose(self) -> None:
        await self._listener.aclose()


def _keep_alive(sock: trio.socket.SocketType) -> None:
    """A client whose machine is gone is noticed after two minutes, though nobody sends anything."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES)
    except OSError:
        pass  # it has left already


def _peer_of(sock: trio.socket.SocketType) -> Peer:
    if sock.family == socket.AF_UNIX:
        pid, uid, _ = struct.unpack(
            "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        return Peer(f"unix:pid={pid}", trusted=True, uid=uid, pid=pid)
    try:
        host, port, *_ = sock.getpeername()
    except OSError:  # it has left already
        return Peer("tcp:gone", trusted=False)
    own = is_loopback(Tcp(host.removeprefix("::ffff:"), port))
    return Peer(f"tcp:{host}:{port}", trusted=False, host="" if own else host)


async def serve_at(
    handler: Handler,
    address: Address,
    nursery: trio.Nursery | None = None,
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves at an address until cancelled; started with the address, its port filled in.

    With a nursery of their own, those that are being served outlive the listening.

    Raises:
        OSError: nobody can listen there.
    """
    if isinstance(address, Unix):
        path = Path(address.path)
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        async with _listen_unix(path) as listener:
            await _serve(handler, [listener], address, task_status, nursery)
    else:
        listeners = await _listen_tcp(address, BACKLOG)
        port = listeners[0].socket.getsockname()[1]
        await _serve(handler, listeners, address._replace(port=port), task_status, nursery)


async def connect_to(address: Address) -> RealStream:
    """
    Raises:
        OSError: nobody answers there.
    """
    if isinstance(address, Unix):
        stream = await trio.open_unix_socket(address.path)
    else:
        stream = await trio.open_tcp_stream(address.host, address.port)
        found = RealStream(stream)
        notice_death(stream.socket)
        return found
    return RealStream(stream)


async def _serve(
    handler: Handler,
    listeners: Sequence[trio.SocketListener],
    where: Where,
    task_status: trio.TaskStatus[Where],
    handlers: trio.Nursery | None = None,
) -> None:
    async def serve_one(stream: RealStream) -> None:
        try:
            await handler(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            log.debug("connection_lost error=%r", error)
        except Exception:  # a defect in the handler; trio would end the whole process with it
            log.exception("handler_failed")

    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(
                trio.serve_listeners,
                serve_one,
                [*map(_Listener, listeners)],
                handler_nursery=handlers,
            )
        )
        task_status.started(where)


async def _listen_tcp(address: Tcp, backlog: int | None = None) -> list[trio.SocketListener]:
    try:
        return await trio.open_tcp_listeners(address.port, host=address.host, backlog=backlog)
    except OSError as error:
        text = f"nobody can listen at {address}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            text = f"{address} is in use: another process listens there"
        raise OSError(error.errno, text) from error


@asynccontextmanager
async def _listen_unix(path: Path) -> AsyncIterator[trio.SocketListener]:
    """The socket's file is there as long as the block lasts, and is taken away with it."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with sock:
        async with _alone_in(path.parent):
            try:
                sock.bind(str(path))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    text = f"nobody can listen at {path}: {error.strerror}"
                    raise OSError(error.errno, text) from None
                if not stat.S_ISSOCK(path.lstat().st_mode):  # not ours to remove
                    text = f"nobody can listen at {path}: a file is there, which is no socket"
                    raise OSError(errno.EADDRINUSE, text) from None
                if _answers(path):
                    text = f"{path} is in use: another process listens there"
                    raise OSError(errno.EADDRINUSE, text) from None
                path.unlink()  # left by a process that was killed
                sock.bind(str(path))
            path.chmod(SOCKET_MODE)  # before anybody can connect
            sock.listen(BACKLOG)
            own = path.lstat().st_ino
        try:
            yield trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        finally:
            try:
                if path.lstat().st_ino == own:
                    path.unlink()
            except FileNotFoundError:
                pass


@asynccontextmanager
async def _alone_in(folder: Path) -> AsyncIterator[None]:
    """Between bind and listen a socket looks as if it had been left: nobody may look meanwhile.

    Raises:
        BlockingIOError: somebody else is doing the same, and does not come to an end.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(BIND_TRIES):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # it takes no time
                await trio.sleep(BIND_SECONDS)
        else:
            text = f"nobody can listen in {folder}: another process has locked that folder"
            raise BlockingIOError(errno.EAGAIN, text)
        yield
    finally:
        os.close(fd)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # its backlog is full: somebody is there
            return True
        return True


def notify(text: str) -> None:
    """Tells systemd, if it asked to be told."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    if path.startswith("@"):
        path = "\0" + path[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.connect(path)
            sock.send(text.encode())
        except OSError as error:
            log.warning("notify_failed error=%r", error)
