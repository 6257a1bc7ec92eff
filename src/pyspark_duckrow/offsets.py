"""Offsets as Spark keeps them: Kafka's JSON, with the *next* number to read in each partition.

    {"rides": {"0": 23, "1": 7}}

Spark writes what `written` gives into its checkpoint, and brings it back; numbers begin at 1.  What a
user specifies may also say -2, the earliest there is, and -1, the latest.  Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from duckrow.node.errors import Refused

Place = tuple[str, int]  # topic and partition
Offsets = dict[Place, int]  # the next number to read
Specified = str | dict[Place, int]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
EARLIEST_NUMBER: Final = -2
LATEST_NUMBER: Final = -1


def written(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """As JSON has it, in one order, so that equal offsets are equal text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = number
    return found


def read(told: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What `written` gave; in a checkpoint of Kafka's source a number may be 0."""
    return {
        (topic, int(partition)): max(1, int(number))
        for topic, partitions in told.items()
        for partition, number in partitions.items()
    }


def specified(name: str, text: str) -> Specified:
    """What an option says.

    Raises:
        Refused: neither earliest nor latest nor offsets.
    """
    if text.strip().lower() in (EARLIEST, LATEST):
        return text.strip().lower()
    found = places_of(name, text, EARLIEST_NUMBER, 'earliest, latest or {"rides": {"0": 23}}')
    return {place: 1 if number == 0 else number for place, number in found.items()}


def places_of(name: str, text: str, least: int, what: str) -> dict[Place, int]:
    """
    Raises:
        Refused: no numbers of partitions of topics, or one below `least`.
    """
    wrong = Refused(f"option {name} = {text!r}: it is {what}")
    try:
        told: Any = json.loads(text)
    except ValueError as error:
        raise wrong from error
    found: dict[Place, int] = {}
    if not isinstance(told, dict):
        raise wrong
    for topic, partitions in told.items():
        if not isinstance(partitions, dict):
            raise wrong
        for partition, number in partitions.items():
            if not partition.isdecimal() or type(number) is not int or number < least:
                raise wrong
            found[topic, int(partition)] = number
    if not found:
        raise wrong
    return found
