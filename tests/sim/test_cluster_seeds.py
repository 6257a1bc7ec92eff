"""Whole clusters: some seeds that are the same in every `make test`, and those that failed once.

A seed means another run as soon as something draws one more number, so what a failing seed has found
gets a test of the part that was wrong, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio

from core.bridgecluster import Cluster
from duckrow.bridge.messages import Accepted, Control, Follow, Message
from duckrow.bridge.process import Bridge
from duckrow.bridge.standing import Standing
from duckrow.cluster.checker import check
from duckrow.cluster.history import History, Report
from duckrow.node import numbering
from duckrow.node.calls import Calls
from duckrow.node.effects import Answer
from duckrow.node.errors import DiskFailed, NoQuorum
from duckrow.node.numbers import Numbers
from duckrow.node.reads import Reads
from duckrow.node.row import View
from duckrow.tools import fuzz
from sim import cluster_scenario
from sim.cluster_faults import ClusterFate
from sim.cluster_machine import UNREAD_STARTS, Machine
from sim.cluster_operator import Operator
from sim.cluster_plan import (
    DAMAGE,
    FORGOTTEN,
    HOUSE,
    KINDS,
    SETTINGS,
    SHAPES,
    ClusterPlan,
    drawn,
    links,
)
from sim.cluster_scenario import _Run, can_do_without, run_seed
from sim.net import WINDOW
from sim.plan import TopicPlan
from sim.scenario import ENDS
from sim.workload import Observed
from sim.world import World

from .test_determinism import fresh_process

FEW, MORE = range(4), range(4, 8)

FAILED_ONCE = {
    "who_is_the_majority_alone_forgets_nothing_while_it_makes_a_view": 8,
    "a_machine_that_dies_while_the_cluster_is_founded": 103,
    "nobody_remembers_the_start_that_the_view_names": 1011,
    "a_producer_leaves_a_machine_that_alone_has_what_it_accepted": 5001,
    "an_accepted_entry_is_refused_when_it_is_ordered": 6007,
    "a_node_with_a_new_disk_is_taken_for_another_row": 995_008,
    "a_witness_plays_the_part_of_who_keeps_the_row": 995_007,
    "an_index_that_has_lost_something_stays_so": 700_007,
    "a_store_that_damage_has_taken_the_former_names_of": 720_058,
    "a_damaged_segment_that_lacks_what_all_have_dropped_beside_what_some_have": 800_350,
    "an_image_and_ballots_over_a_link_that_carries_little": 1_000_116,
    "who_follows_over_a_link_that_carries_little_is_sent_the_bundles_too": 1_040_272,
    "a_body_that_was_staged_lies_in_a_segment_before_that_of_its_item_which_is_dropped": 1_000_341,
    "whose_disk_was_full_while_it_was_no_member_wants_in": 1_150_399,
}
LONG_RUNS = {700_007}  # each has a test of its own that is shorter


@pytest.mark.parametrize(
    "seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.long) for seed in MORE)]
)
def test_a_seed_shows_no_anomaly(seed: int) -> None:
    outcome = run_seed(seed)

    assert outcome.ok, outcome


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, id=name, marks=pytest.mark.long if seed in LONG_RUNS else ())
        for name, seed in FAILED_ONCE.items()
    ],
)
def test_a_seed_that_failed_once_shows_no_anomaly(seed: int) -> None:
    outcome = run_seed(seed)

    assert outcome.ok, outcome


def test_a_seed_is_the_same_run_in_fresh_processes() -> None:
    """With other hash seeds, other addresses, and what pytest has loaded."""
    digests = {
        json.loads(fresh_process(number, "-m", "sim.run", "4", "--cluster", "--json"))["digest"]
        for number in (1, 2)
    }

    assert digests == {run_seed(4).digest}


@pytest.mark.long
@pytest.mark.parametrize("seed", [7, 13])
def test_a_seed_is_the_same_run_in_many_fresh_processes(seed: int) -> None:
    command = ("-m", "sim.run", str(seed), "--cluster", "--json")
    digests = {json.loads(fresh_process(number, *command))["digest"] for number in range(20)}

    assert len(digests) == 1


QUICK = ("flip", "wipe", "voters")
QUIET = ClusterPlan(seconds=2.0, calm=1.0, producers=1, consumers=1, gap=0.2, doors=3)


def test_a_run_without_faults_shows_no_anomaly() -> None:
    outcome = run_seed(1, QUIET)

    assert outcome.ok, outcome
    assert "fault" not in outcome.counts


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.long] if number % 6 and kind not in QUICK else [])
        for number, kind in enumerate((*KINDS, *DAMAGE, *HOUSE))
    ],
)
def test_each_kind_of_fault_alone_shows_no_anomaly(kind: str) -> None:
    plan = ClusterPlan(
        seconds=3.0,
        calm=1.0,
        faults=(kind,),
        tempo=0.3,
        stagers=1,
        segment_bytes=16 * 1024,
        followable_bytes=16 * 1024,
        snapshot_items=20,
        topics=(TopicPlan("a", {"max_entries": 30}),),
        victim=3,
    )
    if kind in HOUSE:  # a fourth machine, that has no vote at first
        edges = (*plan.edges, (2, 4), (3, 4))
        plan = attrs.evolve(plan, machines=4, edges=edges, observers=(4,))

    outcome = run_seed(3, plan)

    assert outcome.ok, outcome
    assert outcome.counts["fault"] >= 1
    assert kind not in HOUSE or outcome.counts["wish done"] > 3


def test_where_clocks_are_apart_entries_grow_old_by_the_time_of_the_row() -> None:
    """It is the slower clock's, where another machine stays dead."""
    plan = ClusterPlan(
        seconds=4.0,
        producers=2,
        consumers=1,
        gap=0.3,
        faults=("skew",),
        hands=2,
        tempo=0.4,
        stays_dead=True,
        topics=(TopicPlan("a", {"max_age": 2_000_000}),),
    )

    outcome = run_seed(1, plan)

    assert outcome.ok, outcome


