"""Pulls, held against everything that was produced."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.library import OPAQUE, Library, read
from duckrow.node.cursors import FIRST, LAST, Back, Cursor
from duckrow.node.errors import Conflict, NotFound, Refused
from duckrow.node.limits import MIB, PARTITIONS_MAX, PULL_BATCHES_MAX
from duckrow.node.reading import Pull
from sim.readingkit import pull, run


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


def test_a_partition_that_this_node_does_not_have_yet_is_still_to_come() -> None:
    """The client, which names the topic's id, saw it on another node."""
    library = Library()
    library.add(count=3)
    there = library.topic().id
    pulled = pull(library, after=Cursor({1: 2}), partition=1, topic_id=there, wait=1)
    assert (pulled.batches, pulled.after) == ([], Cursor({1: 2}))
    library.configure(partitions=2)
    library.add(count=3, partition=1)

    assert (
        read(pull(library, after=pulled.after, partition=1, topic_id=there))
        == (library.there(partition=1)[2:])
    )
    with pytest.raises(NotFound, match="0 to 1, not 1024"):
        pull(library, partition=PARTITIONS_MAX, topic_id=there)


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
