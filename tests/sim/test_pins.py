"""What is pruned of a topic with an archive stays on this node until its archive has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from duckrow.node import keptplaces, makers
from duckrow.node.alone import LoneKeeper
from duckrow.node.commands import PID_BYTES
from duckrow.node.entries import entries_of
from duckrow.node.errors import Conflict, NotFound, Refused
from duckrow.node.pins import Pins
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull
from duckrow.node.topicinfo import Pin

from .alone import Machine
from .nodekit import Owner, run

SPAN, SIZE = 10, 1_000
PATIENCE = 5.0
OTHER = b"o" * PID_BYTES
MANY = 400  # a few hundred kilobytes: many small segments


async def kept(node: LoneKeeper, topic: str = "t") -> list[int]:
    """The numbers that who asks for all that is kept is shown."""
    found: list[int] = []
    done = 0
    while entries := entries_of(topic, await node.reader.pull(Pull(topic, done, kept=True))):
        found += [entry.number for entry in entries]
        done = found[-1]
    return found


async def fill(node: LoneKeeper, first: int = 1, last: int = MANY, topic: str = "t") -> None:
    producer = Producer(node)
    for number in range(first, last + 1):
        await producer.produce(topic, [b"%d".ljust(SIZE) % number])


def pin(node: LoneKeeper) -> Pin:
    (found,) = node.pins.listed(("", -1), 10)
    return found


def segments(node: LoneKeeper) -> int:
    return len(node.row.store.segments())


async def archived(node: LoneKeeper) -> None:
    await Owner(node).order(makers.create, "t", {"archive": SPAN, "max_entries": 20})
    await fill(node)
    await trio.sleep(PATIENCE)


def test_pruned_entries_are_kept_until_the_archive_has_them() -> None:
    async def work(node: LoneKeeper) -> None:
        await archived(node)
        first = MANY - 20 + 1
        many = segments(node)

        assert pin(node) == ("t", pin(node).topic_id, 0, SPAN, 1, first, MANY, 0)
        assert await kept(node) == [*range(1, MANY + 1)]
        shown = await node.reader.pull(Pull("t", 0))
        assert (shown.missing, shown.batches[0].start) == (first - 1, first)

        node.pins.tell("t", pin(node).topic_id, 0, 200)
        await trio.sleep(PATIENCE)
        assert await kept(node) == [*range(201, MANY + 1)]
        assert segments(node) < many

        node.pins.tell("t", pin(node).topic_id, 0, MANY)
        await trio.sleep(PATIENCE)
        assert await kept(node) == [*range(first, MANY + 1)]
        assert segments(node) < 15

    run(Machine(), work)


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
def test_pins_and_what_is_safe_survive_a_restart(orderly: bool) -> None:
    machine = Machine()

    async def before(node: LoneKeeper) -> None:
        await archived(node)
        node.pins.tell("t", pin(node).topic_id, 0, 200)
        await trio.sleep(PATIENCE)
        await fill(node, MANY + 1, MANY + 100)  # snapshots are written meanwhile
        if not orderly:
            raise KeyboardInterrupt

    async def after(node: LoneKeeper) -> None:
        assert pin(node).safe == 200
        assert await kept(node) == [*range(201, MANY + 101)]

    try:
        run(machine, before)
    except (KeyboardInterrupt, BaseExceptionGroup):
        assert not orderly
    run(machine, after)


def test_entries_that_were_pruned_before_there_was_an_archive_are_not_missed() -> None:
    machine = Machine()

    async def before(node: LoneKeeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 23})
        await fill(node, 1, 100)
        await Owner(node, OTHER).order(makers.configure, "t", {"archive": SPAN})
        await fill(node, 101, 150)
        assert await kept(node) == [*range(78, 151)]

    async def after(node: LoneKeeper) -> None:
        assert await kept(node) == [*range(78, 151)]
        assert pin(node).safe == 77

    run(machine, before)
    run(machine, after)


@pytest.mark.parametrize("end", ["delete", "switch off"])
def test_nothing_is_kept_of_a_topic_that_is_deleted_or_has_no_archive_any_more(end: str) -> None:
    async def work(node: LoneKeeper) -> None:
        await archived(node)
        if end == "delete":
            await Owner(node, OTHER).order(makers.delete, "t")
        else:
            await Owner(node, OTHER).order(makers.configure, "t", {"archive": None})
        await trio.sleep(PATIENCE)

        assert list(node.pins.listed(("", -1), 10)) == []
        assert len(await kept(node)) <= 20
        assert segments(node) < 15

    run(Machine(), work)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda pin: ("other", pin.topic_id, 0, 5), NotFound),
        (lambda pin: ("t", pin.topic_id, 1, 5), NotFound),
        (lambda pin: ("t", pin.topic_id, -1, 0), NotFound),
        (lambda pin: ("t", pin.topic_id + 1, 0, 5), Conflict),
        (lambda pin: ("t", pin.topic_id, 0, pin.last + 1), Refused),
        (lambda pin: ("t", pin.topic_id, 0, -1), Refused),
    ],
    ids=["topic", "partition", "below", "another topic of the name", "number", "negative"],
)
def test_an_archiver_that_is_wrong_is_told_so_and_changes_nothing(
    wrong: Callable[[Pin], tuple[str, int, int, int]], error: type[Exception]
) -> None:
    async def work(node: LoneKeeper) -> None:
        await archived(node)
        before = pin(node)
        with pytest.raises(error):
            node.pins.tell(*wrong(before))
        assert pin(node) == before

    run(Machine(), work)


def test_what_is_pinned_is_told_with_the_archive_and_its_trouble() -> None:
    async def work(node: LoneKeeper) -> None:
        assert node.pins.told() == {"place": "", "pinned": 0, "trouble": ""}
        await archived(node)
        assert node.pins.told() == {"place": "", "pinned": MANY - 20, "trouble": ""}

    run(Machine(), work)


def test_what_is_safe_of_many_partitions_survives_a_restart() -> None:
    machine, partitions = Machine(), 300

    async def before(node: LoneKeeper) -> None:
        policy = {"archive": SPAN, "max_entries": 20, "partitions": partitions}
        await Owner(node).order(makers.create, "t", policy)
        id_ = next(node.pins.listed(("", -1), 1)).topic_id
        producer = Producer(node)
        for partition in range(partitions):
            await producer.produce("t", [b"1", b"2"], partition=partition, partitions=partitions)
            node.pins.tell("t", id_, partition, 1)

    async def after(node: LoneKeeper) -> None:
        assert [pin.safe for pin in node.pins.listed(("", -1), -1)] == [1] * partitions

    run(machine, before)
    run(machine, after)


def test_a_topic_gets_an_archive_after_a_start_from_a_snapshot_that_knows_no_pins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()

    async def before(node: LoneKeeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 20})
        await fill(node, 1, 100)

    async def after(node: LoneKeeper) -> None:
        await fill(node, 101, 150)
        await Owner(node, OTHER).order(makers.configure, "t", {"archive": SPAN})
        assert (pin(node).safe, pin(node).kept) == (130, 131)

    with monkeypatch.context() as older:
        older.setattr(Pins, "capture", lambda _pins: [])
        run(machine, before)
    run(machine, after)


def test_a_place_of_each_body_that_waited_survives_a_restart() -> None:
    places = {position: position << 40 for position in range(1_000)}
    assert keptplaces.restored(keptplaces.chunks(places)) == places
