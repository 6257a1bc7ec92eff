"""What happened, as a running digest, and as text when somebody wants to read it.

Events are flat tuples of numbers and short strings (a scheduler step is a bare number, the task's).
They are gathered and packed about a thousand at a time with `marshal`, format 2, whose output depends on
values alone; formatting them would cost more than the simulation itself.  The time is an event of
its own, written when it changes.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable
from typing import Any

Event = int | tuple[Any, ...]
BATCH = 1024


class Trace:
    """Compare digests of one Python build only: floats and bytes are packed as they are."""

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._events: list[Event] = []
        self._kept: list[Event] | None = [] if keep else None
        self._flushed = 0
        # The hottest call of the simulation, so it is the list's own.
        self.add: Callable[[Event], None] = self._events.append

    def time(self, now: float) -> None:
        """Time went on, to `now`."""
        if len(self._events) >= BATCH:
            self._flush()
        self._events.append(("time", now))

    @property
    def count(self) -> int:
        return self._flushed + len(self._events)

    def digest(self) -> str:
        self._flush()
        return self._hash.hexdigest()

    def text(self) -> list[str]:
        """One line an event: time, kind, facts."""
        assert self._kept is not None, "the world was made without keep_trace"
        self._flush()
        now = 0.0
        tasks: dict[int, str] = {}
        lines = []
        for event in self._kept:
            if isinstance(event, int):
                lines.append(f"{now:.9f} step {tasks[event]}")
            elif event[0] == "time":
                now = event[1]
            else:
                if event[0] == "task":
                    tasks[event[1]] = f"{event[1]} {event[2]} {event[3]}"
                lines.append(f"{now:.9f} {' '.join(map(str, event))}")
        return lines

    def _flush(self) -> None:
        if self._events:
            self._hash.update(marshal.dumps(self._events, 2))
            self._flushed += len(self._events)
            if self._kept is not None:
                self._kept += self._events
            self._events.clear()
