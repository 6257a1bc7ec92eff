"""Sockets of clients: how all of them notice a dead machine, and those that the kernel waits for.

A receive that the kernel ends by itself after a while costs one call; a poll before it would be
another.  Sending never waits (MSG_DONTWAIT).
"""

from __future__ import annotations

import select
import socket
from typing import Any, Final

from .addresses import Address, Unix

BLOCK_SECONDS: Final = 1.0  # the kernel's patience; who has less polls
DEAD_AFTER_MS: Final = 10_000  # what was sent and not acknowledged by the other machine
SEND_BYTES: Final = (
    1 << 20
)  # in the kernel, if it allows so much: fewer turns between two processes
SHORT_SECONDS: Final = 0.05


def dial(address: Address, timeout: float) -> socket.socket:
    """
    Raises:
        OSError: nobody answers there.
    """
    if isinstance(address, Unix):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        try:
            sock.connect(address.path)
        except OSError:
            sock.close()
            raise
    else:
        sock = socket.create_connection((address.host, address.port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_death(sock)
    # The kernel waits, so that an answer that comes in time costs one call and no poll.
    sock.settimeout(None)
    seconds, micros = divmod(round(BLOCK_SECONDS * 1e6), 1_000_000)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds, micros))
    return sock


def notice_death(sock: Any) -> None:
    """Of a machine that says nothing any more, while somebody waits for its answer: in ten seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)


def wait_writable(sock: socket.socket) -> None:
    """For a moment: it may be closed by another thread meanwhile."""
    poll = select.poll()
    try:
        poll.register(sock, select.POLLOUT)
    except (OSError, ValueError):
        return
    poll.poll(SHORT_SECONDS * 1000)


def _timeval(seconds: int, micros: int) -> bytes:
    return seconds.to_bytes(8, "little") + micros.to_bytes(8, "little")
