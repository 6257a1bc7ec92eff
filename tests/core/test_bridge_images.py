"""Images, as far as the protocol goes: who takes one, from whom, and what holds when it is the row."""

from __future__ import annotations

from collections import deque
from functools import partial

from core.bridgecluster import Cluster
from core.bridgekit import run, view
from duckrow.bridge.catchup import ImageSource
from duckrow.bridge.choosing import choose
from duckrow.bridge.imageforms import ImageMessage, ImageOffer, ImageSlice, NoImage, WantImage
from duckrow.bridge.messages import Acks, Control, Follow, Message, Newer, Promise, Report
from duckrow.bridge.passing import Passing


def test_the_image_is_taken_from_who_is_furthest_ahead() -> None:
    source = ImageSource()

    assert source.choose({2: 9, 3: 12, 4: 12})
    assert source.peer == 3
    assert not source.choose({2: 20, 3: 12}), "it stays, as long as that one is there"
    assert source.choose({2: 20})
    assert source.peer == 2
    assert source.choose({})
    assert source.peer is None


def test_who_has_no_image_is_asked_again_when_all_others_had_none() -> None:
    source = ImageSource()
    source.choose({2: 9, 3: 12})
    asked = []
    for _ in range(4):
        assert source.peer is not None
        asked.append(source.peer)
        source.failed(source.peer)
        source.choose({2: 9, 3: 12})

    assert asked == [3, 2, 3, 2]


def test_who_has_to_take_an_image_is_no_member_however_close_it_seems() -> None:
    reports = {id_: Report(True, {}, run(id_), 50) for id_ in (1, 2)}
    waits = Report(False, None, run(3, 1), 49, comes=False)
    found = choose(view(), {**reports, 3: waits}, {}, lag_items=10)

    assert found is not None
    assert [member.id for member in found.members] == [1, 2]


def test_who_needs_an_image_goes_on_if_there_is_no_majority_without_it() -> None:
    reports = {1: Report(True, {}, run(1), 50), 2: Report(True, {}, run(2), 50, comes=False)}
    found = choose(view(), reports, {}, lag_items=10)
    late = choose(
        view(),
        {1: reports[1], 3: Report(False, None, run(3, 1), 49, comes=False)},
        {},
        lag_items=10,
    )

    assert found is not None
    assert [member.id for member in found.members] == [1, 2]
    assert late is None, "it could not act, and everybody would wait for it"


def pruned(cluster: Cluster, *ids: int) -> None:
    """These keep nothing of what is in the row now."""
    for id_ in ids:
        member = cluster.members[id_]
        member.neighbours.floor = member.standing.position + 1


def take_image(cluster: Cluster, id_: int, of: int) -> None:
    """All at once, as the stores would have done it."""
    giver, taker = cluster.members[of].standing, cluster.members[id_]
    assert taker.takes_image(giver.position)
    cluster.rows[id_] = list(cluster.rows[of])
    taker.based(giver.position, cluster.view(of), giver.delivered, cluster.now)
    cluster._end(id_)
    cluster.settle()


def image_source(cluster: Cluster, id_: int) -> int | None:
    return cluster.members[id_].neighbours.images.peer


def has_vote(message: Message) -> bool:
    return isinstance(message, Control) and isinstance(message.payload, Promise)


def test_a_machine_that_nobody_can_be_followed_by_takes_an_image_and_comes_back() -> None:
    """C4."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(15)
    cluster.submit(1, "a", "b")
    cluster.settle()
    pruned(cluster, 1, 2)
    cluster.start(3)
    cluster.beats(20)

    assert cluster.acting() == [1, 2], "it is no member, so nobody waits for it"
    assert cluster.view(1).id == 2
    assert image_source(cluster, 3) == 1
    take_image(cluster, 3, of=1)
    cluster.beats(5)
    assert cluster.acting() == [1, 2, 3]
    assert image_source(cluster, 3) is None
    cluster.submit(3, "c")
    cluster.settle()
    assert cluster.words(1) == cluster.words(3) == ["a", "b", "c"]


def test_who_can_follow_somebody_takes_no_image() -> None:
    """C4."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(15)
    cluster.submit(1, "a", "b")
    cluster.settle()
    pruned(cluster, 1)
    cluster.start(3)
    cluster.beats(10)

    assert image_source(cluster, 3) is None
    assert cluster.words(3) == ["a", "b"]


def test_a_bridge_whose_node_lost_its_state_leaves_and_comes_back_with_an_image() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.submit(1, "a")
    cluster.settle()
    cluster.members[3].need_image(cluster.now)
    cluster._end(3)
    cluster.beats(10)

    assert cluster.acting() == [1, 2]
    assert image_source(cluster, 3) == 1, "also where nothing is ordered meanwhile"
    take_image(cluster, 3, of=1)
    cluster.beats(5)
    assert cluster.acting() == [1, 2, 3]


