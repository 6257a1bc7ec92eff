"""What bare sockets do between two processes: the yardsticks of clients.

    sink     takes bytes, as many as were told before, and answers with one when it has them
    waker    waits for eight bytes, the time at which they were sent, and notes how long they took

Both are programs without duckrow and without trio, which block in the kernel, on a Unix socket.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LENGTH: Final = struct.Struct("<Q")

SINK: Final = """
import socket, struct, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    sock = listener.accept()[0]
buffer = memoryview(bytearray(1 << 20))
while told := sock.recv(8, socket.MSG_WAITALL):
    left, = struct.unpack("<Q", told)
    while left:
        left -= sock.recv_into(buffer[:left])
    sock.sendall(b"!")
"""

WAKER: Final = """
import json, socket, struct, sys, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    sock = listener.accept()[0]
found = []
while told := sock.recv(8):
    now = time.monotonic_ns()
    found.append(now - struct.unpack("<Q", told)[0])
print(json.dumps(found), flush=True)
"""


class Bare:
    """A bare program, and the connection to it."""

    def __init__(self, process: subprocess.Popen[str], sock: socket.socket) -> None:
        self._process, self._socket = process, sock

    def pour(self, blocks: Sequence[bytes]) -> None:
        """A call for each, until the other side has all of them."""
        self._socket.sendall(LENGTH.pack(sum(map(len, blocks))))
        for block in blocks:
            self._socket.sendall(block)
        self._socket.recv(1)

    def wake(self) -> None:
        self._socket.sendall(LENGTH.pack(time.monotonic_ns()))

    def told(self) -> list[int]:
        """The end; what it has noted."""
        self._socket.shutdown(socket.SHUT_WR)
        assert self._process.stdout is not None
        found: list[int] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def bare(program: str) -> Iterator[Bare]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "bare.sock"))
        words = [sys.executable, "-c", program, path]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.connect(path)
                    yield Bare(process, sock)
            finally:
                process.kill()
