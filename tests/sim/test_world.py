"""The world itself: what a seed decides, life and death, stops, deadlocks, time."""

from __future__ import annotations

import inspect

import pytest
import trio
from trio._core import _run

from duckrow.node.env import Env
from sim.alone import EPOCH_US
from sim.clock import SimDeadlock, sleep
from sim.park import SimCrashed, leaves
from sim.trace import Trace
from sim.world import World


def test_trio_still_has_the_private_switches() -> None:
    assert isinstance(_run._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert _run._r.getstate()
    assert "batch.sort(key=lambda t: t._counter)" in inspect.getsource(_run)
    assert "_r.shuffle(batch)" in inspect.getsource(_run)


async def chatter(env: Env) -> None:
    """Everything at once: a server, a client of the other host, a file."""
    file = await env.disk.open("log", create=True)
    peer = {"a": "b", "b": "a"}[env.name]

    async def serve(stream: trio.abc.Stream) -> None:
        while data := await stream.receive_some():
            file.write(file.size, [data])
            await file.sync()
            await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        await nursery.start(env.net.serve, serve, 1)
        while True:
            await trio.sleep(env.rng.random())
            try:
                async with await env.net.connect(peer, 1) as stream:
                    await stream.send_all(bytes(env.rng.randrange(1, 3000)))
                    await stream.receive_some()
            except (OSError, trio.BrokenResourceError):
                pass


async def rough_times(world: World) -> None:
    world.start("a", chatter)
    world.start("b", chatter)
    await trio.sleep(2)
    world.kill("a", power=True)
    await trio.sleep(1)
    world.start("a", chatter)
    world.net.isolate("b")
    await trio.sleep(1)
    world.net.heal()
    world.pause("b")
    await trio.sleep(1)
    world.resume("b")
    world.kill("b")
    world.start("b", chatter)
    await trio.sleep(2)


def run(seed: int) -> World:
    world = World(seed, keep_trace=True)
    world.run(rough_times)
    return world


def test_a_seed_is_one_run_and_another_seed_another() -> None:
    first, second, other = run(1), run(1), run(2)

    assert first.trace.text() == second.trace.text()
    assert first.trace.digest() == second.trace.digest()
    assert first.trace.digest() != other.trace.digest()
    assert first.steps == second.steps > 100


def test_the_trace_tells_steps_messages_disk_operations_and_faults() -> None:
    kinds = {line.split()[1] for line in run(1).trace.text()}

    assert kinds >= {"task", "step", "start", "dial", "data", "fin", "write", "sync", "create"}
    assert kinds >= {"power", "kill", "pause", "resume"}


def test_a_stream_of_chance_does_not_depend_on_draws_from_another() -> None:
    one, two = World(5), World(5)
    one.rng("media", "a").random()

    assert one.rng("net").random() == two.rng("net").random()
    assert one.rng("net").random() != one.rng("media", "a").random()


def test_a_world_where_nothing_will_happen_any_more_says_so() -> None:
    async def main(_world: World) -> None:
        await trio.sleep(3)
        await trio.Event().wait()

    with pytest.raises(SimDeadlock, match=r"at 3\.0"):
        World(1).run(main)


def test_what_does_not_end_when_all_is_over_is_named() -> None:
    async def program(_env: Env) -> None:
        with trio.CancelScope(shield=True):
            await trio.Event().wait()

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)

    with pytest.raises(SimDeadlock, match="told to end, these go on: process a"):
        World(1).run(main)


def test_what_went_wrong_is_told_also_where_somebody_never_ends() -> None:
    async def program(_env: Env) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)
        raise ValueError("this")

    with pytest.raises(ExceptionGroup) as found:
        World(1).run(main)
    told = [type(leaf) for leaf in leaves(found.value)]
    assert ValueError in told, told


def test_time_jumps_exactly_to_what_is_next_and_timers_come_in_order() -> None:
    seen: list[object] = []

    async def main(world: World) -> None:
        world.clock.call_at(0.3, seen.append, "second")
        world.clock.call_at(0.1, seen.append, "first")
        world.clock.call_at(0.3, seen.append, "third")
        await trio.sleep(0.2)
        seen.append(trio.current_time())
        await trio.sleep_until(86_400.7)
        seen.append(trio.current_time())

    World(1).run(main)

    assert seen == ["first", 0.2, "second", "third", 86_400.7]