def test_who_leaves_to_take_an_image_asks_for_it_when_the_next_view_has_begun() -> None:
    """Seed 905370: one that was made before lacked the mark of that view, and was fetched for nothing."""
    cluster = Cluster(1, 2, 3)
    taker = cluster.members[3]
    cluster.stops = lambda _a, _b, message: has_vote(message)
    taker.need_image(cluster.now)
    cluster._end(3)
    cluster.beats(3)
    assert (cluster.acting(), taker.standing.installed) == ([], 1), "they are about to decide"
    assert image_source(cluster, 3) is None
    cluster.stops = lambda _a, _b, _message: False
    cluster.beats(10)

    assert (cluster.acting(), taker.standing.installed) == ([1, 2], 2)
    assert image_source(cluster, 3) == 1


def test_who_leaves_to_take_an_image_asks_for_it_after_a_while_though_no_next_view_begins() -> None:
    """Whoever could give it may still be there, where the votes for a view are not."""
    cluster = Cluster(1, 2, 3, witnesses=(3,), weights={1: 2})
    cluster.stops = lambda _a, _b, message: has_vote(message)
    cluster.members[2].need_image(cluster.now)
    cluster._end(2)
    cluster.beats(9)
    assert (cluster.acting(), image_source(cluster, 2)) == ([], None)
    cluster.beats(3)

    assert image_source(cluster, 2) == 1


def test_a_bridge_whose_node_lost_its_state_stays_if_the_others_cannot_go_on_without_it() -> None:
    cluster = Cluster(1, 2)
    cluster.members[2].need_image(cluster.now)
    cluster._end(2)
    cluster.beats(10)

    assert cluster.acting() == [1, 2]
    assert cluster.view(1).id == 1


def test_who_had_to_stay_as_others_were_slow_leaves_when_they_are_not() -> None:
    """Seed 783080: the slow witness was needed for a majority without it."""
    cluster = Cluster(1, 2, 3, witnesses=(3,), weights={1: 2})
    cluster.slow = {3}
    cluster.members[2].need_image(cluster.now)
    cluster._end(2)
    cluster.beats(9)
    assert cluster.acting() == [1, 2]
    assert cluster.view(1).id == 2
    cluster.slow.clear()
    cluster.settle()
    cluster.beats(10)

    assert cluster.acting() == [1]
    assert image_source(cluster, 2) == 1


def test_two_of_three_that_need_an_image_take_it_one_after_the_other() -> None:
    """Neither could leave, since the other was not to stay: both had none for as long as they ran."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(1, "a")
    cluster.settle()
    for id_ in (1, 2):
        cluster.members[id_].need_image(cluster.now)
        cluster._end(id_)
    cluster.beats(10)
    assert cluster.acting() == [2, 3]
    assert image_source(cluster, 1) in (2, 3), "2 passes on what 3 has"

    take_image(cluster, 1, of=3)
    cluster.beats(100)
    assert cluster.acting() == [1, 3]
    take_image(cluster, 2, of=3)
    cluster.beats(10)

    assert cluster.acting() == [1, 2, 3]


def test_who_needs_an_image_and_has_to_stay_asks_for_fewer_and_fewer_views() -> None:
    cluster = Cluster(1, 2, 3, witnesses=(3,), weights={1: 2})
    cluster.stop(3)
    cluster.members[2].need_image(cluster.now)
    cluster._end(2)
    cluster.beats(600)

    assert cluster.acting() == [1, 2]
    assert cluster.view(1).id <= 8


def test_who_needs_another_image_after_one_came_leaves_for_it_at_once() -> None:
    """How long it had to stay before the first one is no reason to wait now."""
    cluster = Cluster(1, 2, 3)
    taker = cluster.members[3]
    for _ in range(4):
        taker.need_image(cluster.now)
        cluster._end(3)
        cluster.beats(10)
        assert cluster.acting() == [1, 2]
        take_image(cluster, 3, of=1)
        cluster.beats(5)
        assert cluster.acting() == [1, 2, 3]


def test_what_is_reported_behind_an_image_is_not_less_than_what_is_in_it() -> None:
    """Or a cut could be below what others have delivered."""
    cluster = Cluster(1, 2, 3, 4)
    cluster.stop(4)
    cluster.beats(15)
    cluster.submit(1, "a")
    cluster.submit(2, "b")
    cluster.settle()
    pruned(cluster, 1, 2, 3)
    cluster.start(4)
    cluster.stops = lambda a, b, _message: 4 in (a, b)
    cluster.beats(1)
    take_image(cluster, 4, of=1)
    streams = cluster.members[4].ordering.streams

    assert cluster.members[4].ordering.journaled() == {1: 1, 2: 1, 3: 0}
    assert {origin: stream.have for origin, stream in streams.of.items()} == {1: 1, 2: 1, 3: 0}
    cluster.stops = lambda _a, _b, _message: False
    cluster.submit(1, "c")
    cluster.beats(10)
    assert cluster.words(4) == ["a", "b", "c"]
    reports = [each for each in cluster.said(4, Promise) if isinstance(each, Promise)]
    assert all(each.report.exact is False for each in reports)


def test_who_has_come_further_by_itself_is_served_from_there() -> None:
    """C1, V8: what it had been served from is kept no more, so nothing came, and each view was without it."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda a, b, message: b == 3 and isinstance(message, Acks)
    cluster.submit(1, "a")
    cluster.settle()
    cluster.stop(3)
    cluster.stops = lambda a, b, message: b == 3 and isinstance(message, Control | Follow | Newer)
    cluster.start(3)
    cluster.beats(20)
    former = cluster.members[3].neighbours.following.generation
    assert cluster.words(3) == [], "it has that, and nobody has said that it counts"

    cluster.stops = lambda a, b, message: (
        isinstance(message, Follow) and message.generation == former
    )
    cluster.submit(1, "b")
    cluster.settle()
    cluster.beats(20)

    assert cluster.words(3) == ["a", "b"]
    assert cluster.acting() == [1, 2, 3]


