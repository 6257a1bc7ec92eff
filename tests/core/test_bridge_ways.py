"""Ways between nodes: routes, floods, whom to follow; and who is suspected."""

from __future__ import annotations

from collections import Counter
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from core.bridgecluster import TIMING, Cluster
from core.bridgekit import run, view
from duckrow.bridge.catchup import Following
from duckrow.bridge.effects import Sync
from duckrow.bridge.flood import SOURCES_MAX, WINDOW, Flood
from duckrow.bridge.messages import Control, Follow, Leave, Link
from duckrow.bridge.outbox import Outbox
from duckrow.bridge.routes import Routes
from duckrow.bridge.suspicion import Suspicion
from duckrow.bridge.timing import Timing
from duckrow.node.reserve import HARD

EDGES = st.sets(
    st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda e: e[0] < e[1]), max_size=15
)


def test_the_shortest_way_is_taken_and_of_equal_ones_the_lowest_neighbour() -> None:
    """F1."""
    routes = Routes(1)
    changed = routes.settle({3: {3: (3,), 9: (3, 9)}, 2: {2: (2,), 9: (2, 9), 3: (2, 3)}})

    assert changed
    assert routes.next_hop == {2: 2, 3: 3, 9: 2}
    assert routes.paths[9] == (1, 2, 9)


def test_a_way_through_this_node_is_no_way() -> None:
    routes = Routes(1)
    routes.settle({2: {2: (2,), 9: (2, 1, 9)}})

    assert 9 not in routes.next_hop


def test_ways_that_stay_are_no_news() -> None:
    routes = Routes(1)
    routes.settle({2: {2: (2,)}})

    assert not routes.settle({2: {2: (2,)}})
    assert routes.settle({})


@given(EDGES)
def test_routes_settle_on_shortest_ways_without_loops(edges: set[tuple[int, int]]) -> None:
    """F1."""
    nodes = {id_: Routes(id_) for id_ in range(1, 7)}
    beside = {id_: [a + b - id_ for a, b in edges if id_ in (a, b)] for id_ in nodes}
    for _ in range(8):
        offers = {id_: dict(node.paths) for id_, node in nodes.items()}
        for id_, node in nodes.items():
            node.settle({peer: offers[peer] for peer in beside[id_]})
    for id_, node in nodes.items():
        reached = {id_: 0}
        todo = [id_]
        for here in todo:
            for peer in beside[here]:
                if peer not in reached:
                    reached[peer] = reached[here] + 1
                    todo.append(peer)

        assert {there: len(path) - 1 for there, path in node.paths.items()} == reached
        assert all(len(set(path)) == len(path) for path in node.paths.values())


def control(n: int, incarnation: int = 5, source: int = 2) -> Control:
    return Control(source, incarnation, n, None, Leave(1))


def test_a_control_message_is_passed_on_once() -> None:
    flood = Flood(1, 4)

    assert flood.is_new(control(1))
    assert not flood.is_new(control(1))
    assert flood.is_new(control(3))
    assert flood.is_new(control(2))


def test_a_restarted_source_counts_from_one_again() -> None:
    flood = Flood(1, 4)
    assert flood.is_new(control(1))

    assert flood.is_new(control(1, incarnation=6))


def test_what_was_sent_here_comes_back_over_a_ring_and_is_known() -> None:
    flood = Flood(1, 4)
    sent = flood.start(Leave(3), None)

    assert (sent.source, sent.incarnation, sent.n) == (1, 4, 1)
    assert not flood.is_new(sent)


def test_a_flood_remembers_a_bounded_part() -> None:
    flood = Flood(1, 4)
    for n in range(1, 3 * WINDOW):
        assert flood.is_new(control(n))

    assert not flood.is_new(control(1))
    assert not flood.is_new(control(2 * WINDOW + 5))
    for source in range(2 * SOURCES_MAX):
        assert flood.is_new(control(1, incarnation=9, source=source))
    assert len(flood._seen) <= SOURCES_MAX


