"""Pulls, held against everything that was produced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from core.library import OPAQUE, Fact, Library, read
from duckrow.node.cursors import FIRST, LAST, Back, Cursor
from duckrow.node.errors import Conflict, Damaged, NotFound, Refused
from duckrow.node.limits import MIB, PULL_BATCHES_MAX
from duckrow.node.numbers import Numbers
from duckrow.node.plans import ROWS_AT_ONCE
from duckrow.node.pulled import Pulled
from duckrow.node.reading import Pull
from sim.clock import SimClock, seeded_scheduler

T = TypeVar("T")


def run(main: Callable[[], Awaitable[T]], seed: int = 0) -> T:
    """On a clock that jumps."""
    with seeded_scheduler(seed):
        return trio.run(main, clock=SimClock())


def pull(library: Library, topic: str = "t", after: Any = 0, **more: Any) -> Pulled:
    return run(lambda: library.pull(topic, after, **more))


def test_entries_come_from_the_one_after_the_last_done() -> None:
    library = Library()
    for _ in range(5):
        library.add(count=3)

    for after in range(16):
        pulled = pull(library, after=after)
        assert read(pulled) == library.there()[after:]
        assert (pulled.missing, pulled.spans) == (0, {0: (1, 15)})
        assert pulled.after == Cursor({0: 15})


def test_a_limit_counts_entries_and_cuts_where_it_has_to() -> None:
    library = Library()
    for _ in range(5):
        library.add(count=3)

    for limit in range(1, 16):
        pulled = pull(library, after=1, limit=limit)
        assert read(pulled) == library.there()[1 : 1 + limit]
        assert pulled.after == Cursor({0: min(15, 1 + limit)})


def test_a_batch_is_given_as_it_came_unless_less_than_a_quarter_is_wanted() -> None:
    library = Library()
    library.add(count=100)
    whole = library.items[-1].content.commands[0].body  # type: ignore[union-attr]

    (batch,) = pull(library, after=75).batches
    assert batch.body is whole
    assert (batch.first, batch.count, batch.start, batch.stop) == (1, 100, 76, 101)
    (batch,) = pull(library, after=76).batches
    assert (batch.first, batch.count, batch.start, batch.stop) == (77, 24, 77, 101)
    assert len(batch.body) < len(whole) / 3
    (batch,) = pull(library, after=50, limit=25).batches
    assert batch.body is whole
    (batch,) = pull(library, after=50, limit=24).batches
    assert (batch.first, batch.count) == (51, 24)


def test_a_batch_of_another_codec_is_never_cut() -> None:
    library = Library()
    library.add(count=100, codec=OPAQUE)

    (batch,) = pull(library, after=98, max_bytes=1).batches
    assert (batch.first, batch.count, batch.start, batch.stop) == (1, 100, 99, 101)
    assert read(pull(library, after=98)) == library.there()[98:]


def test_a_body_that_is_not_what_its_codec_says_is_given_whole() -> None:
    """Brokers do not open bodies, so nobody noticed when it was produced."""
    library = Library()
    body = b"not columns at all"
    library._made[body] = [b"?"] * 100
    from duckrow.node import makers

    library.item(makers.produce(library.turn(topic="t"), "t", body, 100))

    (batch,) = pull(library, after=98).batches
    assert (batch.body, batch.first, batch.count, batch.start) == (body, 1, 100, 99)


def test_bytes_are_limited_by_whole_batches() -> None:
    library = Library()
    for _ in range(10):
        library.add(count=10, size=100)
    size = len(pull(library, limit=1, max_bytes=4 * MIB).batches[0].body) or 1
    size = len(library.items[-1].content.commands[0].body)  # type: ignore[union-attr]

    for fitting in range(1, 5):
        for more in (0, 1, size - 20):
            assert len(read(pull(library, max_bytes=fitting * size + more))) == 10 * fitting


def test_a_batch_that_does_not_fit_is_not_read_for_nothing() -> None:
    library = Library(cached=False)
    for _ in range(5):
        library.add(count=10, size=100)
    size = len(library.items[-1].content.commands[0].body)  # type: ignore[union-attr]

    assert len(read(pull(library, max_bytes=2 * size + 1))) == 20
    assert library.shelf.bodies_read == 2


def test_a_large_batch_that_is_read_bit_by_bit_is_read_once() -> None:
    library = Library(cached=False)
    library.add(count=1_000, size=100)
    library.add(count=1_000, size=100)

    for after in range(0, 1_900, 100):
        found = read(pull(library, after=after, limit=100))
        assert found == library.there()[after : after + 100]
    assert library.shelf.bodies_read == 2
    assert read(pull(library, after=5, limit=3)) == library.there()[5:8]


def test_at_least_one_entry_comes_and_a_first_batch_that_is_too_large_is_cut() -> None:
    library = Library()
    library.add(count=1_000, size=1_000)

    assert len(read(pull(library, max_bytes=1))) == 1
    pulled = pull(library, max_bytes=100_000)
    assert 90 <= len(read(pulled)) <= 100
    assert len(pulled.batches[0].body) < 101_000
    assert pulled.after == Cursor({0: len(read(pulled))})
    assert (
        read(pull(library, after=pulled.after, limit=1)) == library.there()[len(read(pulled)) :][:1]
    )


def test_nothing_follows_a_batch_that_had_to_be_cut() -> None:
    """A small one would still fit, but what lies between would be skipped."""
    library = Library()
    library.add(count=1_000, size=1_000)
    library.add()

    for max_bytes in range(50_000, 60_000, 500):
        pulled = pull(library, max_bytes=max_bytes, limit=2_000)
        assert len(pulled.batches) == 1
        assert read(pulled) == library.there()[: len(read(pulled))]


def test_one_pull_gives_so_many_batches_and_no_more() -> None:
    library = Library()
    for _ in range(PULL_BATCHES_MAX // 1_000 + 1):
        library.item(*[library.entries() for _ in range(1_000)])

    pulled = pull(library, limit=1 << 20)
    assert len(pulled.batches) == PULL_BATCHES_MAX
    assert read(pull(library, after=pulled.after)) == library.there()[PULL_BATCHES_MAX:][:1_000]


def test_after_the_last_there_is_nothing() -> None:
    library = Library()
    library.add(count=3)

    for after in (3, 4, 1 << 62):
        pulled = pull(library, after=after)
        assert (pulled.batches, pulled.missing) == ([], 0)
        assert pulled.after == Cursor({0: after})
    library.add(count=3)
    assert read(pull(library, after=4)) == library.there()[4:]


def test_a_topic_that_is_not_there_is_empty() -> None:
    pulled = pull(Library(), "nowhere", 17)

    assert (pulled.topic_id, pulled.batches, pulled.spans, pulled.after) == (0, [], {}, 17)


def test_what_was_pruned_is_counted_once() -> None:
    library = Library()
    for _ in range(5):
        library.add(count=10)
    library.prune(24)

    pulled = pull(library, after=4, limit=10)
    assert (pulled.missing, read(pulled)) == (20, library.there()[:10])
    assert read(pulled)[0].number == 25
    assert pull(library, after=pulled.after).missing == 0
    assert pull(library, after=24).missing == 0
    assert pull(library, after=FIRST).missing == 0
    assert read(pull(library, after=FIRST)) == library.there()


def test_if_all_was_pruned_the_pull_says_how_many_and_goes_on_behind_them() -> None:
    library = Library()
    library.add(count=10)
    library.prune(10)

    pulled = pull(library, after=4)
    assert (pulled.missing, pulled.batches, pulled.after) == (6, [], Cursor({0: 10}))
    assert pulled.spans == {0: (11, 10)}


def test_the_last_k_and_only_what_is_new() -> None:
    library = Library()
    for _ in range(5):
        library.add(count=10)
    library.prune(20)

    for back in (1, 9, 10, 11, 29, 30, 31, 1_000):
        assert read(pull(library, after=Back(back))) == library.there()[-back:]
    assert pull(library, after=LAST).after == Cursor({0: 50})
    assert pull(library, after=LAST).batches == []


def test_a_time_means_the_first_entry_at_or_after_it() -> None:
    library = Library()
    for _ in range(5):
        library.add(count=10)
        library.tick(10)
    library.prune(5)
    for fact in library.there()[::5]:
        for time in (fact.time - 1, fact.time, fact.time + 1):
            expected = [each for each in library.there() if each.time >= time]
            assert read(pull(library, after=Cursor({}, time))) == expected


def test_a_time_to_come_is_waited_for() -> None:
    """Entries before it are not shown, though they are new."""
    library = Library()
    library.add()
    later = library.time + 3_000_000
    pulled = pull(library, after=Cursor({}, later))
    assert (pulled.batches, pulled.after) == ([], Cursor({}, later))
    library.tick(1)
    library.add()
    assert pull(library, after=pulled.after).batches == []
    library.tick(2)
    library.add()
    assert [fact.number for fact in read(pull(library, after=pulled.after))] == [3]


@pytest.mark.parametrize(
    "ask",
    [
        {"after": -1},
        {"after": Back(0)},
        {"after": Cursor({0: -1})},
        {"after": Cursor({}, -1)},
        {"limit": 0},
        {"max_bytes": 0},
        {"max_bytes": 4 * MIB + 1},
        {"partition": -1},
    ],
)
def test_what_cannot_be_asked_is_refused(ask: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        Pull("t", **ask)


def test_a_number_says_nothing_about_several_partitions() -> None:
    library = Library()
    library.create(partitions=2)
    with pytest.raises(Refused, match="2 partitions"):
        pull(library, after=3)
    assert pull(library, after=0).batches == []
    assert pull(library, after=3, partition=1).batches == []
    with pytest.raises(NotFound, match="0 to 1, not 2"):
        pull(library, partition=2)


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


def test_a_topic_of_another_id_is_a_conflict() -> None:
    library = Library()
    library.add()
    was = library.topic().id
    assert pull(library, topic_id=was).topic_id == was
    library.delete()
    with pytest.raises(Conflict, match="there is none now"):
        pull(library, topic_id=was)
    library.add()
    now = library.topic().id
    with pytest.raises(Conflict, match=f"is {now} now"):
        pull(library, topic_id=was)
    assert read(pull(library, topic_id=now)) == library.there()


def test_a_topic_that_this_node_does_not_have_yet_is_still_to_come() -> None:
    """The client saw it on another node."""
    library = Library()
    later = Library()
    for _ in range(5):
        later.tick()
    later.add()
    assert pull(library, topic_id=later.topic().id, wait=1).topic_id == 0


def test_old_bodies_come_from_the_store_and_their_heads_are_decoded_once() -> None:
    library = Library(cached=False)
    for _ in range(10):
        library.item(*[library.entries(count=2) for _ in range(5)])

    assert read(pull(library)) == library.there()
    assert library.shelf.reads == 10 + 50
    library.shelf.reads = 0
    assert read(pull(library)) == library.there()
    assert library.shelf.reads == 50


def test_new_bodies_come_from_memory() -> None:
    library = Library()
    for _ in range(100):
        library.add()

    assert read(pull(library)) == library.there()
    assert library.shelf.reads == 0


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


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.integers(0, 2), st.integers(1, 30), st.sampled_from([0, OPAQUE])
        ),
        st.tuples(
            st.just("add"), st.integers(0, 2), st.integers(1, 30), st.sampled_from([0, OPAQUE])
        ),
        st.tuples(st.just("bundle"), st.lists(st.integers(0, 2), max_size=5)),
        st.tuples(st.just("prune"), st.integers(0, 2), st.floats(0, 1)),
        st.tuples(st.just("seal")),
        st.tuples(st.just("install")),
        st.tuples(st.just("drop")),
        st.tuples(st.just("tick"), st.integers(0, 5)),
        st.tuples(st.just("pull"), st.integers(1, 40), st.integers(1, 2_000)),
        st.tuples(st.just("pull"), st.integers(1, 40), st.integers(1, 2_000)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([None, 1]), st.booleans())
def test_a_reader_gets_every_entry_once_in_order_or_is_told_how_many_are_missing(
    steps: list[tuple[Any, ...]], partition: int | None, cached: bool
) -> None:
    library = Library(cached=cached)
    library.create(partitions=3)
    got: dict[int, int] = dict.fromkeys(range(3), 0)
    after: Any = 0

    async def main() -> None:
        nonlocal after
        for step in [*steps, *[("pull", 1_000, MIB)] * 4]:
            match step:
                case ("add", p, count, codec):
                    library.add(count=count, partition=p, codec=codec)
                case ("bundle", several):
                    library.item(*[library.entries(count=3, partition=p) for p in several])
                case ("prune", p, share):
                    last = library.at(partition=p).last
                    library.prune(int(last * share), partition=p)
                case ("seal",):
                    library.seal()
                case ("install",):
                    library.install()
                case ("drop",):
                    library.drop()
                case ("tick", seconds):
                    library.tick(seconds)
                case ("pull", limit, size):
                    wanted = [
                        f for f in library.there(partition=partition) if f.number > got[f.partition]
                    ]
                    pulled = await library.pull(
                        after=after, partition=partition, limit=limit, max_bytes=size
                    )
                    facts = read(pulled)
                    assert facts == wanted[: len(facts)]
                    assert len(facts) <= limit
                    assert facts or not wanted
                    firsts = {p: library.at(partition=p).first for p in pulled.spans}
                    assert pulled.missing == sum(
                        max(0, first - 1 - got[p]) for p, first in firsts.items()
                    )
                    for p, first in firsts.items():
                        got[p] = max(got[p], first - 1)
                    for fact in facts:
                        got[fact.partition] = fact.number
                    after = pulled.after
                    assert after.done == {p: got[p] for p in firsts}
        assert [f for f in library.there(partition=partition) if f.number > got[f.partition]] == []

    run(main)
