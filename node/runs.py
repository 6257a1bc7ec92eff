"""Runs: how many bytes lie where in a partition, and how old they are, in bounded memory.

A run is one batch, or several neighbours that were merged:

    first number | bytes | time of its newest entry       3 x 8 bytes

Runs lie in order of their numbers, and so of their times, packed into chunks of 64; `chunks` are
full and never change, `tail` is being filled.  So appending copies 1.5 KiB at most, and two
states share what they have in common.

Pruning by age or by bytes goes run by run: an entry never goes before its time, and what stays
never exceeds the bytes.  Where there are too many runs, old neighbours are merged as long as the
two together are small and near: at most 8/limit of all bytes and of the whole time there is.  That
leaves no more than limit/2 of them: each two that were not merged exceed one of these, and each
run is in two such pairs.  The newest 64 are never merged, nor is the oldest, which goes next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

Run = tuple[int, int, int]  # first number, bytes, time of the newest entry

_RUN: Final = struct.Struct("<QQq")
_FIRST: Final = struct.Struct("<Q")
_BYTES: Final = struct.Struct("<8xQ")
pack: Final = _RUN.pack
RUN_BYTES: Final = _RUN.size
CHUNK_RUNS: Final = 64
CHUNK_BYTES: Final = CHUNK_RUNS * RUN_BYTES


def each(chunks: tuple[bytes, ...], tail: bytes) -> Iterator[Run]:
    for chunk in chunks:
        yield from _RUN.iter_unpack(chunk)
    yield from _RUN.iter_unpack(tail)


def oldest(chunks: tuple[bytes, ...], tail: bytes) -> Run:
    """Of at least one run."""
    run: Run = _RUN.unpack_from(chunks[0] if chunks else tail)
    return run


def run_of(chunks: tuple[bytes, ...], tail: bytes, number: int) -> Run:
    """The run that holds `number`, which is not below the oldest one."""
    found: Run | None = None
    for chunk in (*chunks, tail):
        if chunk and _FIRST.unpack_from(chunk)[0] > number:
            break
        for run in _RUN.iter_unpack(chunk):
            if run[0] > number:
                break
            found = run
    assert found is not None, f"no run holds {number}"
    return found


def first_after_bytes(chunks: tuple[bytes, ...], tail: bytes, excess: int) -> int | None:
    """The first number to keep if at least `excess` bytes have to go; None: nothing is kept."""
    for first, size, _ in each(chunks, tail):
        if excess <= 0:
            return first
        excess -= size
    return None


def first_after_time(chunks: tuple[bytes, ...], tail: bytes, time: int) -> int | None:
    """The first number to keep if all up to `time` have to go; None: nothing is kept."""
    for first, _, newest in each(chunks, tail):
        if newest > time:
            return first
    return None


def without(
    chunks: tuple[bytes, ...], tail: bytes, first: int
) -> tuple[tuple[bytes, ...], bytes, int]:
    """Without the runs that lie wholly below `first`, and how many bytes those had.

    The newest run stays, since where it ends is not known here.
    """
    gone = 0
    dead = 0  # bytes of those runs
    while gone < len(chunks):
        following = chunks[gone + 1] if gone + 1 < len(chunks) else tail
        if not following or _FIRST.unpack_from(following)[0] > first:
            break
        dead += _bytes_of(chunks[gone])
        gone += 1
    front = chunks[gone] if gone < len(chunks) else tail
    cut = 0
    while cut + RUN_BYTES < len(front) and _FIRST.unpack_from(front, cut + RUN_BYTES)[0] <= first:
        dead += _BYTES.unpack_from(front, cut)[0]
        cut += RUN_BYTES
    if gone < len(chunks):
        return ((front[cut:], *chunks[gone + 1 :]) if gone or cut else chunks), tail, dead
    return (), front[cut:], dead


def thinned(chunks: tuple[bytes, ...], limit: int) -> tuple[bytes, ...]:
    """The same with fewer runs."""
    runs: list[Run] = list(each(chunks[:-1], b""))
    if len(runs) < 3:
        return chunks
    last: Run = _RUN.unpack_from(chunks[-1], len(chunks[-1]) - RUN_BYTES)
    bytes_max = 8 * (sum(run[1] for run in runs) + _bytes_of(chunks[-1])) // limit
    time_max = 8 * (last[2] - runs[0][2]) // limit
    merged = [runs[0]]
    began = runs[0][2]  # the newest time of the run before: an entry of this one is not older
    first, size, time = runs[1]
    for run in runs[2:]:
        if size + run[1] <= bytes_max and run[2] - began <= time_max:
            size, time = size + run[1], run[2]
        else:
            merged.append((first, size, time))
            began = time
            first, size, time = run
    merged.append((first, size, time))
    return (*_chunked(merged), chunks[-1])


def _chunked(runs: Sequence[Run]) -> Iterator[bytes]:
    for start in range(0, len(runs), CHUNK_RUNS):
        yield b"".join([pack(*run) for run in runs[start : start + CHUNK_RUNS]])


def _bytes_of(chunk: bytes) -> int:
    return sum(run[1] for run in _RUN.iter_unpack(chunk))