def test_a_source_that_goes_on_is_not_forgotten_for_others_that_come_and_go() -> None:
    """In a ring what it says would go round for ever."""
    flood = Flood(1, 4)
    assert flood.is_new(control(1))
    for n in range(2, 2 * SOURCES_MAX):
        assert flood.is_new(control(n))
        assert flood.is_new(control(1, incarnation=9, source=n))
    assert not flood.is_new(control(1))


def test_a_sync_that_has_returned_stands_for_those_before_it() -> None:
    outbox, done = Outbox(), list[int]()
    for number in (1, 2, 3):
        outbox.when_durable(partial(done.append, number))
        assert outbox.take() == [Sync(number)]
    outbox.synced(2)
    assert done == [1, 2]


def test_the_neighbour_that_is_furthest_ahead_is_followed() -> None:
    """C1."""
    following = Following(10.0)
    following.choose(5, {2: 9, 3: 12, 4: 12}, 0.0)

    assert following.upstream == 3
    following.choose(9, {2: 20, 3: 12}, 0.0)
    assert following.upstream == 3  # still ahead
    following.choose(12, {2: 20, 3: 12}, 0.0)
    assert following.upstream == 2


def test_one_that_brings_nothing_for_long_is_not_followed_where_somebody_else_is_ahead() -> None:
    """C1: Its disk may hang; it was followed for as long as it beat, and who followed it stood still."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(14)
    cluster.submit(1, "a")
    cluster.beats(2)
    cluster.stops = lambda a, b, message: a == 1 and isinstance(message, Follow)
    cluster.start(3)
    cluster.beats(200)

    assert cluster.words(3) == ["a"]
    assert cluster.acting() == [1, 2, 3]


def test_one_that_is_slow_is_followed_for_longer_each_time() -> None:
    """C1: What comes next may be large, and all links slow."""
    following, now, since = Following(10.0), 0.0, 0.0
    stays = list[float]()
    while len(stays) < 8:
        before = following.upstream
        following.choose(5, {2: 9, 3: 12}, now)
        if before is not None and following.upstream != before:
            stays.append(now - since)
            since = now
        now += 1

    assert stays == [10, 20, 40, 80, 160, 320, 320, 320]
    last = following.upstream
    following.choose(6, {2: 9, 3: 12}, now + 1000)
    assert following.upstream == last, "it has come further"


def test_items_of_an_older_subscription_are_not_taken() -> None:
    """C1."""
    following = Following(10.0)
    following.choose(5, {3: 12}, 0.0)
    before = following.generation
    following.lost(3)
    assert not following.takes(before)
    following.choose(5, {2: 9}, 0.0)

    assert not following.takes(before)
    assert following.takes(following.generation)


def test_who_acts_follows_nobody() -> None:
    """C3."""
    following = Following(10.0)
    following.choose(5, {3: 12}, 0.0)
    following.stop()

    assert not following.takes(following.generation)


def suspicion() -> Suspicion:
    found = Suspicion(1, Timing())
    found.watch(view(), 0.0)
    return found


def test_who_can_follow_nobody_tells_its_neighbours_no_more_often_than_others() -> None:
    """F2: A witness, or a machine whose disk is full, is behind all of them for as long as it is that."""
    cluster = Cluster(1, 2, 3, 4, 5, witnesses=(5,))
    cluster.members[4].hear_disk(HARD, cluster.now)
    cluster.beats(10)
    cluster.submit(1, "a")
    cluster.sent.clear()
    cluster.beats(10)

    links = Counter(id_ for id_, _, message in cluster.sent if isinstance(message, Link))
    assert links == dict.fromkeys(range(1, 6), 10 * 4)


def test_silence_is_suspected_after_its_time() -> None:
    """S1."""
    found = suspicion()
    found.beat(2, 0.5)

    assert found.suspects(view(), 0.8) == set()
    assert found.suspects(view(), 0.9) == {3}
    assert found.suspects(view(), 9.0) == {2, 3}


def test_who_hung_up_is_missed_sooner_until_it_speaks_again() -> None:
    """S3: so is a process that was killed."""
    found = suspicion()
    for step in range(1, 6):
        found.beat(2, step / 10)
        found.beat(3, step / 10)
    found.hung_up(3)

    assert found.suspects(view(), 0.7) == set()
    assert found.suspects(view(), 0.8) == {3}
    found.speaks(3)
    assert found.suspects(view(), 1.2) == set()


def test_who_hung_up_and_is_heard_by_another_way_has_as_much_time_as_all_others() -> None:
    """S3: a standby link is hung up when it is not needed any more, and may not come again for years."""
    cluster = Cluster(1, 2, 3)
    cluster.cut(1, 2)
    cluster.members[2].link_down(1, cluster.now, by_peer=True)
    assert cluster.members[2].suspicion.patience(1) == TIMING.hung_up

    cluster.beats(2)

    assert cluster.members[2].suspicion.patience(1) == TIMING.suspect_min


def test_who_asks_to_get_in_after_its_neighbour_hung_up_has_as_much_time_as_all_others() -> None:
    """S3: it has to get the rest of the row over the other link first, and was put off (seed 1000116)."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(1)
    cluster.members[2].link_down(1, cluster.now, by_peer=True)
    cluster.beats(9)
    assert [member.id for member in cluster.view(2).members] == [2, 3]
    assert cluster.members[2].suspicion.patience(1) == TIMING.hung_up

    cluster.edges = [(1, 3)]
    cluster.stops = lambda a, b, _: (a, b) == (3, 1)  # it hears nothing
    cluster.start(1)
    cluster.settle()

    assert cluster.members[2].suspicion.patience(1) == TIMING.suspect_min