def test_an_observer_that_comes_into_the_next_view_by_itself_goes_on_following() -> None:
    """C5, V8: it followed nobody then, until a beat said that somebody was ahead."""
    cluster = Cluster(1, 2, 3, others=(4,))
    cluster.submit(1, "a")
    cluster.settle()
    cluster.beats(2)
    cluster.stop(3)
    cluster.beats(20)
    assert cluster.members[4].standing.installed == cluster.view(1).id == 2

    cluster.submit(1, "b")
    cluster.settle()

    assert cluster.words(4) == ["a", "b"]


def test_who_took_an_image_is_served_from_there() -> None:
    """C1, C4."""
    cluster = Cluster(1, 2, 3, others=(4,))
    cluster.stops = lambda a, b, message: b == 4 and isinstance(message, Follow)
    cluster.submit(1, "a")
    cluster.settle()
    cluster.beats(2)
    former = cluster.members[4].neighbours.following.generation
    take_image(cluster, 4, of=1)

    cluster.stops = lambda a, b, message: (
        isinstance(message, Follow) and message.generation == former
    )
    cluster.submit(1, "b")
    cluster.settle()
    cluster.beats(2)

    assert cluster.words(4) == ["a", "b"]


def test_who_followed_one_that_is_not_ahead_any_more_takes_an_image_of_one_that_is() -> None:
    """C4: both waited for each other's next item, for as long as they were linked."""
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)], weights={1: 3, 2: 1, 3: 1})
    cluster.stops = lambda a, b, message: (a, b) == (3, 2)
    cluster.submit(1, "a")
    cluster.settle()
    cluster.stop(2)
    cluster.stops = lambda a, b, message: False
    cluster.beats(15)
    cluster.submit(1, "b", "c")
    cluster.settle()
    pruned(cluster, 1)
    cluster.edges = [(2, 3)]
    cluster.start(2)
    cluster.beats(5)
    assert cluster.words(2) == cluster.words(3) == ["a"]
    assert cluster.members[2].neighbours.following.upstream == 3

    cluster.link(1, 2)
    cluster.beats(150)

    assert image_source(cluster, 2) == 1
    cluster.members[2].neighbours.floor = cluster.members[1].neighbours.floor
    take_image(cluster, 2, of=1)
    cluster.beats(10)
    assert image_source(cluster, 3) == 2


def passing(cluster: Cluster, id_: int) -> tuple[Passing, list[tuple[int, ImageMessage]]]:
    sent: list[tuple[int, ImageMessage]] = []
    return Passing(
        cluster.members[id_].neighbours, lambda peer, message: sent.append((peer, message))
    ), sent


def offered(cluster: Cluster, middle: Passing, asker: int, *, by: int) -> None:
    """An image of position 5."""
    assert middle.wanted(asker, WantImage(0, 0, 0))
    middle.heard(by, ImageOffer(5, b"", cluster.view(1), {}, 9, {7: 300}))


def test_an_image_is_passed_on_only_from_where_the_row_here_can_be_followed() -> None:
    """C4."""
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)])
    middle, sent = passing(cluster, 2)
    neighbours = cluster.members[2].neighbours
    neighbours.floor = neighbours.standing.position + 2
    assert not middle.wanted(3, WantImage(0, 0, 0)), "the first has not come so far"
    cluster.submit(1, "a")
    cluster.settle()
    cluster.beats(1)

    assert middle.wanted(3, WantImage(0, 0, 0))
    assert sent == [(1, WantImage(0, 0, 2))]
    given = ImageOffer(2, b"", cluster.view(1), {1: 1}, 9, {})
    middle.heard(1, given)
    middle.heard(1, given)
    assert sent[1:] == [(3, given)]
    assert middle.wanted(3, WantImage(2, 0, 5))
    middle.heard(1, ImageSlice(2, 0, 5, 9, b"last"))
    assert sent[2:] == [(1, WantImage(2, 0, 5)), (3, ImageSlice(2, 0, 5, 9, b"last"))]


