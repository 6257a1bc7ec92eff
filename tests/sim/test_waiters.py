"""Blocking pulls: nobody polls, nobody sleeps through an entry, nobody leaves anything behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from core.library import Library, read
from duckrow.node.cursors import LAST, Back, Cursor
from duckrow.node.errors import Conflict, NotFound
from duckrow.node.pulled import Pulled
from duckrow.node.waiters import ALL, Waiters
from sim.clock import SimClock, seeded_scheduler

T = TypeVar("T")


class Steps(trio.abc.Instrument):
    """Counts the turns that tasks get; may cancel a scope at one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.watched: trio.lowlevel.Task | None = None
        self.scope: trio.CancelScope | None = None
        self.cancel_at = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.watched is None or task is self.watched:
            self.count += 1
            if self.scope is not None and self.count == self.cancel_at:
                self.scope.cancel()


def run(main: Callable[[], Awaitable[T]], seed: int = 0, steps: Steps | None = None) -> T:
    with seeded_scheduler(seed):
        return trio.run(main, clock=SimClock(), instruments=[steps] if steps else [])


def nobody(waiters: Waiters) -> bool:
    now = waiters.statistics()
    return now.waiting == now.topics == 0


def test_a_pull_waits_for_an_entry_and_gets_it_in_the_moment_it_comes() -> None:
    library = Library()

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                await trio.sleep(7.25)
                library.add(count=3)

            nursery.start_soon(produce)
            pulled = await library.pull(wait=100)
            assert trio.current_time() == 7.25
            assert read(pulled) == library.there()

    run(main)
    assert nobody(library.waiters)


def test_a_pull_that_waited_in_vain_is_empty() -> None:
    library = Library()
    library.add(count=3)

    async def main() -> Pulled:
        pulled = await library.pull(after=3, wait=2.5)
        assert trio.current_time() == 2.5
        return pulled

    pulled = run(main)
    assert (pulled.batches, pulled.missing, pulled.after) == ([], 0, Cursor({0: 3}))
    assert nobody(library.waiters)


def test_nobody_is_woken_but_those_of_the_topic_and_the_partition() -> None:
    library = Library()
    for topic in ("t", "u"):
        library.create(topic, partitions=2)
    woken: list[tuple[str, int | None]] = []

    async def reader(topic: str, partition: int | None) -> None:
        await library.pull(topic, LAST, partition=partition, wait=1_000)
        woken.append((topic, partition))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for topic in ("t", "u", "later"):
                for partition in (None, 0, 1):
                    nursery.start_soon(reader, topic, partition)
            await trio.sleep(1)
            assert library.waiters.statistics().waiting == 9
            library.add("t", partition=1)
            await trio.sleep(1)
            assert sorted(woken, key=str) == [("t", 1), ("t", None)]
            assert library.waiters.statistics().woken == 2
            library.add("later")
            await trio.sleep(1)
            # The partition that it waited for is not one: the topic has a single one.
            nursery.cancel_scope.cancel()

    with pytest.raises(ExceptionGroup) as caught:
        run(main)
    assert caught.group_contains(NotFound, match="not 1")
    assert sorted(woken[2:], key=str) == [("later", 0), ("later", None)]
    assert nobody(library.waiters)


def test_ten_thousand_wait_at_once_and_none_costs_anything_until_its_topic_gets_something() -> None:
    library = Library()
    steps = Steps()
    got: dict[str, int] = {}

    async def reader(topic: str) -> None:
        pulled = await library.pull(topic, wait=10_000)
        got[topic] = got.get(topic, 0) + len(read(pulled))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for topic in range(1_000):
                for _ in range(10):
                    nursery.start_soon(reader, f"t{topic}")
            await trio.sleep(1)
            assert library.waiters.statistics().waiting == 10_000
            before = steps.count
            await trio.sleep(1_000)
            assert steps.count - before <= 3
            before = steps.count
            library.add("t77", count=2)
            library.add("elsewhere")
            await trio.sleep(1)
            # A turn to wake, perhaps one to end and tell the nursery.
            assert steps.count - before <= 10 * 3 + 3
            assert got == {"t77": 20}
            for topic in range(1_000):
                library.add(f"t{topic}")

    run(main, steps=steps)
    assert got == {f"t{n}": 20 if n == 77 else 10 for n in range(1_000)}
    assert nobody(library.waiters)


