"""The scenario of clusters itself: when it is calm, what it forgives, whom it lets die, and what it meets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio

from duckrow.bridge.process import Bridge
from duckrow.cluster.checker import check
from duckrow.cluster.history import History, Report
from duckrow.node import numbering
from duckrow.node.calls import Calls
from duckrow.node.effects import Answer
from duckrow.node.errors import DiskFailed, NoQuorum
from duckrow.node.numbers import Numbers
from duckrow.node.reads import Reads
from duckrow.node.row import View
from sim import cluster_scenario
from sim.cluster_faults import ClusterFate
from sim.cluster_machine import UNREAD_STARTS, Machine
from sim.cluster_operator import Operator
from sim.cluster_plan import ClusterPlan
from sim.cluster_scenario import _Run, run_seed
from sim.net import WINDOW
from sim.plan import TopicPlan
from sim.scenario import ENDS
from sim.workload import Observed
from sim.world import World

QUIET = ClusterPlan(seconds=2.0, calm=1.0, producers=1, consumers=1, gap=0.2, doors=3)


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

    kinds = run_seed(1, plan).kinds

    assert kinds == ["time-back", "wrong-place"], "nor are they found by their time"


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
    plan = attrs.evolve(QUIET, calm=6.0, producers=3)

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
