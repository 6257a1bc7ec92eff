"""Pulls of several partitions: one order, that of the row."""

from __future__ import annotations

from typing import Any

from core.library import Fact, Library, read
from duckrow.node.cursors import FIRST, LAST, Back
from sim.readingkit import pull


def test_partitions_are_merged_in_the_order_of_the_row() -> None:
    library = Library()
    library.create(partitions=3)
    for round_ in range(20):
        library.add(count=1 + round_ % 4, partition=round_ * 7 % 3)
        library.item(*[library.entries(count=2, partition=p) for p in (2, 0, 2)])

    assert read(pull(library)) == library.there()
    for partition in range(3):
        assert read(pull(library, partition=partition)) == library.there(partition=partition)
    for limit in (1, 2, 3, 5, 50):
        got: list[Fact] = []
        after: Any = FIRST
        while (pulled := pull(library, after=after, limit=limit)).batches:
            assert len(read(pulled)) <= limit
            got += read(pulled)
            after = pulled.after
        assert got == library.there()


def test_partitions_that_come_later_are_read_whole() -> None:
    library = Library()
    library.create(partitions=1)
    library.add(count=3)
    after = pull(library, after=LAST).after
    library.configure(partitions=3)
    for partition in (2, 1, 0):
        library.add(count=2, partition=partition)

    assert read(pull(library, after=after)) == library.there()[3:]


def test_what_a_partition_that_came_later_has_lost_is_counted_as_missing() -> None:
    library = Library()
    library.create(partitions=1)
    library.add(count=3)
    after = pull(library).after
    library.configure(partitions=2)
    library.add(count=5, partition=1)
    library.prune(4, partition=1)

    pulled = pull(library, after=after)
    assert (pulled.missing, read(pulled)) == (4, library.there(partition=1))
    assert pull(library, after=pulled.after).missing == 0
    assert pull(library, after=FIRST).missing == 0, "it begins with the first there is"


def test_the_last_k_of_several_partitions_are_those_of_the_row() -> None:
    library = Library()
    library.create(partitions=3)
    for round_ in range(30):
        library.item(*[library.entries(count=1 + round_ % 3, partition=p) for p in (2, 0, 2)])
        library.add(count=4, partition=1)
    library.prune(30, partition=0)
    there = library.there()

    for back in [*range(1, 40), len(there) - 1, len(there), len(there) + 5]:
        assert read(pull(library, after=Back(back), limit=5_000)) == there[-back:]