def test_a_delay_of_the_world_can_be_cancelled_and_ends_in_time() -> None:
    async def main(_world: World) -> None:
        with trio.move_on_after(1) as scope:
            await sleep(5)
        assert scope.cancelled_caught
        assert trio.current_time() == 1.0
        await sleep(1.5)
        assert trio.current_time() == 2.5
        await trio.sleep(5)  # past the moment of the timer that nobody waits for any more

    World(1).run(main)


def test_a_killed_process_touches_nothing_whatever_its_cleanup_does() -> None:
    world = World(4)

    async def program(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
                file.write(0, [b"last words"])

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)
        world.kill("a")
        await trio.sleep(1)

    world.run(main)

    assert world.host("a").media.content("log") == b""
    assert world.host("a").exits == []


def test_a_crash_point_kills_the_process_and_its_disk_can_be_opened_again() -> None:
    world = World(4)
    seen: list[bytes] = []

    async def program(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        seen.append(await file.read(0, 9))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            file.write(file.size, [b"x"])
            file.write(file.size, [b"y"])

    async def main(world: World) -> None:
        world.host("a").media.crash_before(3)
        world.start("a", program)
        await trio.sleep(1)
        assert not world.host("a").alive
        world.start("a", program)
        await trio.sleep(1)
        assert world.host("a").alive

    world.run(main)

    assert seen == [b"", b"x"]


def test_a_crash_point_may_be_a_power_loss() -> None:
    world = World(4)
    boots: list[str] = []

    async def program(env: Env) -> None:
        boots.append(env.boot_id)
        await env.disk.open("log", create=True)
        await trio.sleep(1)

    async def main(world: World) -> None:
        world.host("a").media.crash_before(1)
        world.host("a").crash_is_power_loss = True
        world.start("a", program)
        await trio.sleep(1)
        assert not world.host("a").powered
        world.start("a", program)
        await trio.sleep(0.5)
        world.kill("a")
        world.start("a", program)
        await trio.sleep(0.5)

    world.run(main)

    assert boots == ["a-boot-0", "a-boot-1", "a-boot-1"]


def test_calls_of_a_stopped_process_return_when_it_goes_on() -> None:
    times: list[float] = []

    async def program(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        while True:
            await trio.sleep(1)
            file.write(0, [b"as if a moment before the signal"])
            await file.sync()
            times.append(trio.current_time())

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1.5)
        world.pause("a")
        await trio.sleep(10)
        assert world.host("a").media.content("log").startswith(b"as if")
        world.resume("a")
        await trio.sleep(1.5)

    World(1).run(main)

    assert times == [1.0, 11.5, 12.5]


def test_a_process_that_is_stopped_again_at_once_stays_stopped() -> None:
    times: list[float] = []

    async def program(env: Env) -> None:
        await trio.sleep(1)
        await env.disk.names()
        times.append(trio.current_time())

    async def main(world: World) -> None:
        world.start("a", program)
        world.pause("a")
        await trio.sleep(5)
        for _ in range(5):
            world.resume("a")
            world.pause("a")
            await trio.sleep(1)
        world.resume("a")
        await trio.sleep(1)

    World(1).run(main)

    assert times == [10.0]


def test_a_crash_point_does_not_outlive_the_process_it_was_meant_for() -> None:
    async def program(env: Env) -> None:
        for _ in range(5):
            await env.disk.sync_names()
        await trio.sleep_forever()

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)
        world.host("a").media.crash_before(1)
        world.kill("a")
        world.start("a", program)
        await trio.sleep(1)
        assert world.host("a").alive
        assert world.host("a").media.operations == 10

    World(1).run(main)


def test_what_the_dead_raise_in_their_cleanup_nobody_hears() -> None:
    async def program(_env: Env) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("from the grave")

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)
        world.kill("a")
        await trio.sleep(1)
        assert world.host("a").exits == []

    World(1).run(main)


