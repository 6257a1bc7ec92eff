"""What there is, told in plain values: topics, one topic, the state of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import policies
from .errors import Corrupt, NotFound
from .state import State


def topics(state: State) -> list[list[Any]]:
    """Name, id and partitions of each, by name."""
    rows = state.topics.rows
    return [[name, rows[name].id, rows[name].policy.partitions] for name in sorted(rows)]


def topic(state: State, fields: Sequence[Any]) -> list[Any]:
    """Id, policy, and for each partition its number, first, last, entries and bytes.

    Raises:
        NotFound: there is no such topic.
    """
    match fields:
        case [str(name), *_]:
            pass
        case _:
            raise Corrupt("the name of a topic is missing")
    found = state.topic(name)
    if found is None:
        raise NotFound(f"there is no topic {name!r}")
    parts = []
    for number in range(found.policy.partitions):
        part = state.partition(found.id, number)
        parts.append([number, part.first, part.last, part.last - part.first + 1, part.size])
    return [found.id, policies.described(found.policy), parts]
