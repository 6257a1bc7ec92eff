"""What the scenario of a cluster asks for in the end: that a majority goes on while the others cannot be reached,
that nodes say of themselves what is so, and that receipts are honoured.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from duckrow.bridge.suspicion import Suspicion
from duckrow.node.effects import WAITING, Result
from duckrow.node.lanes import remembered
from duckrow.node.server import Server

from .cluster_audit import Audit
from .cluster_plan import ClusterPlan
from .cluster_scenario import AWAY, _Run, run_seed
from .scenario import ENDS
from .world import World

QUIET = ClusterPlan(seconds=2.0, calm=1.0, producers=1, consumers=1, gap=0.2, doors=3)


def without(how: str) -> list[str]:
    """What is said of a cluster of which a third goes away in this way."""
    world = World(1, tolerate=ENDS)
    run = _Run(world, QUIET)

    async def script(_: World) -> None:
        run.hands[0].heal_net()
        run.hands[0].revive()
        await run._probe()
        assert not run.seen.problems
        await run._go_on_without([3], how)
        for hand in run.hands:
            hand.calm()
        await run._probe()

    world.run(script)
    return [problem for problem in run.seen.problems if "without [3]" in problem]


@pytest.mark.parametrize("how", AWAY)
def test_a_majority_goes_on_while_the_others_cannot_be_reached(how: str) -> None:
    assert without(how) == []


@pytest.mark.parametrize("how", AWAY)
def test_a_majority_that_waits_for_who_cannot_be_reached_is_met(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """In 5 seeds whose faults cut or pause machines nothing was: all was healed before anybody looked."""
    monkeypatch.setattr(Suspicion, "silent", lambda *_: False)
    monkeypatch.setattr(Suspicion, "_stalling", lambda *_: set())

    assert len(without(how)) == 2


def test_some_seeds_go_on_without_machines_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then those are there again, or die."""
    gone = list[str]()
    go_on = _Run._go_on_without

    async def going_on(run: _Run, minority: list[int], how: str) -> None:
        await go_on(run, minority, how)
        gone.append(how)

    monkeypatch.setattr(_Run, "_go_on_without", going_on)
    for seed in range(1, 9):
        outcome = run_seed(seed, attrs.evolve(QUIET, stays_dead=True))
        assert outcome.ok, outcome
    assert 0 < len(gone) < 8


def test_a_node_that_says_something_else_of_its_state_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = Server._status

    def lying(server: Server, hashed: int, hash_: bytes) -> object:
        return status(server, hashed, bytes(16) if server.options.name == "n2" else hash_)

    monkeypatch.setattr(Server, "_status", lying)

    assert run_seed(1, QUIET).kinds == ["verify"]


def accepted(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = lambda: None
) -> list[str]:
    """What is said where a guest was told `accepted` by machines that were cut off; how often it was."""
    count, audit = list[int](), Audit.run

    async def run(audited: Audit) -> None:
        count.append(sum(bool(made.accepted_at) for made, _ in audited._seen.receipts))
        before()
        await audit(audited)

    monkeypatch.setattr(Audit, "run", run)
    plan = attrs.evolve(QUIET, seconds=8.0, guests=1, faults=("isolate",), tempo=0.3)

    outcome = run_seed(1, plan)

    assert count[0] > 1
    return outcome.kinds


def test_receipts_are_honoured_after_a_restart_at_any_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accepted(monkeypatch) == []


def test_a_receipt_that_says_for_ever_that_it_waits_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 5 seeds all of them did, and nothing was met."""

    def lie() -> None:
        monkeypatch.setattr("duckrow.node.reads.remembered", lambda *_: Result(WAITING))

    assert accepted(monkeypatch, lie) == ["receipt-waits"]


def test_a_receipt_that_says_another_number_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie() -> None:
        def off_by_one(*asked: object) -> Result:
            found = remembered(*asked)  # type: ignore[arg-type]
            return found._replace(first=found.first + 1)

        monkeypatch.setattr("duckrow.node.reads.remembered", off_by_one)

    kinds = accepted(monkeypatch, lie)

    assert {"wrong-receipt", "duplicate"} & {*kinds}


def test_an_audit_that_nobody_answers_comes_to_an_end() -> None:
    world = World(1)
    run = _Run(world, QUIET)

    async def script(_: World) -> None:
        await Audit(world, run.seen, ["n1"], (), world.rng("audit")).run()

    world.run(script)
    assert [problem.split(":")[0] for problem in run.seen.problems] == ["audit"]
