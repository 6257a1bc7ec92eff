"""What can go wrong, sorted by what the caller can do about it.

    DuckrowError
    ├── NotFound       no such topic, partition, group
    ├── Exists         it is there already
    ├── Full           certainly not written: the topic or the disk has no room
    ├── Refused        the request is wrong: a limit, a name, a policy
    ├── Conflict       somebody else was first: another topic id, number, epoch, lineage
    ├── Timeout        unknown: it may or may not have happened
    ├── NoQuorum       not now, certainly not written; `retry_after` says when to try again
    ├── Disconnected   the other side is gone, or broke the protocol
    └── Corrupt        bytes on disk or on the wire are not what was written

`DiskFailed` and `UnknownVersion` stand outside: never for a caller to handle, they end the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Value = str | int | float
TOLD_CHARS_MAX = 2_048  # of a text: a few of them fit a head, at four bytes for each


class DuckrowError(Exception):
    """The root of everything duckrow raises on purpose; `code` is its name on the wire.

    The text is for people.  What a program may want of it is in `values()`, by name.
    """

    code = "error"
    told: tuple[str, ...] = ()  # values that all of its kind have, as attributes, too

    def __init__(self, message: str, **values: Value) -> None:
        super().__init__(message)
        self._values = values

    def values(self) -> dict[str, Value]:
        """What was refused, missing or found instead; it goes over wires with the error."""
        return dict(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it can go to another process."""
        return rebuilt, (self.code, str(self), self.values())


class NotFound(DuckrowError):
    """Raised when the topic, partition or group that was named does not exist."""

    code = "not-found"


class Exists(DuckrowError):
    """Raised when something is to be created that is there already."""

    code = "exists"


class Full(DuckrowError):
    """Raised when there is no room; the entries were certainly not written."""

    code = "full"


class Refused(DuckrowError):
    """Raised when a request breaks a limit, a name rule or a policy; the same again is refused again."""

    code = "refused"


class LimitExceeded(Refused):
    """Raised when something is larger than its limit; names the limit and the value."""

    code = "limit"
    told = ("what", "value", "limit")

    def __init__(self, what: str, value: int, limit: int) -> None:
        text = f"{what} is {value:,}, and the limit is {limit:,}"
        super().__init__(text, what=what, value=value, limit=limit)
        self.what, self.value, self.limit = what, value, limit


class Conflict(DuckrowError):
    """Raised when the caller's picture is old: another topic id, last number, epoch or lineage."""

    code = "conflict"


class Timeout(DuckrowError):
    """Raised when no answer came in time; whether it happened is unknown."""

    code = "timeout"


class NoQuorum(DuckrowError):
    """Raised when nothing can be ordered now; certainly not written."""

    code = "no-quorum"
    told = ("retry_after",)

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.retry_after = retry_after


class Disconnected(DuckrowError):
    """Raised when the other side went away or does not speak the protocol."""

    code = "disconnected"


class Corrupt(DuckrowError):
    """Raised when a checksum says that bytes are not those that were written."""

    code = "corrupt"


class Damaged(Corrupt):
    """Raised when entries that should be there cannot be read; what follows `last` perhaps can."""

    code = "damaged"
    told = ("topic", "partition", "first", "last")

    def __init__(self, topic: str, partition: int, first: int, last: int, why: str) -> None:
        super().__init__(
            f"entries {first:,} to {last:,} of partition {partition} of topic {topic!r} cannot be "
            f"read: {why}; to go on without them, pull after {last}",
            topic=topic,
            partition=partition,
            first=first,
            last=last,
        )
        self.topic, self.partition, self.first, self.last = topic, partition, first, last


def fields_of(error: DuckrowError) -> tuple[str, str, dict[str, Value]]:
    """What goes over a wire, and `rebuilt` reads.  It fits the head of a frame, whatever of a question it quotes."""
    values = error.values().items()
    short = {name: _short(each) if isinstance(each, str) else each for name, each in values}
    return error.code, _short(str(error)), short


def _short(text: str) -> str:
    return text if len(text) <= TOLD_CHARS_MAX else f"{text[:TOLD_CHARS_MAX]}..."


def rebuilt(code: str, text: str, values: Mapping[str, Any]) -> DuckrowError:
    """The error that another process told of.  One that is not known here is a plain one."""
    kind = _BY_CODE.get(code, DuckrowError)
    plain = {name: value for name, value in values.items() if type(value) in (str, int, float)}
    if not plain.keys() >= set(kind.told):
        kind = DuckrowError
    error = kind.__new__(kind, text)  # the text is whole: nothing is to be put together again
    DuckrowError.__init__(error, text, **plain)
    for name in kind.told:
        setattr(error, name, plain[name])
    return error


_BY_CODE = {
    kind.code: kind
    for kind in (
        NotFound,
        Exists,
        Full,
        Refused,
        LimitExceeded,
        Conflict,
        Timeout,
        NoQuorum,
        Disconnected,
        Corrupt,
        Damaged,
    )
}


class DiskFailed(Exception):
    """A write or fsync failed for another reason than a full disk.

    After a failed fsync the kernel may have dropped the pages and will report success
    next time, so nothing in memory can be trusted to match the disk: the process ends.
    """


class UnknownVersion(Exception):
    """The cluster has switched to rules that this program does not know (rule M5).

    Going on by the old ones would make another state than the others have, so the process ends;
    a newer program goes on from where this one stopped.
    """

    def __init__(self, version: int, position: int, newest: int) -> None:
        super().__init__(
            f"the row switched to version {version} of its rules at position {position}, and this "
            f"program knows them up to {newest}: upgrade it, and start the node again"
        )
        self.version, self.position, self.newest = version, position, newest


def first_of(error: BaseException) -> BaseException:
    """Of all that went wrong at once, what a user can do something about."""
    while isinstance(error, BaseExceptionGroup):
        known = [each for each in error.exceptions if isinstance(each, DuckrowError)]
        error = (known or error.exceptions)[0]
    return error
