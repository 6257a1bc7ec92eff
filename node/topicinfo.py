"""What a client is told of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple, Self

from .errors import Corrupt

_SECONDS: Final = ("max_age",)  # policies that are durations
_SECOND: Final = 1_000_000


class PartitionInfo(NamedTuple):
    """An empty one has first = last + 1."""

    partition: int
    first: int
    last: int
    entries: int
    bytes: int


class Pin(NamedTuple):
    """A partition of a topic that has an archive, as one node has it; see pins.py."""

    topic: str
    topic_id: int
    partition: int
    span: int  # entries of a file
    kept: int  # the first number that can be read there, pinned or not
    first: int
    last: int
    safe: int  # the last number that the archive has

    @property
    def pinned(self) -> int:
        return self.first - self.kept


class Pinned(NamedTuple):
    """What a node tells an archiver."""

    pins: list[Pin]
    durable: int  # the row is on the disk for certain up to that position
    archive: str  # the id of the archive that it knows; empty: none
    lineage: int  # of its row


class TopicInfo(NamedTuple):
    topic: str
    id: int
    policy: dict[str, Any]
    partitions: tuple[PartitionInfo, ...]

    @classmethod
    def of(cls, name: str, fields: Sequence[Any]) -> Self:
        """
        Raises:
            Corrupt: the node told it in a form that is not known here.
        """
        match fields:
            case [int(id_), dict(policy), list(parts), *_] if all(
                type(part) is list and len(part) == len(PartitionInfo._fields) for part in parts
            ):
                shown = {key: _out(key, value) for key, value in policy.items()}
                return cls(name, id_, shown, tuple(PartitionInfo(*part) for part in parts))
        raise Corrupt(f"what the node tells of topic {name!r} is not known here: {fields!r:.80}")


def in_row(policy: Mapping[str, Any]) -> dict[str, Any]:
    """As the row has it: users say seconds, and there they are microseconds."""
    return {
        key: round(value * _SECOND) if key in _SECONDS and is_number(value) else value
        for key, value in policy.items()
    }


def _out(key: str, value: Any) -> Any:
    return value / _SECOND if key in _SECONDS and is_number(value) else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
