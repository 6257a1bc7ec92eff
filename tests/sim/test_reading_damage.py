"""Pulls that meet damage, or are overtaken by what is pruned, dropped and deleted meanwhile."""

from __future__ import annotations

import pytest

from core.library import Library, read
from duckrow.node.cursors import FIRST
from duckrow.node.errors import Conflict, Damaged
from duckrow.node.numbers import Numbers
from duckrow.node.plans import ROWS_AT_ONCE
from duckrow.node.pulled import Pulled
from sim.readingkit import pull, run


def test_a_damaged_body_is_named_and_can_be_passed() -> None:
    library = Library(cached=False)
    for _ in range(5):
        library.add(count=10)
    row = library.numbers.rows(library.topic().id, 0, 25, 1)[0]
    library.shelf.damaged[row.place] = None

    pulled = pull(library)
    assert read(pulled) == library.there()[:20]
    with pytest.raises(Damaged) as caught:
        pull(library, after=pulled.after)
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert (caught.value.first, caught.value.last) == (21, 30)
    with pytest.raises(Damaged) as caught:
        pull(library, after=24)
    assert (caught.value.first, caught.value.last) == (25, 30)
    assert read(pull(library, after=caught.value.last)) == library.there()[30:]


def test_of_a_damaged_body_that_is_partly_pruned_the_rest_is_damaged() -> None:
    library = Library(cached=False)
    for _ in range(3):
        library.add(count=10)
    library.shelf.damaged[library.numbers.rows(library.topic().id, 0, 11, 1)[0].place] = None
    library.prune(14)

    with pytest.raises(Damaged) as caught:
        pull(library, after=FIRST)
    assert (caught.value.first, caught.value.last) == (15, 20)
    assert read(pull(library, after=20)) == library.there()[6:]


def test_a_damaged_body_that_is_pruned_is_nobodys_business() -> None:
    library = Library(cached=False)
    for _ in range(5):
        library.add(count=10)
    for row in library.numbers.rows(library.topic().id, 0, 1, 2):
        library.shelf.damaged[row.place] = None
    library.prune(20)

    assert read(pull(library)) == library.there()


@pytest.mark.parametrize("other", [1, 2])
def test_a_body_of_another_batch_than_the_index_says_is_damage(other: int) -> None:
    library = Library(cached=False)
    library.add("t", 3)
    library.add("u", 3)
    library.add("t", 4)
    places = library.places[-3:]
    library.shelf.bundles[places[0]] = library.shelf.bundles[places[other]]

    with pytest.raises(Damaged, match="another batch"):
        pull(library, "t")
    assert read(pull(library, "t", after=3)) == library.there()[3:]


def test_numbers_that_the_index_lost_are_named_and_can_be_passed() -> None:
    library = Library()
    for _ in range(3):
        for _ in range(4):
            library.add(count=5)
        library.seal()
    library.tick()
    library.install()
    files = library.numbers._life.files
    numbers = Numbers(library.numbers.store)
    numbers.load([files[0], files[2]], library.state.position)
    library.reader._numbers = numbers

    pulled = pull(library)
    assert read(pulled) == library.there()[:20]
    with pytest.raises(Damaged, match="index has lost") as caught:
        pull(library, after=pulled.after)
    assert (caught.value.first, caught.value.last) == (21, 40)
    assert read(pull(library, after=40)) == library.there()[40:]


def test_numbers_at_the_end_that_the_index_lost_are_named_too() -> None:
    library = Library()
    library.add(count=5)
    numbers = Numbers(library.numbers.store)
    numbers.load([], library.state.position)
    library.reader._numbers = numbers

    with pytest.raises(Damaged) as caught:
        pull(library, after=2)
    assert (caught.value.first, caught.value.last) == (3, 5)
    assert pull(library, after=5).batches == []


def test_what_is_applied_and_not_yet_in_the_index_is_not_there_yet() -> None:
    """Between applying an item and noting it the keeper may have to ask the store for a place."""
    library = Library()
    library.add()
    tell, told = library.tell, []
    library.tell = lambda *args: told.append(args)  # type: ignore[method-assign]
    library.add()

    assert len(read(pull(library))) == 1
    assert pull(library, after=1).batches == []
    tell(*told[0])
    assert len(read(pull(library))) == 2


@pytest.mark.parametrize("last_pruned", [10, 50, 55])
def test_pruned_and_dropped_while_it_is_read_the_pull_begins_behind(last_pruned: int) -> None:
    library = Library(cached=False)
    for _ in range(10):
        library.add(count=10)
        library.seal()
    library.tick()
    library.install()

    def meanwhile() -> None:
        library.prune(last_pruned)
        assert library.drop()

    library.shelf.before_read = meanwhile
    pulled = pull(library, after=4)
    assert (pulled.missing, read(pulled)) == (last_pruned - 4, library.there())


def test_pruned_in_the_middle_of_a_long_pull_it_ends_there() -> None:
    """Else a reader would pass over what is missing without being told."""
    library = Library(cached=False)
    for _ in range(ROWS_AT_ONCE + 50):
        library.add()
    there = library.there()
    library.shelf.before_read = lambda: library.prune(ROWS_AT_ONCE + 20)

    pulled = pull(library)
    assert (pulled.missing, read(pulled)) == (0, there[:ROWS_AT_ONCE])
    pulled = pull(library, after=pulled.after)
    assert (pulled.missing, read(pulled)) == (20, there[ROWS_AT_ONCE + 20 :])


def test_what_was_read_before_the_rest_was_dropped_is_given() -> None:
    library = Library(cached=False)
    for _ in range(10):
        library.add(count=10)
        library.seal()
    library.tick()
    library.install()
    there = library.there()

    async def main() -> tuple[Pulled, Pulled]:
        first = await library.pull(limit=1)  # the heads of the first batch are known now

        def meanwhile() -> None:
            library.shelf.before_read = later

        def later() -> None:
            library.prune(55)
            library.drop()

        library.shelf.before_read = meanwhile
        return first, await library.pull()

    _, pulled = run(main)
    assert (pulled.missing, read(pulled)) == (0, there[:10])
    pulled = pull(library, after=pulled.after)
    assert (pulled.missing, read(pulled)) == (45, library.there())


def test_deleted_while_it_is_read_a_pull_that_has_nothing_says_so() -> None:
    library = Library(cached=False)
    library.add(count=10)
    library.seal()
    library.tick()
    library.install()

    def meanwhile() -> None:
        library.delete()
        library.drop()

    library.shelf.before_read = meanwhile
    with pytest.raises(Conflict):
        pull(library, wait=5)
