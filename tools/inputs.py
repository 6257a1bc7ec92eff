"""What is produced, from words, lines of stdin, or files: in chunks, as they come.

    VALUE...          an entry each; `-` among them stands for all of stdin
    (none)            a line of stdin each; with -0, what stands between two NULs
    --file F          the whole file is one entry

A chunk is what a pipe has at the time, so nothing waits for more than there is, and what comes while
a chunk is under way goes together.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from duckrow.node.errors import LimitExceeded
from duckrow.node.limits import ENTRY_BYTES_MAX

CHUNK_BYTES = 1024 * 1024
CHUNK_ENTRIES = 16_000  # keys allow no more in a batch


def chunks_of(
    values: Sequence[str], file: str | None, stdin: BinaryIO, end: bytes
) -> Iterator[list[bytes]]:
    if file is not None:
        if file == "-":
            yield [_whole(stdin)]
            return
        with Path(file).open("rb") as opened:
            yield [_whole(opened)]
        return
    words: list[bytes] = []
    for value in values or ["-"]:
        if value == "-":
            if words:
                yield words
            words = []
            yield from split(stdin, end)
        else:
            words.append(value.encode(errors="surrogateescape"))
    if words:
        yield words


def split(stdin: BinaryIO, end: bytes) -> Iterator[list[bytes]]:
    """What stands between two ends; behind the last one only if there is something.

    Raises:
        LimitExceeded: what has no end is longer than an entry may be.
    """
    _widen(stdin)
    rest: list[bytes] = []  # parts of a line whose end is still to come
    size = 0
    while data := read_some(stdin):
        *lines, tail = data.split(end)
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest, size = [], 0
        if tail:
            rest.append(tail)
            size += len(tail)
        for at in range(0, len(lines), CHUNK_ENTRIES):
            yield lines[at : at + CHUNK_ENTRIES]
        _check(size)
    if rest:
        yield [b"".join(rest)]


def _whole(file: BinaryIO) -> bytes:
    """
    Raises:
        LimitExceeded: it is larger than an entry may be; no more of it is read.
    """
    data = file.read(ENTRY_BYTES_MAX + 1)
    if len(data) > ENTRY_BYTES_MAX:
        try:
            _check(os.fstat(file.fileno()).st_size)
        except OSError:
            pass  # it is no file, and how much would come is not known
        _check(len(data))
    return data


def _check(size: int) -> None:
    if size > ENTRY_BYTES_MAX:
        raise LimitExceeded("size of an entry in bytes", size, ENTRY_BYTES_MAX)


def _widen(stdin: BinaryIO) -> None:
    """Lets a pipe hold a whole chunk; they are made for 64 KiB."""
    try:
        fcntl.fcntl(stdin.fileno(), fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
    except OSError:
        pass  # it is no pipe, or the system allows no more: then it goes in smaller pieces


def read_some(stdin: BinaryIO) -> bytes:
    """What is there, once there is something; b"" at the end."""
    read1 = getattr(stdin, "read1", stdin.read)
    data: bytes = read1(CHUNK_BYTES)
    return data
