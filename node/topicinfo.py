"""What a client is told of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from .errors import Corrupt


class PartitionInfo(NamedTuple):
    """An empty one has first = last + 1."""

    partition: int
    first: int
    last: int
    entries: int
    bytes: int


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
                return cls(name, id_, policy, tuple(PartitionInfo(*part) for part in parts))
        raise Corrupt(f"what the node tells of topic {name!r} is not known here: {fields!r:.80}")
