"""Which machines of a cluster with a witness a seed may leave dead: those without which the others have it all."""

from __future__ import annotations

from core.bridgecluster import Cluster
from duckrow.bridge.messages import Accepted, Control, Follow, Message
from duckrow.bridge.standing import Standing
from sim.cluster_scenario import can_do_without


def test_with_a_witness_nobody_stays_dead_of_whom_the_next_view_may_be() -> None:
    """The witness had accepted it and stood still, so nobody knew that it was decided (seed 905095)."""
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    assert can_do_without([1], standings(cluster))
    cluster.stops = lambda a, _, message: a == 3 and is_of(Accepted, message)
    cluster.cut(1, 2)
    cluster.cut(2, 3)
    cluster.call(1)
    cluster.beats(2)  # machine 2 is not waited for any longer
    cluster.cut(1, 3)
    assert [cluster.view(id_).id for id_ in (1, 2, 3)] == [1, 1, 1]
    assert cluster.members[3].standing.acceptor.accepted is not None

    assert not can_do_without([1], standings(cluster))
    assert can_do_without([2], standings(cluster))

    cluster.stops = lambda *_: False
    cluster.stop(1)
    cluster.link(2, 3)
    cluster.beats(30)
    assert [member.id for member in cluster.view(2).members] == [1]
    assert cluster.acting() == []


def test_with_a_witness_nobody_stays_dead_who_may_still_become_the_next_view() -> None:
    """It has promised, and who asked chooses later among those that it has heard."""
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    cluster.cut(1, 2)
    cluster.cut(2, 3)
    cluster.call(3)
    assert cluster.members[1].standing.acceptor.accepted is None

    assert not can_do_without([1], standings(cluster))
    assert can_do_without([2], standings(cluster))

    cluster.stop(1)
    cluster.link(2, 3)
    cluster.beats(30)
    assert [member.id for member in cluster.view(2).members] == [1]
    assert cluster.acting() == []


def test_with_a_witness_nobody_stays_dead_whose_row_a_new_member_still_lacks() -> None:
    """It is named in the newest view, and would be exact only after its mark (X1)."""
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    cluster.stop(2)
    cluster.submit(1, "a")
    cluster.beats(14)
    cluster.stops = lambda _, b, message: b == 2 and isinstance(message, Follow)
    cluster.start(2)
    cluster.beats(5)
    assert [member.id for member in cluster.view(3).members] == [1, 2]

    assert not can_do_without([1], standings(cluster))
    assert can_do_without([2], standings(cluster))

    cluster.stop(1)
    cluster.stops = lambda *_: False
    cluster.beats(30)
    assert cluster.acting() == []


def standings(cluster: Cluster) -> dict[int, Standing]:
    return {id_: member.standing for id_, member in cluster.members.items()}


def is_of(kind: type, message: Message) -> bool:
    return isinstance(message, Control) and isinstance(message.payload, kind)