def test_what_grows_too_old_while_nothing_runs_has_time_to_go_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def restart_slowly(run: cluster_scenario._Run) -> None:
        for machine in run.machines.values():
            machine.kill(bridge=True, node=True)
        await trio.sleep(10.0)
        for machine in run.machines.values():
            machine.start()

    monkeypatch.setattr(cluster_scenario._Run, "_restart", restart_slowly)
    plan = attrs.evolve(
        QUIET,
        topics=(TopicPlan("a", {"max_age": 5_000_000}),),
        delays=dict.fromkeys(QUIET.edges, 0.08),
    )

    outcome = run_seed(1, plan)

    assert outcome.ok, outcome


def test_it_is_not_calm_before_what_was_damaged_is_whole_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader met damage of nine seconds ago, and waited as long as the image took (seed 905370)."""
    damaged, left = list[int](), list[int]()
    first_probe, begin_calm = _Run._probe, _Run._go_elsewhere

    async def probe(run: _Run) -> None:
        damaged.append(run.seen.flips)
        await first_probe(run)

    async def go_elsewhere(run: _Run) -> None:
        left.append(run.seen.flips)
        await begin_calm(run)

    monkeypatch.setattr(_Run, "_probe", probe)
    monkeypatch.setattr(_Run, "_go_elsewhere", go_elsewhere)
    plan = attrs.evolve(QUIET, faults=("node-flip",), tempo=0.3, snapshot_items=5, victim=3)

    for seed in range(1, 20):  # until one meets it
        damaged.clear()
        left.clear()
        outcome = run_seed(seed, plan)
        assert outcome.ok, outcome
        assert left == [0]
        if damaged[0]:
            return
    pytest.fail("no seed has damage when all is healed")


def test_who_knows_only_a_machine_without_a_vote_produces_at_another_one_in_the_end() -> None:
    plan = ClusterPlan(
        seconds=2.0,
        calm=1.0,
        producers=6,
        gap=0.3,
        doors=1,
        machines=4,
        edges=((1, 2), (1, 3), (2, 3), (3, 4)),
        observers=(4,),
    )

    outcome = run_seed(1, plan)

    assert outcome.ok, outcome
    assert outcome.counts["elsewhere"] >= 1


def test_a_guest_holds_nodes_to_what_they_say_to_whoever_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In 30 seeds nobody asked for what is ordered already, and whoever was told `accepted` stayed."""
    histories = list[History]()

    def judged(history: History) -> Report:
        histories.append(history)
        return check(history)

    monkeypatch.setattr(cluster_scenario, "check", judged)
    plan = attrs.evolve(QUIET, seconds=8.0, guests=1, faults=("isolate",), tempo=0.3)

    outcome = run_seed(1, plan)

    assert outcome.ok, outcome
    (history,) = histories
    accepted = [made for made in history.produces if made.accepted_at]
    assert {made.outcome for made in accepted} == {"ok"}, "asked for later, the rest in the end"
    assert sum(made.outcome == "ok" for made in history.produces if made.process == "g0") > 1
    assert sum(pull.at_least > 0 for pull in history.pulls) > 1


