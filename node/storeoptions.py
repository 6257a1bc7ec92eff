"""What may be chosen about a row store; tests choose small ones."""

from __future__ import annotations

from typing import Final

import attrs

from .errors import Refused
from .limits import (
    BUNDLE_BYTES_MAX,
    BUNDLE_COMMANDS_MAX,
    FOLLOWABLE_BYTES_MIN,
    HARD_RESERVE_BYTES,
    KIB,
    MIB,
    PENDING_BYTES_MAX,
    SEGMENT_BYTES,
    SOFT_RESERVE_BYTES,
    SOFT_RESERVE_FRACTION,
)

FSYNC: Final = "fsync"  # items are handed out when they are durable
WRITE: Final = "write"  # when the kernel has them; made durable soon after
MEMORY: Final = "memory"  # the same, but only a seal and an orderly close make them durable
LEVELS: Final = (FSYNC, WRITE, MEMORY)


@attrs.frozen(kw_only=True)
class StoreOptions:
    level: str = FSYNC
    segment_bytes: int = SEGMENT_BYTES  # a segment is sealed when the next record would not fit
    followable_bytes: int = FOLLOWABLE_BYTES_MIN  # at least so much of the row stays (N6)
    sync_seconds: float = 0.05  # level write: how long something may wait for its sync
    soft_reserve_bytes: int = SOFT_RESERVE_BYTES
    soft_reserve_fraction: float = SOFT_RESERVE_FRACTION  # of the disk, if that is more
    hard_reserve_bytes: int = HARD_RESERVE_BYTES
    reserve_seconds: float = 1.0  # how often a full disk is looked at again
    bundle_bytes: int = BUNDLE_BYTES_MAX
    bundle_commands: int = 256  # applied in one go, so that others wait some milliseconds at most
    pending_bytes: int = PENDING_BYTES_MAX
    window_bytes: int = 1 * MIB  # recovery and scrub read so much at a time
    scrub_seconds: float = 7 * 86_400.0  # from the end of a scrub to the next; 0: never
    scrub_bytes_per_second: int = 2 * MIB  # at single small entries, a tenth of a core
    open_files: int = 64  # sealed segments whose files are kept open

    def __attrs_post_init__(self) -> None:
        if self.level not in LEVELS:
            raise Refused(f"durability {self.level!r} is none of {', '.join(LEVELS)}")
        if not 4 * KIB <= self.segment_bytes <= SEGMENT_BYTES:
            raise Refused(
                f"segments of {self.segment_bytes:,} bytes: they may have {4 * KIB:,} "
                f"to {SEGMENT_BYTES:,}"
            )
        if self.scrub_seconds < 0 or self.scrub_bytes_per_second < 1:
            raise Refused(
                f"a scrub every {self.scrub_seconds:,} seconds at {self.scrub_bytes_per_second:,} "
                "bytes a second: 0 seconds mean never, and it has to read at least 1 byte a second"
            )
        if not 1 <= self.bundle_commands <= BUNDLE_COMMANDS_MAX:
            raise Refused(
                f"bundles of {self.bundle_commands:,} commands: they may have 1 to "
                f"{BUNDLE_COMMANDS_MAX:,}"
            )
