"""A cluster is founded once."""

from __future__ import annotations

import random

import attrs

from core.bridgekit import disk, run
from duckrow.bridge.configured import options_of
from duckrow.bridge.effects import Effect, Hang, Learned, Place, Send, Sync
from duckrow.bridge.founding import Charter
from duckrow.bridge.member import Member
from duckrow.bridge.messages import Control, Decided, Join, Link, Newer
from duckrow.bridge.recovered import Recovered
from duckrow.node.clusterfile import read_cluster
from duckrow.node.forms import Start
from duckrow.node.row import View
from duckrow.node.storeoptions import StoreOptions

CHARTER = Charter(((1, 1, True), (2, 1, True)), b"c" * 16, 7, "fsync")
BLANK = Link(0, 0, (0, b""), 1, "ok", {2: (2,)}, {}, None)


def founder(cluster: bytes = b"") -> Member:
    start = Start(run(1), "boot", "fsync", 1, disk(1))
    recovered = Recovered(uuid=disk(1), id=1, incarnation=run(1), starts={run(1): start})
    return Member(recovered, 0.0, random.Random(1), charter=CHARTER, cluster=cluster)


def hears(member: Member, join: Join) -> list[Effect]:
    member.link_up(2, 0.0)
    member.receive(2, Control(2, run(2), 1, None, join), 0.0)
    return member.take_effects(0.0, 1)


def learned(effects: list[Effect]) -> list[View]:
    return [each.view for each in effects if isinstance(each, Learned)]


def told(effects: list[Effect]) -> list[Decided]:
    sent = [each.message for each in effects if isinstance(each, Send)]
    return [
        message.payload
        for message in sent
        if isinstance(message, Control) and isinstance(message.payload, Decided)
    ]


def test_a_founder_tells_nobody_of_its_view_before_it_is_durable() -> None:
    """G1: or its next process, which knows nothing of it, would make another one."""
    member = founder()

    effects = hears(member, Join(run(2), disk(2), 0, 0))

    (view,) = learned(effects)
    (token,) = [each.token for each in effects if isinstance(each, Sync)]
    assert told(effects) == []
    member.synced(token, 0.1)
    assert told(member.take_effects(0.1, 1)) == [Decided(view)]


def test_a_neighbour_hears_nothing_of_a_founded_view_before_that_is_durable() -> None:
    """G1: the one of seed 905403 was told what links tell each other, and had the first of two first views."""
    member = founder()
    (view,) = learned(hears(member, Join(run(2), disk(2), 0, 0)))

    member.receive(2, BLANK, 0.0)
    member.beat(0.1)
    effects = member.take_effects(0.1, 1)

    sent = [each.message for each in effects if isinstance(each, Send)]
    links = [message for message in sent if isinstance(message, Link)]
    assert [(link.view, link.position, link.cluster) for link in links] == [(0, 0, b"")]
    assert Newer(view) not in sent
    assert not [each for each in effects if isinstance(each, Place)], "its node would hear of it"
    member.synced(1, 0.2)
    assert Place(1, view) in member.take_effects(0.2, 1)


def test_a_founded_view_is_written_once() -> None:
    """G1."""
    member = founder()
    join = Join(run(2), disk(2), 0, 0)
    (view,) = learned(hears(member, join))

    member.receive(2, Control(2, run(2), 2, None, join), 0.0)
    assert learned(member.take_effects(0.0, 1)) == []
    member.synced(1, 0.1)
    assert learned(member.take_effects(0.1, 1)) == []
    assert member.standing.newest == view


def test_a_founder_takes_no_other_view_while_its_own_becomes_durable() -> None:
    """G1: it has been written down, and the next process would begin with it."""
    member = founder()
    (view,) = learned(hears(member, Join(run(2), disk(2), 0, 0)))

    for id_ in (1, 5):
        member.receive(2, Newer(attrs.evolve(view, id=id_, cluster=b"d" * 16)), 0.0)
    assert learned(member.take_effects(0.0, 1)) == []
    member.synced(1, 0.1)
    assert member.standing.newest == view


def test_where_one_of_them_knows_a_view_none_is_made() -> None:
    """G1."""
    effects = hears(founder(), Join(run(2), disk(2), 3, 9))

    assert learned(effects) == []


def test_a_blank_machine_whose_file_names_the_cluster_comes_into_no_other() -> None:
    """U5: It had the row of a former cluster, if it met that first, and was refused by its own."""
    former = View(4, (), b"f" * 16, 7, "fsync", voters=((2, 1, disk(2), True),))
    member = founder(CHARTER.cluster)

    hears(member, Join(run(2), disk(2), 4, 9))
    member.receive(2, Newer(former), 0.0)
    assert learned(member.take_effects(0.0, 1)) == []
    member.receive(2, BLANK._replace(view=4, cluster=former.cluster), 0.0)
    assert any(isinstance(each, Hang) for each in member.take_effects(0.0, 1))
    member.link_up(2, 0.1)
    member.receive(2, Newer(attrs.evolve(former, cluster=CHARTER.cluster)), 0.1)
    assert [view.cluster for view in learned(member.take_effects(0.1, 1))] == [CHARTER.cluster]


def test_the_cluster_file_says_which_cluster_that_is() -> None:
    text = f'cluster.id = "{"ab" * 16}"\nmembers.m1 = {{id = 1, address = "127.0.0.1"}}\n'
    file = read_cluster(text, "cluster.toml")
    options = options_of(file, file.named("m1"), StoreOptions(), random.Random(1))

    assert options.cluster == options.charter.cluster == b"\xab" * 16  # type: ignore[union-attr]
