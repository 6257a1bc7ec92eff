"""Search: records found without knowing where they begin.

Pure generators, as in `recovery.py`: they ask for (offset, length) of a file and are sent bytes.
"""

from __future__ import annotations

from collections.abc import Generator

from .chronicle import Opening
from .errors import Corrupt
from .forms import Start
from .records import (
    REACH_MAX,
    Record,
    RecordKind,
    candidates,
    decode,
    first_after,
    last_in,
    seed_of,
)


def next_record(
    seed: int, size: int, offset: int, window_bytes: int, start_count: int
) -> Generator[tuple[int, int], bytes, tuple[Record | None, bytes, int]]:
    """The first valid record from `offset` on, with the window that holds it, and its base."""
    base = offset
    window_bytes = max(window_bytes, 2 * REACH_MAX)
    while base < size:
        window = yield base, window_bytes
        record = first_after(window, base, base, seed, start_count)
        if record is not None:
            return record, window, base
        if base + len(window) >= size or len(window) < window_bytes:
            break
        base += len(window) - REACH_MAX
    return None, b"", size


def last_record(
    seed: int, size: int, window_bytes: int
) -> Generator[tuple[int, int], bytes, Record | None]:
    """The last valid record of a file."""
    end = size
    while end > 0:
        base = max(0, end - window_bytes) & ~7
        window = yield base, min(size, end + REACH_MAX) - base
        record = last_in(window, base, seed)
        if record is not None:
            return record
        end = base
    return None


def find_uuid(window: bytes, segment: int) -> bytes | None:
    """Whose segment this is, by the first START or SEGMENT record that proves itself."""
    for offset in candidates(window, 0):
        uuid = _claimed_uuid(window, offset)
        if uuid is not None and decode(window, 0, offset, seed_of(uuid, segment)) is not None:
            return uuid
    return None


def _claimed_uuid(window: bytes, offset: int) -> bytes | None:
    record = decode(window, 0, offset, None)
    if record is None:
        return None
    try:
        if record.kind == RecordKind.START:
            return Start.decode(record.head).uuid
        if record.kind == RecordKind.SEGMENT:
            return Opening.decode(record).uuid
    except Corrupt:
        pass
    return None
