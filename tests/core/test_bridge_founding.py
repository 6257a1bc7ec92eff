"""A cluster is founded once."""

from __future__ import annotations

import random

from core.bridgekit import disk, run
from duckrow.bridge.effects import Effect, Learned, Send, Sync
from duckrow.bridge.founding import Charter
from duckrow.bridge.member import Member
from duckrow.bridge.messages import Control, Decided, Join
from duckrow.bridge.recovered import Recovered
from duckrow.node.forms import Start

CHARTER = Charter(((1, 1, True), (2, 1, True)), b"c" * 16, 7, "fsync")


def founder() -> Member:
    start = Start(run(1), "boot", "fsync", 1, disk(1))
    recovered = Recovered(uuid=disk(1), id=1, incarnation=run(1), starts={run(1): start})
    return Member(recovered, 0.0, random.Random(1), charter=CHARTER)


def hears(member: Member, join: Join) -> list[Effect]:
    member.link_up(2, 0.0)
    member.receive(2, Control(2, run(2), 1, None, join), 0.0)
    return member.take_effects(0.0, 1)


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

    (view,) = [each.view for each in effects if isinstance(each, Learned)]
    (token,) = [each.token for each in effects if isinstance(each, Sync)]
    assert told(effects) == []
    member.synced(token, 0.1)
    assert told(member.take_effects(0.1, 1)) == [Decided(view)]


def test_where_one_of_them_knows_a_view_none_is_made() -> None:
    """G1."""
    effects = hears(founder(), Join(run(2), disk(2), 3, 9))

    assert [each for each in effects if isinstance(each, Learned)] == []