def test_irregular_beats_are_given_more_time() -> None:
    found = suspicion()
    now = 0.0
    for gap in [0.1, 1.5] * 20:
        now += gap
        found.beat(2, now)

    assert found.patience(2) > 2.0
    assert found.patience(2) <= Timing().suspect_max


def test_who_acks_nothing_is_suspected_although_it_beats() -> None:
    """S2."""
    found = suspicion()
    for step in range(40):
        now = step / 10
        found.beat(2, now)
        found.beat(3, now)
        found.waits((1, 1, 4), [1, 3], now)

    assert found.suspects(view(), 3.9) == {3}
    found.waits((1, 1, 5), [1, 3], 4.0)  # the head moves: no stall
    assert found.suspects(view(), 4.0) == set()


def test_a_later_incarnation_proves_the_former_one_dead_at_once() -> None:
    """S3."""
    found = suspicion()
    found.is_dead(3, run(3))

    assert found.suspects(view(), 0.0) == {3}
    found.watch(view(2, {1: run(1), 3: run(3, 1)}), 0.0)
    assert found.suspects(view(2, {1: run(1), 3: run(3, 1)}), 0.0) == set()


def test_who_ends_in_order_again_and_again_is_remembered_once() -> None:
    """S3: An observer does so as often as it likes, in a view that may stay for a year."""
    found = suspicion()
    for start in range(10):
        found.leaves(4, run(4, start))
    found.leaves(3, run(3))

    assert found.gone() == {(4, run(4, 9)), (3, run(3))}
    assert found.suspects(view(), 0.1) == {3}


def test_one_that_stalls_again_and_again_is_let_in_later_each_time() -> None:
    """S6."""
    found = suspicion()
    for member in (2, 3):
        found.beat(member, 0.0)
    now, waits = 0.0, []
    for s in range(1, 5):
        found.waits((1, 1, s), [3], now)
        now += 2.0
        found.waits((1, 1, s), [3], now)
        found.ejected([2, 3], now)
        assert found.holds_off(3, now)
        assert not found.holds_off(2, now)
        until = now
        while found.holds_off(3, until):
            until += 0.25
        waits.append(until - now)
        now = until

    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_all_times_scale_together() -> None:
    twice = Timing().scaled(2)

    assert twice.beat == 2 * Timing().beat
    assert twice.suspect_min == 2 * Timing().suspect_min
    assert twice.lag_items == Timing().lag_items
