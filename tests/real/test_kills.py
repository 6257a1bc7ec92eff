"""Kill -9 in a loop, under load by clients of every kind, whose calls are cut short anywhere.

Each producer counts its entries and notes what it was told.  In the end the row has everything that was
acknowledged, once, under the number that was told, each producer's in the order in which it gave
them; nothing of which it was said that it was certainly not written; and nothing that nobody gave.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import attrs
import pytest
import trio

import duckrow
from real.daemonkit import SECONDS, Daemon, daemon

TOPIC = "t"
MANY = 200
PATIENCE = (0.0, 0.0005, 0.002, 0.01, 0.1, SECONDS, SECONDS)  # of a call, drawn for each


@attrs.define
class Ledger:
    """What producers gave, and what they were told of it."""

    given: set[bytes] = attrs.field(factory=set)
    acknowledged: dict[bytes, int | None] = attrs.field(factory=dict)  # accepted: without a number
    refused: set[bytes] = attrs.field(factory=set)  # certainly not written

    def check(self, found: list[tuple[int, bytes]]) -> None:
        numbers = {value: number for number, value in found}

        assert [number for number, _ in found] == [*range(1, len(found) + 1)]
        assert len(numbers) == len(found), "an entry is there twice"
        assert self.given >= set(numbers), "nobody gave that"
        assert not self.refused & set(numbers), "it was said that it was not written"
        for value, number in self.acknowledged.items():
            assert value in numbers, f"{value!r} was acknowledged and is gone"
            assert number in (None, numbers[value]), f"{value!r} has another number now"
        for name in {value.split()[0] for value in numbers}:
            own = [value.split()[1] for _, value in found if value.split()[0] == name]
            assert own == sorted(own, key=lambda each: [*map(int, each.split(b"."))])


class Row(Protocol):
    async def produce(self, topic: str, value: bytes, *, wait: str = "ordered") -> Any: ...
    async def produce_many(self, topic: str, values: list[bytes]) -> Any: ...


class Blocking:
    """The blocking client, for a loop that awaits; its calls are cut short by their time-out."""

    def __init__(self, row: duckrow.Client) -> None:
        self._row = row
        self.patience = 0.0

    async def produce(self, topic: str, value: bytes, *, wait: str = "ordered") -> Any:
        return self._row.produce(topic, value, wait=wait, timeout=self.patience)

    async def produce_many(self, topic: str, values: list[bytes]) -> Any:
        return self._row.produce_many(topic, values, timeout=self.patience)


async def produce(
    row: Row,
    name: str,
    ledger: Ledger,
    ended: threading.Event,
    within: Callable[[float, Callable[[], Awaitable[None]]], Awaitable[None]],
) -> None:
    """Until it is ended; `within` cancels a call when its time is over."""
    chance, count = random.Random(name), 0
    while not ended.is_set():
        count += 1
        value = b"%s %d" % (name.encode(), count)
        values = [b"%s.%03d" % (value, each) for each in range(MANY)]
        given = [value] if count % 7 else values
        ledger.given.update(given)

        async def give(given: list[bytes] = given, count: int = count) -> None:
            try:
                if len(given) > 1:
                    receipts = await row.produce_many(TOPIC, given)
                    told = [number for _, _, number in receipts]
                else:
                    wait = "accepted" if not count % 5 else "none" if not count % 11 else "ordered"
                    receipt = await row.produce(TOPIC, given[0], wait=wait)
                    told = [receipt.number] if receipt else []
            except duckrow.NoQuorum:
                if len(given) == 1:  # of many, some may be written
                    ledger.refused.update(given)
            except duckrow.Timeout:
                pass
            else:
                ledger.acknowledged.update(zip(given, told, strict=False))

        await within(chance.choice(PATIENCE), give)


def with_blocking(url: str, ledger: Ledger, ended: threading.Event) -> None:
    with duckrow.connect(url, timeout=SECONDS) as client:
        row = Blocking(client)

        async def within(seconds: float, give: Callable[[], Awaitable[None]]) -> None:
            row.patience = seconds
            await give()

        trio.run(produce, row, "blocking", ledger, ended, within)


def with_trio(url: str, ledger: Ledger, ended: threading.Event) -> None:
    async def within(seconds: float, give: Callable[[], Awaitable[None]]) -> None:
        with trio.move_on_after(seconds):
            await give()

    async def main() -> None:
        async with duckrow.trio.connect(url, timeout=SECONDS) as row:
            await produce(row, "trio", ledger, ended, within)

    trio.run(main)


def with_asyncio(url: str, ledger: Ledger, ended: threading.Event) -> None:
    async def within(seconds: float, give: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(seconds):
                await give()
        except TimeoutError:
            pass  # it was cancelled

    async def main() -> None:
        async with duckrow.aio.connect(url, timeout=SECONDS) as row:
            await produce(row, "asyncio", ledger, ended, within)

    asyncio.run(main())


def killed_again_and_again(home: Path, lives: int, seconds: float) -> Ledger:
    """What the producers, who go on through all lives, were told; it was checked."""
    url, ended, ledger = f"duck+unix://{home}/node.sock", threading.Event(), Ledger()
    errors: list[BaseException] = []

    def guarded(work: Callable[[str, Ledger, threading.Event], None]) -> None:
        try:
            work(url, ledger, ended)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            errors.append(error)
            ended.set()

    threads = [
        threading.Thread(target=guarded, args=(work,))
        for work in (with_blocking, with_trio, with_asyncio)
    ]
    chance = random.Random(lives)
    for life in range(lives):
        level = ("write", "fsync", "memory")[life % 3]
        with running(home, level) as node:
            if not life:
                for thread in threads:
                    thread.start()
            ended.wait(2 * seconds * chance.random())
            if life == lives - 1 or errors:
                ended.set()
                for thread in threads:
                    thread.join()
            node.end(signal.SIGKILL)
        if errors:
            raise errors[0]
    with daemon(home) as node, duckrow.connect(node.url) as row:
        found: list[tuple[int, bytes]] = []
        after: object = 0
        while entries := row.pull(TOPIC, after, limit=65_536, max_bytes=1 << 22):
            found += [(entry.number, entry.value) for entry in entries]
            after = entries.after
    ledger.check(found)
    return ledger


def running(home: Path, level: str) -> AbstractContextManager[Daemon]:
    return daemon(home, "--set", f"store.durability={level}")


def test_killed_under_load_it_has_every_acknowledged_entry_once_and_in_order(
    tmp_path: Path,
) -> None:
    ledger = killed_again_and_again(tmp_path, 6, 0.6)

    for kind in (b"blocking", b"trio", b"asyncio"):
        assert sum(value.startswith(kind) for value in ledger.acknowledged) > MANY
    assert len(ledger.acknowledged) < len(ledger.given), "no call was cut short"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_a_hundred_times_it_has_every_acknowledged_entry(tmp_path: Path) -> None:
    ledger = killed_again_and_again(tmp_path, 100, 0.6)

    assert len(ledger.acknowledged) > 10_000
