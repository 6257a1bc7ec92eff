"""What whoever produced is told of a result that is no success."""

from __future__ import annotations

from typing import Final

from .commands import Command, decode_head
from .effects import Code, Reason, Result, explain, values
from .errors import Conflict, DuckrowError, Exists, Full, NotFound, Refused, Timeout

_ERRORS: Final[dict[int, type[DuckrowError]]] = {
    Code.FULL: Full,
    Code.NOT_FOUND: NotFound,
    Code.REFUSED: Refused,
    Code.EXISTS: Exists,
    Code.FORGOTTEN: Timeout,
}


def error_of(result: Result, topic: str) -> DuckrowError:
    """The exception for a result that is no success; of no topic: ""."""
    kind = _ERRORS.get(result.code, Conflict)
    if result.reason == Reason.BAD_PARTITION:
        kind = NotFound
    if result.reason == Reason.BATCH_PASSED:
        kind = Exists
    found = values(result)
    if topic:
        found["topic"] = topic
    return kind(f"{f'topic {topic!r}' if topic else 'the command'}: {explain(result)}", **found)


def topic_of(command: Command) -> str:
    """What a command is about; one that makes or changes a topic has its name inside."""
    head = decode_head(command.head)
    return head.topic or next((each for each in head.extra[:1] if isinstance(each, str)), "")


def doubt_about(topic: str) -> DuckrowError:
    return Timeout(
        f"topic {topic!r}: whether it was written is not known: the connection broke, and since then "
        "the node has forgotten this producer, or has another row, or lacks what another machine accepted"
    )