def test_the_slices_of_an_image_that_is_passed_on_come_from_who_offered_it() -> None:
    """C4: Where nothing is ordered, images of two machines are of one position, but what lies where in them
    is not the same: half of one and half of the other would have become the row.
    """
    cluster = Cluster(1, 2, 3, others=(4,), edges=[(1, 2), (2, 3), (2, 4)])
    middle, sent = passing(cluster, 2)
    assert middle.wanted(4, WantImage(0, 0, 0))
    assert sent == [(1, WantImage(0, 0, 0))]
    middle.heard(1, ImageOffer(1, b"", cluster.view(1), {}, 9, {7: 300}))
    assert middle.wanted(4, WantImage(1, 0, 0))
    middle.heard(1, ImageSlice(1, 0, 0, 9, b"the state"))
    cluster.members[2].neighbours.down(1)
    middle.lost(1)
    del sent[:]

    assert not middle.wanted(4, WantImage(1, 7, 0)), "node 3 may have another one of that position"
    assert not sent
    assert middle.wanted(4, WantImage(0, 0, 0))
    assert sent == [(3, WantImage(0, 0, 0))]


def test_a_late_slice_of_an_earlier_try_is_not_passed_on_behind_a_new_offer() -> None:
    """C4: It was taken for one of the image that was offered then, of the same position."""
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)])
    middle, sent = passing(cluster, 2)
    offered(cluster, middle, 3, by=1)
    assert middle.wanted(3, WantImage(5, 7, 0))
    offered(cluster, middle, 3, by=1)
    del sent[:]

    middle.heard(1, ImageSlice(5, 7, 0, 300))

    assert sent == []


def test_who_asks_for_an_image_further_on_is_told_when_the_link_there_is_lost() -> None:
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)])
    middle, sent = passing(cluster, 2)
    offered(cluster, middle, 3, by=1)
    assert middle.wanted(3, WantImage(5, 7, 0))
    del sent[:]
    middle.lost(1)
    middle.lost(1)

    assert sent == [(3, NoImage(5))]


def test_what_a_neighbour_answers_is_passed_on_though_another_one_is_asked_by_now() -> None:
    """C4: Who had asked waited a minute and a half; and nobody else could ask for the same, for ever, where it
    asked no more.
    """
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)])
    middle, sent = passing(cluster, 2)
    offered(cluster, middle, 1, by=3)
    del sent[:]
    assert middle.wanted(1, WantImage(5, 7, 0))
    assert middle.wanted(3, WantImage(0, 0, 0))
    assert sent == [(3, WantImage(5, 7, 0)), (1, WantImage(0, 0, 0))]

    middle.heard(3, NoImage(5))
    middle.lost(3)

    assert sent[2:] == [(1, NoImage(5)), (3, NoImage(0))]


def test_who_had_no_image_to_pass_on_is_not_asked_again_before_the_others() -> None:
    """C4."""
    cluster = Cluster(1, 2, 3, others=(4,), edges=[(1, 2), (2, 3), (2, 4)])
    cluster.beats(1)
    middle, sent = passing(cluster, 2)
    for _ in range(3):
        assert middle.wanted(4, WantImage(0, 0, 0))
        peer, _ = sent[-1]
        middle.heard(peer, NoImage(0))

    assert [peer for peer, message in sent if isinstance(message, WantImage)] == [1, 3, 1]


def test_a_question_for_an_image_that_all_pass_on_comes_to_an_end() -> None:
    """C4."""
    cluster = Cluster(1, 2, 3, others=(4,), edges=[(1, 2), (1, 3), (1, 4), (2, 3)])
    ways: deque[tuple[int, int, ImageMessage]] = deque([(4, 1, WantImage(0, 0, 0))])

    def put(id_: int, peer: int, message: ImageMessage) -> None:
        ways.append((id_, peer, message))

    rooms = {id_: Passing(cluster.members[id_].neighbours, partial(put, id_)) for id_ in (1, 2, 3)}
    came = []
    for _ in range(20):
        if not ways:
            break
        source, peer, message = ways.popleft()
        came.append((peer, message))
        if peer == 4:
            continue
        if not isinstance(message, WantImage):
            assert isinstance(message, NoImage)
            rooms[peer].heard(source, message)
        elif not rooms[peer].wanted(source, message):
            put(peer, source, NoImage(message.image))

    assert not ways
    assert came[-1] == (4, NoImage(0))
