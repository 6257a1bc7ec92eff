"""What is told of a command that a bridge does not take: the one before, or another machine, may have it."""

from __future__ import annotations

import pytest
import trio

from duckrow.bridge.process import Bridge
from duckrow.node import makers
from duckrow.node.errors import NoQuorum, Refused, Timeout
from sim import townkit
from sim.clusterkit import BODY
from sim.pairkit import Split, play
from sim.townkit import Town


def test_what_a_bridge_does_not_take_is_told_to_who_asked() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)
        bridge, node = split.bridges[1], split.nodes[1]

        def full(_commands: object) -> None:
            raise NoQuorum("too many commands wait")

        setattr(bridge, "submit", full)  # noqa: B010
        with trio.fail_after(5), pytest.raises(NoQuorum, match="too many commands wait"):
            await node.barrier()
        delattr(bridge, "submit")
        assert await node.barrier() == node.state.position

    play(8, script)


def test_what_a_bridge_does_not_take_may_have_been_taken_by_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 800433 was told that nothing was written, and it was ordered later: that one had it on its disk."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)

        def full(_bridge: object, _commands: object) -> None:
            raise NoQuorum("too many commands wait")

        taken: list[object] = []
        monkeypatch.setattr(Bridge, "submit", lambda _bridge, commands: taken.append(commands))

        async def wait() -> None:
            with pytest.raises(Timeout, match="not known: too many commands wait"):
                await split.nodes[1].barrier()

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                while not taken:
                    await trio.sleep(0.001)
                monkeypatch.setattr(Bridge, "submit", full)
                split.kill("m", 1)
                split.start_bridge(1)
        monkeypatch.undo()

    play(8, script)


def test_of_what_a_bridge_has_taken_nobody_is_told_that_it_is_certainly_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client whose connection broke says it again by another one, and the bridge has no room for a copy."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        await trio.sleep(0.5)
        for other in (2, 3):
            split.world.net.partition(["m1"], [f"m{other}"])
        await trio.sleep(3)
        node = split.nodes[1]
        told: list[object] = []
        turn = makers.Turn(b"p" * 16, seq=1, time=node.wall_us())
        command = makers.produce(turn, "rides", BODY, 3)
        key = node.submit(command)
        node.calls.tell(key, told.append)
        await trio.sleep(0.5)

        def full(_bridge: object, _commands: object) -> None:
            raise NoQuorum("too many commands wait")

        monkeypatch.setattr(Bridge, "submit", full)
        node.submit(command)
        await trio.sleep(0.5)
        monkeypatch.undo()
        assert [type(each) for each in told] == [Timeout]
        split.world.net.heal()
        await split.until()
        await trio.sleep(0.5)
        assert b"p" * 16 in [lane[0] for lane in node.state.lanes.rows], "it is ordered"
        await split.end()

    play(8, script)


def test_what_a_bridge_was_told_cannot_be_withdrawn() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        node, turn = split.nodes[1], makers.Turn(b"w" * 16, seq=1, time=1)
        command = makers.barrier(turn)
        node.submit(command)
        assert not node.row.withdraw(command)

    play(9, script)


def test_who_waits_for_the_number_of_what_was_accepted_is_not_told_that_a_copy_was_refused() -> (
    None
):
    """He waits at another machine, which cannot know that one has it."""

    async def use(town: Town) -> None:
        async with town.client(1) as row, town.client(2) as elsewhere:
            town.cut_off(1)
            await town.until(lambda: bool(town.nodes[1].row.missing))
            given = elsewhere._receipt_of(await row.produce("t", b"one", wait="accepted"))
            numbers: list[int | None] = []

            async def wait() -> None:
                numbers.append((await given.ordered()).number)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(0.1)
                (staged,) = town.bridges[1].staging.bundles.values()
                bridge, node = town.bridges[2], town.nodes[2]

                def full(_commands: object) -> None:
                    raise NoQuorum("too many commands wait")

                setattr(bridge, "submit", full)  # noqa: B010
                node.row.submit(staged.commands)
                await trio.sleep(0.1)
                delattr(bridge, "submit")
                town.world.net.heal()
            assert numbers == [1]

    townkit.run(use)


def test_a_question_that_is_too_long_to_be_quoted_is_answered_all_the_same() -> None:
    """Any client may ask it.  The bridge had hung up on its node instead, which asked it again, for ever."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.producing = False
        row = split.nodes[1].row
        for asked in ({"what": "\0" * 20_000}, {"what": "retire", "node": "\0" * 20_000}):
            with trio.fail_after(5), pytest.raises(Refused, match=r"\.\.\."):
                await row.administer(asked)
        assert not [note for note in split.notes if "_lost" in note]

    play(8, script)