def test_entries_whose_time_goes_back_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """On all nodes alike, so their states agree."""
    monkeypatch.setattr(numbering, "entry_time", lambda _state, _latest, time: time)
    plan = attrs.evolve(QUIET, producers=3, gap=0.05, faults=("skew",), tempo=0.3)

    assert run_seed(1, plan).kinds == ["time-back"]


def test_an_entry_that_has_another_time_at_one_node_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of a node says when, and no state has it."""
    append, stores = Numbers.append, dict[bytes, int]()

    def late(numbers: Numbers, *appended: Any) -> None:
        topic_id, partition, first, count, time, *where = appended
        time += 0 if stores.setdefault(numbers.store, len(stores)) else 1
        append(numbers, topic_id, partition, first, count, time, *where)

    monkeypatch.setattr(Numbers, "append", late)

    assert run_seed(1, QUIET).kinds == ["entry-differs"]


def test_who_is_not_answered_in_calm_times_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else he is told of a doubt when he has lost patience, and a doubt is nothing wrong."""
    answer, count = Calls.answer, [0]

    def lossy(calls: Calls, told: Answer) -> None:
        count[0] += 1
        if count[0] % 20:
            answer(calls, told)

    monkeypatch.setattr(Calls, "answer", lossy)
    plan = attrs.evolve(QUIET, calm=3.0)

    assert "stuck-produce" in run_seed(1, plan).kinds


