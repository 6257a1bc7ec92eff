"""A guest, and what it demands of `accepted`: a place in the order is no number."""

from __future__ import annotations

from duckrow.cluster.history import FAIL, INFO, OK

from .guests import Guest
from .plan import Plan, TopicPlan
from .townkit import Town, run
from .workload import Observed

TOPIC = TopicPlan("t", {"partitions": 3})
KEY = "t", 2


async def guest_of(town: Town) -> Guest:
    async with town.client(1) as row:
        await row.create_topic("t", partitions=3)
    seen = Observed(Plan(topics=(TOPIC,)))
    seen.nodes[town.env.name] = ("n1", "n2", "n3")
    return Guest(town.env, seen, "g")


def test_a_guest_may_be_told_that_what_was_accepted_for_too_few_partitions_is_refused() -> None:
    """Seed 927259 took it for a wrong answer.  A machine with a new disk knows no topic."""

    async def use(town: Town) -> None:
        guest = await guest_of(town)
        await town.give_new_disk(3)
        await guest._accepted("n3", TOPIC, KEY)
        (made,) = guest._seen.history.produces
        assert (made.outcome, made.accepted_at) == (INFO, ""), "it need not be there in the end"
        town.world.net.heal()
        await town.until_all_act()
        await guest._barrier("n1", TOPIC, KEY)
        await guest._later("n1", TOPIC, KEY)
        assert made.outcome == FAIL, "nor may it"

    run(use)


def test_a_guest_demands_a_number_for_what_a_node_accepted_that_knew_the_partitions() -> None:
    async def use(town: Town) -> None:
        guest = await guest_of(town)
        for id_ in (2, 3):
            town.world.hosts[f"m{id_}"].media.sync_latency = 0.1
        await guest._accepted("n1", TOPIC, KEY)
        (made,) = guest._seen.history.produces
        assert (made.outcome, made.accepted_at) == (INFO, "n1")
        await guest._barrier("n1", TOPIC, KEY)
        await guest._later("n1", TOPIC, KEY)
        assert made.outcome == OK

    run(use)