def cancelled_at(turn: int, *, cached: bool) -> tuple[int, list[Pulled]]:
    """A pull waits, is woken in vain twice, then reads; it is cancelled at one of its turns.

    Returns the turns that it got, and what it pulled, if it came so far.
    """
    library = Library(cached=cached)
    library.create(partitions=1)
    steps = Steps()
    steps.cancel_at = turn
    pulled: list[Pulled] = []

    async def reader() -> None:
        with trio.CancelScope() as scope:
            steps.watched, steps.scope, steps.count = trio.lowlevel.current_task(), scope, 0
            pulled.append(await library.pull(after=2, wait=60))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            for _ in range(4):
                await trio.sleep(1)
                library.add()

    run(main, steps=steps)
    assert nobody(library.waiters)
    library.waiters.wake("t", 0)
    assert [fact.number for each in pulled for fact in read(each)] in ([], [3])
    return steps.count, pulled


@pytest.mark.parametrize(("cached", "least"), [(True, 3), (False, 5)])
def test_cancelled_at_any_checkpoint_a_pull_leaves_nothing_behind(cached: bool, least: int) -> None:
    turns, pulled = cancelled_at(1_000, cached=cached)
    assert pulled
    assert turns >= least
    for turn in range(1, turns + 1):
        cancelled_at(turn, cached=cached)


def test_a_wait_that_is_cancelled_while_it_is_woken_is_forgotten_too() -> None:
    waiters = Waiters()

    async def waiter(scope: trio.CancelScope) -> None:
        with scope:
            await waiters.wait("t")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in range(3)]
            for scope in scopes:
                nursery.start_soon(waiter, scope)
            await trio.sleep(1)
            waiters.wake("t", 5)
            for scope in scopes:
                scope.cancel()
        assert nobody(waiters)
        with trio.CancelScope() as scope:
            scope.cancel()
            await waiters.wait("t", 1)
        assert scope.cancelled_caught
        assert nobody(waiters)

    run(main)


def test_one_who_waits_again_at_once_is_not_lost_among_those_who_leave() -> None:
    waiters = Waiters()
    woken = [0, 0, 0]

    async def waiter(index: int, times: int) -> None:
        for _ in range(times):
            await waiters.wait("t", ALL if index else 0)
            woken[index] += 1

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for index, times in enumerate((5, 3, 1)):
                nursery.start_soon(waiter, index, times)
            for _ in range(5):
                await trio.sleep(1)
                waiters.wake("t", 0)

    for seed in range(20):
        woken[:] = [0, 0, 0]
        run(main, seed)
        assert woken == [5, 3, 1]
        assert nobody(waiters)


def test_a_topic_may_be_created_deleted_and_created_again_while_one_waits_for_it() -> None:
    library = Library()
    results: dict[str, Any] = {}

    async def reader(name: str, **ask: Any) -> None:
        try:
            results[name] = await library.pull(wait=50, **ask)
        except Conflict as error:
            results[name] = error

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: reader("before"))
            await trio.sleep(1)
            library.create()
            nursery.start_soon(lambda: reader("first", after=10))
            await trio.sleep(1)
            library.delete()
            await trio.sleep(1)
            # Both had seen it, and numbers of another topic mean nothing.
            assert all(isinstance(results[name], Conflict) for name in ("before", "first"))
            nursery.start_soon(lambda: reader("second", after=LAST))
            nursery.start_soon(lambda: reader("third", after=Back(5)))
            await trio.sleep(1)
            library.add(count=2)

    run(main)
    assert read(results["second"]) == read(results["third"]) == library.there()
    assert nobody(library.waiters)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 30), st.data())
def test_no_wake_up_is_lost_whatever_runs_first(seed: int, data: st.DataObject) -> None:
    """Readers follow while entries come, one by one or in bursts; the schedule is drawn."""
    library = Library(cached=data.draw(st.booleans()))
    library.create(partitions=2)
    plan = data.draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=20))
    follows = data.draw(st.lists(st.sampled_from([None, 0, 1]), min_size=1, max_size=5))
    got: list[list[Any]] = [[] for _ in follows]

    async def follow(index: int, partition: int | None) -> None:
        after: Any = 0
        while True:
            pulled = await library.pull(after=after, partition=partition, limit=3, wait=1_000)
            assert pulled.batches, "woken for nothing, or not at all"
            got[index] += read(pulled)
            after = pulled.after
            if data.draw(st.booleans()):
                await trio.lowlevel.checkpoint()

    async def produce(own: list[tuple[int, int]]) -> None:
        for partition, pause in own:
            for _ in range(pause):
                await trio.lowlevel.checkpoint()
            library.add(partition=partition)

    async def main() -> None:
        async with trio.open_nursery() as readers:
            for index, partition in enumerate(follows):
                readers.start_soon(follow, index, partition)
            async with trio.open_nursery() as producers:
                producers.start_soon(produce, plan[::2])
                producers.start_soon(produce, plan[1::2])
            await trio.sleep(1)
            for index, partition in enumerate(follows):
                assert got[index] == library.there(partition=partition)
            readers.cancel_scope.cancel()

    run(main, seed)
    assert nobody(library.waiters)