def test_who_is_refused_in_calm_times_was_refused_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, so that he waited for nothing, and a node may refuse when it can do nothing."""
    come_to, count = Reads._come_to, [0]

    async def weary(reads: Reads, read: Any, position: int) -> None:
        count[0] += 1
        if not count[0] % 5:
            raise NoQuorum("come again")
        await come_to(reads, read, position)

    monkeypatch.setattr(Reads, "_come_to", weary)
    plan = attrs.evolve(QUIET, calm=3.0, doors=1)

    assert run_seed(1, plan).kinds == ["refused-in-calm"]


def test_an_operator_lets_a_witness_play_the_part_of_a_witness_alone() -> None:
    """It has no node: as a member it would never tell its clock; nor does the node of a new witness go on."""
    asked: list[Mapping[str, Any]] = []
    plan = ClusterPlan(witnesses=(3, 5), machines=5, observers=(4, 5))
    world = World(1)

    class Listening(Operator):
        def view(self) -> View:
            voters = tuple((id_, 1, b"", id_ != 3) for id_ in (1, 2, 3))
            return View(1, (), b"", 0, "fsync", voters=voters)

        def _ask(self, what: str, asks: Mapping[str, Any], rng: random.Random) -> None:
            asked.extend([asks] if what == "replace" else [])

    operator, rng = Listening(world, plan, Observed(plan), {}), world.rng("wishes")
    for _ in range(200):
        operator.wish(rng)

    pairs = {(asks["node"], asks["instead_of"]) for asks in asked}
    assert pairs == {("m4", "m1"), ("m4", "m2"), ("m5", "m3")}


def test_the_seeds_draw_every_shape_level_and_fault() -> None:
    plans = [drawn(random.Random(seed)) for seed in range(300)]

    assert {plan.shape for plan in plans} == {*SHAPES}
    assert {plan.machines for plan in plans} == {3, 4, 5}
    kinds = {kind for plan in plans for kind in plan.faults}
    assert kinds == {*KINDS, *DAMAGE, *HOUSE, SETTINGS}
    assert {plan.level for plan in plans} == {"fsync", "write", "memory"}
    assert any(plan.stays_dead for plan in plans)
    assert any(plan.witnesses for plan in plans)
    assert any(plan.weights for plan in plans)
    assert any(plan.observers for plan in plans)
    assert any(plan.standby for plan in plans)


def test_where_somebody_may_need_an_image_the_others_keep_little_of_the_row() -> None:
    """Of 30 seeds one had an image: a run is short, and mostly all of it was kept."""
    plans = [drawn(random.Random(seed)) for seed in range(300)]
    forgotten = [plan for plan in plans if {*plan.faults} & {*FORGOTTEN}]

    assert len(forgotten) > 30
    assert {(plan.segment_bytes, plan.followable_bytes) for plan in forgotten} == {(16384, 16384)}
    assert len({plan.segment_bytes for plan in plans}) == 3


def test_what_a_seed_takes_from_a_cluster_leaves_a_majority_that_has_everything() -> None:
    """Damage, dead machines and changes of the votes come one at a time: each takes what has to be left."""
    for seed in range(1000):
        plan = drawn(random.Random(seed))
        takes = [plan.victim > 0, plan.stays_dead, bool({*plan.faults} & {*HOUSE})]
        assert sum(takes) <= 1
        assert plan.victim or not {*plan.faults} & {*DAMAGE}
        if plan.victim:
            others = [i for i in plan.ids if i != plan.victim]
            assert 2 * sum(map(plan.weight, others)) > sum(map(plan.weight, plan.ids))
            assert {*others} - {*plan.witnesses}
            assert plan.victim not in plan.witnesses


def test_whose_disk_may_be_hurt_is_never_the_only_one_that_has_what_was_ordered() -> None:
    """With a witness it had been a majority, went on alone, and was wiped (seed 900935)."""
    seeds = range(2000)
    plans = [plan for seed in seeds if (plan := drawn(random.Random(seed))).victim]
    assert any(plan.witnesses and plan.machines == 3 for plan in plans)
    for plan in plans:
        alone = [plan.victim, *plan.witnesses]  # keep no other copy
        assert 2 * sum(map(plan.weight, alone)) <= sum(map(plan.weight, plan.ids))


async def until_it_may_forget(fate: ClusterFate, machine: Machine) -> None:
    """All is healed, and another one has all that it has."""
    fate.heal_net()
    fate.revive()
    with trio.fail_after(10):
        while not fate._may_forget(machine):
            await trio.sleep(0.1)


def test_nobody_loses_its_memory_beside_a_machine_whose_disk_has_failed() -> None:
    """That one is about to end, and at this level to forget what both have acked (seed 905158)."""
    world = World(1)
    run = cluster_scenario._Run(world, attrs.evolve(QUIET, level="memory"))
    fate, machine, other = run.hands[0], run.machines[1], run.machines[2]

    async def script(_: World) -> None:
        await until_it_may_forget(fate, machine)
        assert other.bridge is not None
        store = other.bridge.store
        other.bridge_host.media.write_eio = 1
        with pytest.raises(DiskFailed):
            await store.seal(store.segments()[-1].number)
        assert other.active
        assert not other.bridge_host.media.is_armed
        assert not fate._may_forget(machine)

    world.run(script)


@pytest.mark.parametrize("witnesses", [(), (3,)])
def test_nobody_loses_its_memory_beside_the_only_other_copy_while_that_is_damaged(
    witnesses: tuple[int, ...],
) -> None:
    """That one had not met the damage, and called itself exact (seed 920329)."""
    world = World(1)
    plan = attrs.evolve(QUIET, level="memory", victim=2, weights=(2, 1, 1), witnesses=witnesses)
    run = cluster_scenario._Run(world, plan)
    fate, machine, victim = run.hands[0], run.machines[1], run.machines[2]

    async def script(_: World) -> None:
        await until_it_may_forget(fate, machine)
        run.seen.flips += 1
        media = victim.bridge_host.media
        for path in ("row/reserve", "row/00000001.seg"):
            assert fate._may_forget(machine), "of what is in the row nothing is damaged"
            pages = media.pages(path)
            pages.sync(pages.count)
            media.spoil(path, 0)
            assert pages.bad
        assert victim.bridge is not None
        assert victim.bridge.member.standing.exact, "nobody has read it"
        assert fate._may_forget(machine) is not bool(witnesses)
        victim.bridge.repair.suspect(await victim.bridge.store.scrub())
        with trio.fail_after(10):
            while victim.is_damaged or not fate._may_forget(machine):
                await trio.sleep(0.1)

    world.run(script)


def test_each_time_a_bridge_cannot_read_its_disk_somebody_copies_what_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More of it became unreadable before it had started again, and then it never did."""
    world = World(1, tolerate=ENDS)
    machine = cluster_scenario._Run(world, QUIET).machines[1]

    async def fails(*_: object) -> Bridge:
        raise DiskFailed("it cannot be read")

    async def script(_world: World) -> None:
        machine.start()
        await trio.sleep(0.1)
        machine.kill(bridge=True)
        monkeypatch.setattr(Bridge, "open", fails)
        media = machine.bridge_host.media
        path = next(path for path in media.paths() if path.endswith(".seg"))
        pages = media.pages(path)
        for _ in range(2):
            pages.sync(pages.count)
            media.spoil(path, 0)
            assert pages.bad
            for _ in range(UNREAD_STARTS):
                machine.start()
                await trio.sleep(0.1)
            assert not pages.bad

    world.run(script)


