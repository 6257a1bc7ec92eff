"""Kept places: where bodies lie that wait for their numbers, or are staged.

    item 26 ─► a body waits ─► its place is kept ─► snapshots take it along ─► item 83 gives it numbers

A body keeps its segment as long as it is alive.  The record that says where it lies may be in another one, which
goes when nothing waits any more; and a start from a snapshot applies again what gave it its numbers.  Of
what came with an image (images.py) no item stands here at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from . import cbor
from .places import SEGMENT_SHIFT
from .row import Bundle, Item
from .state import State, waiting_positions
from .values import ticket_of

KIND: Final = "places"
SPARE: Final = 10_000  # places of bodies that wait no more; a snapshot lets all of them go
_AT_ONCE: Final = 512


def note(places: dict[int, int], state: State, item: Item) -> None:
    """That item was just applied: a body of it may wait from here on."""
    waiting, stages, content = state.waiting.rows, state.stages.rows, item.content
    if (waiting or stages) and isinstance(content, Bundle):
        first = ticket_of(item.position, 0)
        tickets = range(first, first + len(content.commands))
        if not (waiting.keys().isdisjoint(tickets) and stages.keys().isdisjoint(tickets)):
            places[item.position] = item.place
            if len(places) > SPARE + 2 * (len(waiting) + len(stages)):  # seldom, however many wait
                still = of_waiting(places, state)
                places.clear()
                places.update(still)


def of_waiting(places: dict[int, int], state: State) -> dict[int, int]:
    """Those of bodies that still wait, and of no more others than of these."""
    if len(places) <= len(state.waiting) + len(state.stages):
        return places  # to look through all of them takes some milliseconds where very many wait
    waiting = frozenset(waiting_positions(state))
    return {position: place for position, place in places.items() if position in waiting}


def chunks(places: Mapping[int, int], shift: int = 0) -> Iterator[tuple[str, bytes]]:
    """For a snapshot; of segments whose numbers are so much higher."""
    pairs = list(places.items())  # now, while the caller may rest between two chunks
    return (
        (KIND, cbor.dumps([[each, place + (shift << SEGMENT_SHIFT)] for each, place in some]))
        for some in (pairs[at : at + _AT_ONCE] for at in range(0, len(pairs), _AT_ONCE))
    )


def restored(found: Iterable[tuple[str, bytes]]) -> dict[int, int]:
    """
    Raises:
        Corrupt: these are no places.
    """
    return {
        position: place
        for kind, chunk in found
        if kind == KIND
        for position, place in cbor.loads_own(chunk)
    }
