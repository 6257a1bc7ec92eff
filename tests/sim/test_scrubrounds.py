"""The weekly scrub: when it runs, how fast, what it finds, and that nobody notices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from duckrow.node.daemon import tell_of_damage
from duckrow.node.env import Env
from duckrow.node.errors import DiskFailed, Refused
from duckrow.node.lonerow import LoneRow
from duckrow.node.scrubrounds import ScrubReport
from duckrow.node.storeoptions import StoreOptions
from sim.alone import Machine
from sim.storekit import Story, small

DAY = 86_400.0
WEEKLY = small(scrub_seconds=7 * DAY, scrub_bytes_per_second=1024, followable_bytes=0)
Work = Callable[[LoneRow, Story], Awaitable[None]]


def life(machine: Machine, work: Work, options: StoreOptions = WEEKLY) -> list[ScrubReport]:
    """One life, closed in order; the reports of its rounds."""
    story, reports = Story(options), list[ScrubReport]()

    async def watched(row: LoneRow, story: Story) -> None:
        row.scrubs.on_report = reports.append
        await work(row, story)
        assert reports == [] or row.scrubs.last == reports[-1]

    machine.run(story.life(watched))
    return reports


async def fill(row: LoneRow, story: Story) -> None:
    """Over several segments."""
    for size in (900, 30, 2000, 900, 30, 3000, 900):
        await story.produce(row, size)


def days(count: float) -> Work:
    async def work(_row: LoneRow, _story: Story) -> None:
        await trio.sleep(count * DAY)

    return work


def day_of(report: ScrubReport, machine: Machine) -> float:
    start = machine.run(_now) - machine.now * 1e6
    return (report.began_us - start) / 1e6 / DAY


async def _now(env: Env) -> float:
    return env.wall_us()


def test_a_round_begins_a_week_after_the_last_one_ended() -> None:
    machine = Machine(1)
    reports = life(machine, days(22))
    assert [round(day_of(report, machine), 2) for report in reports] == [0, 7, 14, 21]


def test_a_restart_does_not_begin_anew() -> None:
    machine = Machine(1)
    begun = [day_of(r, machine) for _ in range(6) for r in life(machine, days(3))]
    assert [round(day, 2) for day in begun] == [0, 7, 14]


def test_a_round_that_was_due_while_nothing_ran_begins_with_the_start() -> None:
    machine = Machine(1)
    life(machine, days(1))
    machine.now += 30 * DAY
    (report,) = life(machine, days(1))
    assert round(day_of(report, machine), 2) == 31


@pytest.mark.parametrize("content", [b"", b"soon", b"9" * 30, b"-1", b"1800000000000000"])
def test_whoever_cannot_tell_when_the_last_one_was_makes_one(content: bytes) -> None:
    machine = Machine(1)
    life(machine, days(1))
    pages = machine.media.pages("row/scrubbed")
    pages.truncate(0)
    pages.write(0, content)
    assert len(life(machine, days(1))) == 1
    assert len(life(machine, days(1))) == 0


def test_none_is_made_if_none_is_wanted() -> None:
    machine = Machine(1)
    assert life(machine, days(100), small()) == []
    assert "row/scrubbed" not in machine.media.paths()


@pytest.mark.parametrize(
    "wrong", [{"scrub_seconds": -1}, {"scrub_bytes_per_second": 0}], ids=["when", "how fast"]
)
def test_options_of_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Refused, match="a scrub every"):
        StoreOptions(**wrong)  # type: ignore[arg-type]


def test_it_reads_everything_and_not_faster_than_it_may() -> None:
    machine = Machine(1)
    life(machine, fill)
    machine.now += 30 * DAY
    (report,) = life(machine, days(1))

    files = [path for path in machine.media.paths() if path.endswith(".seg")]
    size = sum(len(machine.media.content(path)) for path in files)
    assert report.damages == ()
    assert size - 100 <= report.bytes <= 2 * size, "but what the end of that life wrote"
    assert (report.ended_us - report.began_us) / 1e6 >= report.bytes / 1024


def test_damage_is_told_with_its_file_and_topic() -> None:
    machine = Machine(1)
    life(machine, fill)
    content = machine.media.content("row/00000001.seg")
    machine.media.flip("row/00000001.seg", content.index(b"<2>") + 5, 1)
    machine.now += 30 * DAY

    (report,) = life(machine, days(1))

    (damage,) = report.damages
    assert (damage.file, damage.what, damage.topics) == ("00000001.seg", "a body", ("t",))
    assert (damage.first, damage.last) == (3, 3)


def test_a_file_that_went_away_is_damage() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        assert row.store.segments()[1].sealed
        row.store._shelf.files.forget(2)
        del machine.media._root.names["row"].names["00000002.seg"]  # type: ignore[union-attr]
        await row.scrubs.round()

    machine = Machine(1)
    last = life(machine, work)[-1]
    assert [damage.file for damage in last.damages] == ["00000002.seg"]


def test_segments_come_and_go_meanwhile() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        for _ in range(6):
            await fill(row, story)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.scrubs.round)
            for _ in range(6):
                await trio.sleep(1.7)
                await fill(row, story)
                row.release(row.store.position, row.store.position)
                sealed = [each.number for each in row.store.segments() if each.sealed]
                await row.store.drop(sealed[:3])
                for number in row.store._forgetting.may_go()[:1]:
                    await row.store.rewrite(number, frozenset())

    (report,) = life(Machine(1), work)
    assert report.damages == ()


def test_nobody_who_produces_waits_for_it() -> None:
    """In simulated time: a round sleeps and reads, and holds nothing meanwhile."""

    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.scrubs.round)
            for _ in range(50):
                before = trio.current_time()
                await story.produce(row, 100)
                assert trio.current_time() == before
                await trio.sleep(0.3)

    (report,) = life(Machine(1), work)
    assert report.ended_us - report.began_us > 5_000_000


def test_a_full_disk_keeps_no_scrub_from_ending() -> None:
    async def work(row: LoneRow, _story: Story) -> None:
        await trio.sleep(DAY)
        machine.media.capacity = machine.media.used
        await trio.sleep(20 * DAY)
        machine.media.capacity = 1 << 40

    machine = Machine(1)
    assert len(life(machine, work)) == 3
    assert "row/scrubbed.new" not in machine.media.paths()


def test_a_disk_that_fails_ends_the_process() -> None:
    async def work(row: LoneRow, _story: Story) -> None:
        await trio.sleep(DAY)
        machine.media.sync_eio = 1
        with pytest.raises(DiskFailed, match="the file scrubbed could not be written"):
            await row.scrubs.round()

    machine = Machine(1)
    life(machine, work)


def test_an_index_that_is_replaced_while_it_is_read_is_no_damage() -> None:
    """A rewrite puts another file under the same name; both are whole."""
    rewritten = []

    async def rewrite(row: LoneRow, delay: float) -> None:
        await trio.sleep(delay)
        rewritten.append(await row.store.rewrite(1, frozenset()))

    async def work(row: LoneRow, story: Story, delay: float) -> None:
        for size in (20_000, 900, 900, 900, 20_000, 900):
            await story.produce(row, size)
        await row.store.sync()
        while row.store.unindexed:
            await row.store.index_sealed()
        row.release(row.store.position, row.store.position)
        machine.media.latency = 0.001
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rewrite, row, max(0.0, delay))
            await trio.sleep(max(0.0, -delay))
            assert await row.store.scrub() == [], f"{delay} s later"
        machine.media.latency = 0.0

    for step in range(-40, 20):
        machine = Machine(1)
        small_ones = small(segment_bytes=32 * 1024, followable_bytes=0)
        life(machine, partial(work, delay=step * 0.0005), small_ones)
    assert min(rewritten) > 0


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_daemon_logs_each_round_and_each_damage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "duckrow")
    machine = Machine(1)
    life(machine, fill)
    path = "row/00000001.seg"
    machine.media.flip(path, machine.media.content(path).index(b"<1>") + 5)

    async def scrub(row: LoneRow, _story: Story) -> None:
        tell_of_damage(row)
        assert logged(caplog) == []
        await row.scrubs.round()

    machine.run(Story(WEEKLY).life(scrub))

    (first, second) = logged(caplog)
    assert first[0] == "INFO" and first[1].startswith("scrubbed bytes=")
    assert first[1].endswith("damages=1")
    assert second[0] == "ERROR"
    assert "damaged what=00000001.seg: 903 bytes at" in second[1]


def test_a_daemon_logs_what_its_start_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "duckrow")
    machine = Machine(1)
    life(machine, fill)
    index = next(path for path in machine.media.paths() if path.endswith(".pos"))
    machine.media.flip(index, 20)

    async def begin(row: LoneRow, _story: Story) -> None:
        tell_of_damage(row)

    machine.run(Story(WEEKLY).life(begin))

    ((level, message),) = logged(caplog)
    assert level == "INFO"
    assert message.startswith(f"damaged what={index[4:]}") and "nothing is lost" in message


def test_of_very_many_damages_the_first_are_logged_and_the_rest_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "duckrow")
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        await story.produce(row, *[100] * 40)
        tell_of_damage(row)
        path = "row/00000001.seg"
        content = machine.media.content(path)
        for number in range(1, 31):
            machine.media.flip(path, content.index(b"<%d>" % number) + 7, 0)
        await row.scrubs.round()

    machine.run(Story(small(segment_bytes=64 * 1024)).life(work))

    messages = [message for _, message in logged(caplog)]
    assert len(messages) == 1 + 20 + 1
    assert messages[-1] == "damaged more=10"