def test_equal_events_have_equal_digests_whatever_objects_they_are() -> None:
    one, two = Trace(), Trace()
    kind = "write"
    one.add((kind, kind, 1.0, 300, "log"))
    two.add(
        (
            str(b"write", "ascii"),
            kind[:3] + kind[3:],
            float("1"),
            int("300"),
            str(b"log", "ascii"),
        )
    )

    assert one.digest() == two.digest()


def test_a_stopped_process_can_be_killed() -> None:
    after: list[str] = []

    async def program(env: Env) -> None:
        await trio.sleep(1)
        await env.disk.open("log", create=True)
        after.append("not reached")

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(0.5)
        world.pause("a")
        await trio.sleep(1)
        world.kill("a")
        await trio.sleep(1)

    World(1).run(main)

    assert after == []


def test_wall_clocks_are_skewed_by_host_and_by_nothing_else() -> None:
    seen: dict[str, int] = {}

    async def program(env: Env) -> None:
        seen[env.name] = env.wall_us()
        await trio.sleep_forever()

    async def main(world: World) -> None:
        world.host("late").skew_us = -5_000_000
        world.start("right", program)
        world.start("late", program)
        await trio.sleep(1)

    World(1).run(main)

    assert seen == {"right": EPOCH_US, "late": EPOCH_US - 5_000_000}


def test_an_error_of_a_process_fails_the_run_unless_it_is_tolerated() -> None:
    async def program(env: Env) -> None:
        async with trio.open_nursery():
            raise LookupError(f"{env.name} failed")

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)
        assert not world.host("a").alive

    with pytest.raises(ExceptionGroup) as caught:
        World(1).run(main)
    assert caught.group_contains(LookupError, match="a failed")

    world = World(1, tolerate=(LookupError,))
    world.run(main)
    assert [str(error) for error in world.host("a").exits] == ["a failed"]


def test_a_deadlock_after_a_process_failed_tells_of_the_failure() -> None:
    async def program(env: Env) -> None:
        raise LookupError(f"{env.name} failed")

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        World(1).run(main)
    assert caught.group_contains(LookupError)
    assert caught.group_contains(SimDeadlock)


def test_a_failure_of_the_main_hand_after_a_process_failed_tells_of_both() -> None:
    """Seed 760075 said that topics cannot be made; who makes them had failed, of which nobody heard."""

    async def program(env: Env) -> None:
        raise LookupError(f"{env.name} failed")

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(1)
        raise ValueError("it takes too long")

    with pytest.raises(ExceptionGroup) as caught:
        World(1).run(main)
    told = [str(error) for error in caught.value.exceptions]
    assert told == ["a failed", "it takes too long"]


def test_a_failure_of_the_main_hand_ends_the_run() -> None:
    async def main(_world: World) -> None:
        raise LookupError("a check failed")

    with pytest.raises(LookupError, match="a check failed"):
        World(1).run(main)


def test_buggify_is_drawn_by_site_and_host_and_can_be_turned_off() -> None:
    active: dict[float, int] = {}

    async def main(world: World) -> None:
        hosts = [world.host(str(number)) for number in range(200)]
        active[world.buggify] = sum(host.env().buggify("site", 1.0) for host in hosts)

    for share in (0.0, 0.25, 1.0):
        World(1, buggify=share).run(main)

    assert active[0.0] == 0
    assert 20 < active[0.25] < 80
    assert active[1.0] == 200


def test_simcrashed_passes_through_code_that_catches_every_exception() -> None:
    passed: list[str] = []

    async def program(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        try:
            await trio.sleep(1)
            file.write(0, [b"x"])
        except Exception:  # noqa: BLE001 - the point of the test
            passed.append("caught")

    async def main(world: World) -> None:
        world.start("a", program)
        await trio.sleep(0.5)
        world.host("a").media.crash_before(1)
        await trio.sleep(1)
        assert not world.host("a").alive

    World(1).run(main)

    assert passed == []
    assert not issubclass(SimCrashed, Exception)