@pytest.mark.parametrize("how", ["it is told to", "its disk fails"])
def test_when_all_is_healed_a_machine_without_a_vote_that_is_about_to_end_is_started_again(
    how: str,
) -> None:
    """Its disk was slow, so it ended when all others had ordered, and was then to be added (seed 905462)."""
    world = World(1, tolerate=ENDS)
    edges = (*QUIET.edges, (2, 4))
    run = cluster_scenario._Run(world, attrs.evolve(QUIET, machines=4, edges=edges, observers=(4,)))
    fate, machine = run.hands[0], run.machines[4]
    host = machine.bridge_host

    async def script(_: World) -> None:
        fate.heal_net()
        fate.revive()
        with trio.fail_after(10):
            while not (machine.up and all(run.machines[id_].active for id_ in (1, 2, 3))):
                await trio.sleep(0.1)
        host.media.sync_latency = 3.0
        if how == "its disk fails":
            host.media.sync_eio = 1
            assert machine.bridge is not None
            store = machine.bridge.store
            await store.seal(store.segments()[-1].number)  # which has the bridge sync it
            with trio.fail_after(10):
                while not machine.disk_failed:
                    await trio.sleep(0.1)
        else:
            machine.leave()

        await run._probe()

        assert not machine.is_ending
        assert (host.alive, host.starts) == (True, 2)
        assert not run.seen.problems

    world.run(script)


