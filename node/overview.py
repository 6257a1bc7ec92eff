"""What there is, told in plain values: topics, one topic, the state of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any, Final, Protocol

from . import policies
from .errors import Corrupt, NotFound
from .pins import Pins
from .state import State


class Client(Protocol):
    def told(self) -> dict[str, Any]: ...


PAGE: Final = 400  # topics in one answer: their longest names, and the head is full
CLIENTS_PAGE: Final = 100
PINS_PAGE: Final = 300


def seen(fields: Sequence[Any]) -> int:
    """The second field of what is asked about topics: a position that the answer has to know."""
    return fields[1] if len(fields) > 1 and type(fields[1]) is int else 0


def topics(state: State, fields: Sequence[Any]) -> list[Any]:
    """Name, id and partitions of each, by name, a page of them; and whether others follow.

    The field is the last name of the page before.
    """
    after = fields[0] if fields and type(fields[0]) is str else ""
    rows = state.topics.rows
    names = nsmallest(PAGE + 1, (name for name in rows if name > after))
    page = [[name, rows[name].id, rows[name].policy.partitions] for name in names[:PAGE]]
    return [page, len(names) > PAGE]


def clients(sessions: Mapping[int, Client], fields: Sequence[Any]) -> list[Any]:
    """A map for each, oldest first, a page of them; and whether others follow.

    The field is the last number of the page before.
    """
    after = fields[0] if fields and type(fields[0]) is int else 0
    page = list(islice((n for n in sessions if n > after), CLIENTS_PAGE + 1))
    return [[sessions[n].told() for n in page[:CLIENTS_PAGE]], len(page) > CLIENTS_PAGE]


def pins(found: Pins, durable: int, lineage: int, fields: Sequence[Any]) -> list[Any]:
    """The partitions of topics that have an archive, a page of them; whether others follow; how far
    the row is on the disk for certain; the id of the archive that the node knows; and the lineage
    of the row.

    The fields are topic and partition of the last one of the page before.
    """
    match fields:
        case [str(topic), int(partition), *_]:
            after = topic, partition
        case _:
            after = "", -1
    page = [list(pin) for pin in found.listed(after, PINS_PAGE + 1)]
    return [page[:PINS_PAGE], len(page) > PINS_PAGE, durable, found.archive, lineage]


def unpin(found: Pins, who: object, fields: Sequence[Any]) -> list[Any]:
    """An archiver tells how far its files are safe, where they lie, what is wrong, if anything, and the
    id of the archive.

    Raises:
        NotFound, Conflict, Refused: see `Pins.hear` and `Pins.tell`.
    """
    match fields:
        case [str(topic), int(id_), int(partition), int(safe), str(place), str(trouble), *rest]:
            archive = rest[0] if rest and type(rest[0]) is str else ""
        case _:
            raise Corrupt("an archiver tells topic, id, partition, number, place and trouble")
    found.hear(who, archive, place, trouble)
    if topic:
        found.tell(topic, id_, partition, safe)
    return []


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
        raise NotFound(f"there is no topic {name!r}", topic=name)
    parts = []
    for number in range(found.policy.partitions):
        part = state.partition(found.id, number)
        parts.append([number, part.first, part.last, part.last - part.first + 1, part.size])
    return [found.id, policies.described(found.policy), parts]
