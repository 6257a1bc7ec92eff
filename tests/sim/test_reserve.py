"""The reserve on a disk: given up and made again, whenever whoever does it is cancelled."""

from __future__ import annotations

import pytest
import trio

from duckrow.node.env import Env
from duckrow.node.reserve import HARD, LAST, NAME, OK, Reserve
from sim.alone import Machine
from sim.storekit import small


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5])
def test_a_reserve_whose_giving_up_is_cancelled_is_there_still_or_gone_for_good(
    seconds: float,
) -> None:
    machine = Machine(1)

    async def main(env: Env) -> None:
        reserve = Reserve(env.disk, small())
        await reserve.open(blank=True)
        assert reserve.state == OK
        machine.media.latency = 1.0

        with trio.move_on_after(seconds):
            await reserve.give_up()

        gone = NAME not in machine.media.paths()
        assert gone == (seconds > 1.0)
        assert reserve.state == HARD
        assert await reserve.give_up() is not gone
        await reserve.restore()
        assert reserve.state == OK
        assert NAME in machine.media.paths()

    machine.run(main)


def test_of_two_who_give_the_reserve_up_at_once_one_gets_its_space() -> None:
    machine = Machine(1)

    async def main(env: Env) -> None:
        reserve, got = Reserve(env.disk, small()), list[bool]()
        await reserve.open(blank=True)
        machine.media.latency = 1.0

        async def give_up() -> None:
            got.append(await reserve.give_up())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            nursery.start_soon(give_up)

        assert sorted(got) == [False, True]

    machine.run(main)


def test_a_reserve_that_is_given_up_while_the_rest_is_made_is_made_again() -> None:
    machine = Machine(1)

    async def main(env: Env) -> None:
        reserve = Reserve(env.disk, small())
        await reserve.open(blank=True)
        assert await reserve.give_up()
        assert await reserve.give_up(last=True)
        machine.media.latency = 1.0

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reserve.restore)
            await trio.sleep(1.5)  # the one is there, the other is being made
            assert await reserve.give_up()

        assert (reserve.state, NAME in machine.media.paths()) == (HARD, False)
        await reserve.restore()
        assert (reserve.state, NAME in machine.media.paths()) == (OK, True)

    machine.run(main)


def test_what_was_given_up_is_not_taken_back_before_there_is_more_room() -> None:
    """The snapshot that it was given up for may take longer to write than it is looked at again."""
    machine = Machine(1)

    async def main(env: Env) -> None:
        options = small(soft_reserve_bytes=16 * 1024, hard_reserve_bytes=64 * 1024)
        reserve = Reserve(env.disk, options)
        await reserve.open(blank=True)
        machine.media.capacity = machine.media.used
        await reserve.give_up()

        await reserve.restore()
        assert (reserve.state, NAME in machine.media.paths()) == (HARD, False)

        machine.media.capacity += 32 * 1024
        await reserve.restore()
        assert (reserve.state, NAME in machine.media.paths()) == (OK, True)

    machine.run(main)


def test_the_last_of_the_reserve_is_for_commands_and_comes_back_with_the_rest() -> None:
    machine = Machine(1)

    async def main(env: Env) -> None:
        reserve = Reserve(env.disk, small())
        await reserve.open(blank=True)

        assert [await reserve.give_up(), await reserve.give_up()] == [True, False]
        assert LAST in machine.media.paths()
        assert await reserve.give_up(last=True)
        assert not await reserve.give_up(last=True)
        assert {NAME, LAST}.isdisjoint(machine.media.paths())
        await reserve.restore()
        assert {NAME, LAST} <= set(machine.media.paths())
        assert reserve.state == OK

    machine.run(main)


def test_space_that_a_file_gave_back_is_first_for_commands() -> None:
    machine = Machine(1)

    async def main(env: Env) -> None:
        reserve = Reserve(env.disk, small())
        await reserve.open(blank=True)
        await reserve.give_up()
        await reserve.give_up(last=True)

        machine.media.capacity = machine.media.used
        await reserve.keep_last()
        assert LAST not in machine.media.paths()
        machine.media.capacity += small().hard_reserve_bytes
        machine.media.latency = 1.0
        async with trio.open_nursery() as nursery:  # two who see it at once
            nursery.start_soon(reserve.keep_last)
            nursery.start_soon(reserve.keep_last)
        assert LAST in machine.media.paths()
        assert reserve.state == HARD
        assert await reserve.give_up(last=True)

    machine.run(main)


def test_a_command_has_the_whole_reserve() -> None:
    machine = Machine(1)

    async def main(env: Env) -> None:
        reserve = Reserve(env.disk, small())
        await reserve.open(blank=True)

        given = [await reserve.give_up(last=True) for _ in range(3)]

        assert given == [True, True, False]

    machine.run(main)


def test_a_node_that_finds_a_part_of_the_reserve_makes_the_rest() -> None:
    machine = Machine(1)

    async def main(env: Env) -> None:
        reserve = Reserve(env.disk, small())
        await reserve.open(blank=True)
        await env.disk.unlink(LAST)
        again = Reserve(env.disk, small())
        await again.open(blank=False)
        assert again.state == OK
        assert {NAME, LAST} <= set(machine.media.paths())

    machine.run(main)