@pytest.mark.parametrize(
    ("awaits", "stream_bytes", "kinds"),
    [(3.0, 4096, []), (0.0, 4096, ["slow-heal"]), (3.0, WINDOW, ["slow-heal"])],
)
def test_who_gets_an_image_over_a_link_that_carries_little_has_five_seconds_from_then_on(
    monkeypatch: pytest.MonkeyPatch, awaits: float, stream_bytes: int, kinds: list[str]
) -> None:
    """All of a row of 240 KB came at 80 KB a second, beside what else went over that link (seed 1000116)."""
    world = World(1, tolerate=ENDS)
    run = cluster_scenario._Run(world, attrs.evolve(QUIET, stream_bytes=stream_bytes))

    async def orders_late(*_: object) -> None:
        await trio.sleep(6.0)

    def is_awaited(machine: Machine) -> bool:
        return machine.id == 1 and trio.current_time() < awaits

    async def script(_: World) -> None:
        run.hands[0].heal_net()
        run.hands[0].revive()
        await run._probe()

    monkeypatch.setattr(Machine, "awaits_image", property(is_awaited))
    monkeypatch.setattr(_Run, "_order", orders_late)
    world.run(script)
    told = [problem.split(": ", 1) for problem in run.seen.problems]
    assert [kind for kind, text in told if text.startswith("n1 ")] == kinds
    assert len(told) == 2 + len(kinds)


@pytest.mark.parametrize(("lacks_until", "kinds"), [(3.0, []), (0.3, ["slow-heal"])])
def test_what_was_ordered_until_an_image_had_come_takes_its_time_over_a_link_that_carries_little(
    monkeypatch: pytest.MonkeyPatch, lacks_until: float, kinds: list[str]
) -> None:
    """It was more than the image, and what is ordered later counts no more (seed 1040272)."""
    world = World(1, tolerate=ENDS)
    run = cluster_scenario._Run(world, attrs.evolve(QUIET, stream_bytes=4096))

    async def orders_late(*_: object) -> None:
        await trio.sleep(6.0)

    def position(machine: Machine) -> int:
        return 9 if machine.id == 1 and trio.current_time() < lacks_until else 10

    async def script(_: World) -> None:
        run.hands[0].heal_net()
        run.hands[0].revive()
        await run._probe()

    is_awaited = property(lambda machine: machine.id == 1 and trio.current_time() < 0.3)
    monkeypatch.setattr(Machine, "awaits_image", is_awaited)
    monkeypatch.setattr(Machine, "position", property(position))
    monkeypatch.setattr(_Run, "_order", orders_late)
    world.run(script)
    told = [problem.split(": ", 1) for problem in run.seen.problems]
    assert [kind for kind, text in told if text.startswith("n1 ")] == kinds


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


@pytest.mark.parametrize("shape", SHAPES)
def test_the_links_of_every_shape_connect_all_machines(shape: str) -> None:
    for machines in (3, 4, 5):
        edges = links(shape, machines, (), random.Random(1))
        plan = ClusterPlan(machines=machines, edges=edges)
        assert plan.connected(list(plan.ids))


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_an_hour_of_fresh_seeds_shows_no_anomaly() -> None:
    assert fuzz.main(["--cluster", "--hours", "1"]) == 0


def test_damage_that_no_start_meets_keeps_nobody_from_being_counted() -> None:
    """The newest segment is lost, so what is there of the view is counted again, behind an index that is whole."""
    outcome = run_seed(730_205)

    assert outcome.ok, outcome


def test_a_node_that_ends_while_it_asks_a_bridge_that_has_ended_ends() -> None:
    outcome = run_seed(720_162)

    assert outcome.ok, outcome


def test_a_node_that_asks_for_the_old_row_while_an_image_becomes_durable_is_no_defect() -> None:
    outcome = run_seed(1_030_060)

    assert outcome.ok, outcome
