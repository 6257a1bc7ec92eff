"""Conditions of a query that decide what is read: on topic, partition, offset and timestamp.

Conditions on the first three are met exactly, and Spark need not look again.  A condition on the time
only says where to begin, since a batch of entries has one time; Spark looks again.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .ranges import Range

Test = Callable[[Any], bool]


@attrs.define
class Wanted:
    """What is to be read."""

    first: int = 1
    next: int | None = None
    topics: list[Test] = attrs.Factory(list)
    partitions: list[Test] = attrs.Factory(list)

    def take(self, condition: Filter) -> bool:
        """Whether it is met from now on, so that nobody else has to."""
        path = getattr(condition, "attribute", None)
        if path in (("topic",), ("partition",)) and isinstance(condition, EqualTo | In):
            values = condition.value if isinstance(condition, In) else (condition.value,)
            tests = self.topics if path == ("topic",) else self.partitions
            tests.append(frozenset(values).__contains__)
            return True
        if path == ("offset",):
            return self._take_offset(condition)
        return False

    def _take_offset(self, condition: Filter) -> bool:
        match condition:
            case EqualTo(_, int(number)):
                self._from(number)
                self._below(number + 1)
            case GreaterThan(_, int(number)):
                self._from(number + 1)
            case GreaterThanOrEqual(_, int(number)):
                self._from(number)
            case LessThan(_, int(number)):
                self._below(number)
            case LessThanOrEqual(_, int(number)):
                self._below(number + 1)
            case _:
                return False
        return True

    def _from(self, number: int) -> None:
        self.first = max(self.first, number)

    def _below(self, number: int) -> None:
        self.next = number if self.next is None else min(self.next, number)

    def of(self, ranges: Sequence[Range]) -> list[Range]:
        """What of the ranges is wanted."""
        found = []
        for each in ranges:
            if not all(test(each.topic) for test in self.topics):
                continue
            if not all(test(each.partition) for test in self.partitions):
                continue
            next_ = each.next if self.next is None else min(each.next, self.next)
            first = max(each.first, self.first)
            if first < next_:
                found.append(each._replace(first=first, next=next_))
        return found
