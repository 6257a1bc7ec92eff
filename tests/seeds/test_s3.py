"""S3, a proxy between publishers and subscribers, with acknowledgements: what duckrow does today.

Each test is named after its row in docs/reference/seeds.md, which also says what is still to come.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import random
import re
from pathlib import Path

import pytest

from clikit import console_of
from duckrow.node import columns, makers
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.effects import Code
from duckrow.node.errors import Corrupt, Damaged
from duckrow.tools.cli import run
from duckrow.tools.console import progress_line
from duckrow.tools.logs import Json, Text
from seeds.kit import Node, alone
from seeds.shell import shell
from sim.alone import Machine
from sim.park import SimCrashed

ROOT = Path(__file__).resolve().parents[2]
PID = b"p" * PID_BYTES


def message(seq: int, value: bytes, *, ids: list[bytes] | None = None, pid: bytes = PID) -> Command:
    """As a publisher sends it, and sends it again, word for word."""
    turn = makers.Turn(pid, seq)
    return makers.produce(turn, "t", columns.encode([value]), 1, ids=ids)


def test_s3_9_nothing_that_is_loaded_at_the_start_can_run_code() -> None:
    runs_code = {"pickle", "cPickle", "marshal", "shelve", "dill", "copyreg", "yaml"}
    evaluates = {"eval", "exec", "compile", "__import__"}
    found = []
    for path in (ROOT / "node").glob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.Import):
                found += [alias.name for alias in each.names if alias.name in runs_code]
            elif isinstance(each, ast.ImportFrom) and each.module in runs_code:
                found.append(each.module)
            elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
                found += [each.func.id] if each.func.id in evaluates else []

    assert found == []


def test_s3_9_a_byte_that_changed_on_the_disk_is_never_taken_for_what_was_written() -> None:
    """Anywhere, in any file: the node serves what was written, or says what it cannot serve."""
    rng = random.Random(9)
    written = [b"%200d" % number for number in range(40)]
    small = {"segment_bytes": 4096}
    outcomes = dict.fromkeys(("mended", "told", "ended"), 0)
    spare = "reserve", "last", "ended", "lock"  # nothing of what is written is in them

    async def fill(node: Node) -> None:
        for value in written:
            await node.produce("t", value)

    async def look(node: Node) -> int:
        """How many entries were told to be damaged; all others are as they were written."""
        lost = done = 0
        while done < len(written):
            try:
                entries = await node.entries("t", done)
            except Damaged as damage:
                lost += damage.last - done
                done = damage.last
            else:
                assert [each.value for each in entries] == written[done : done + len(entries)]
                if not entries:
                    broken = node.keeper.row.broken
                    assert broken, f"entries from {done + 1} on went without a word"
                    raise broken
                done += len(entries)
        return lost

    for seed in range(80):
        machine = Machine(seed)
        alone(machine, fill, **small)
        paths = [path for path in machine.media.paths() if not path.endswith(spare)]
        assert {path.split("/")[0] for path in paths} == {"row", "state", "numbers"}
        machine.media.flip(rng.choice(paths))
        try:
            outcomes["told" if alone(machine, look, **small) else "mended"] += 1
        except Corrupt as error:
            outcomes["ended"] += 1
            assert "position" in str(error)

    assert min(outcomes.values()) > 0, outcomes
    assert outcomes["mended"] > 40  # what can be made again is made again


def test_s3_12_a_message_is_known_by_its_producer_and_sequence() -> None:
    """The same message twice is one entry; two that only look alike are two."""

    async def main(node: Node) -> None:
        first = await node.ask(message(1, b"hello"))
        again = await node.ask(message(1, b"hello"))
        alike = await node.ask(message(2, b"hello"))
        other = await node.ask(message(1, b"hello", pid=b"q" * PID_BYTES))

        assert (first.first, again.first, again.duplicate) == (1, 1, True)
        assert [alike.first, other.first] == [2, 3]
        assert await node.values("t") == [b"hello"] * 3

    alone(Machine(), main)


def test_s3_12_or_by_a_hash_of_its_content_for_those_who_give_it_one() -> None:
    """An entry's id may be any bytes, so also the hash; then what looks alike is one entry.

    An option that takes the hash by itself (`dedupe = "content"`) is a matter of clients.
    """

    async def main(node: Node) -> None:
        async def publish(seq: int, value: bytes, pid: bytes) -> int:
            content = hashlib.md5(value, usedforsecurity=False).digest()
            result = await node.ask(message(seq, value, ids=[content], pid=pid))
            assert result.code == Code.ORDERED
            return result.first

        ann, bob = b"a" * PID_BYTES, b"b" * PID_BYTES
        assert await publish(1, b"hello", ann) == 1
        assert await publish(2, b"world", ann) == 2
        assert await publish(3, b"hello", ann) == 1
        assert await publish(1, b"world", bob) == 2
        assert await node.values("t") == [b"hello", b"world"]

    alone(Machine(), main)


@pytest.mark.parametrize("power", [False, True])
def test_s3_19_whenever_the_node_dies_a_publisher_that_sends_again_is_stored_once(
    power: bool,
) -> None:
    """From every crash point: those before the write, and those between write and answer."""
    deaths = 0
    for point in range(1, 100):
        machine = Machine(seed=point)
        answered: dict[int, int] = {}

        async def publish(node: Node, answered: dict[int, int] = answered) -> None:
            for seq in range(len(answered) + 1, 6):
                result = await node.ask(message(seq, b"%d" % seq))
                assert result.code == Code.ORDERED
                answered[seq] = result.first

        machine.media.crash_before(point)
        try:
            alone(machine, publish)
        except SimCrashed:
            deaths += 1
        machine.media.disarm()
        if power:
            machine.media.power_loss()
        alone(machine, publish)

        async def look(node: Node) -> None:
            assert await node.values("t") == [b"%d" % seq for seq in range(1, 6)]

        alone(machine, look)
        assert answered == {seq: seq for seq in range(1, 6)}
        if deaths < point:
            break

    assert 20 < deaths == point - 1


def test_s3_13_on_a_terminal_one_publishes_by_hand() -> None:
    with shell() as sh:
        done = sh("produce news", "one\ntwo\n", terminal=True)

        assert done.err.count("news> ") == 3
        assert [line.split()[2] for line in done.lines] == ["NUMBER", "1", "2"]
        assert sh("pull news -o value").lines == ["one", "two"]


def test_s3_14_one_run_publishes_to_several_topics() -> None:
    with shell() as sh:
        sh("produce --topic-field 1", "news\tone\nsport\ttwo\nnews\tthree\n")

        assert sh("pull news -o value").lines == ["one", "three"]
        assert sh("pull sport -o value").lines == ["two"]


def test_s3_17_logs_are_coloured_for_people_and_json_for_machines() -> None:
    event = logging.LogRecord("duckrow", logging.INFO, "", 1, "joined name=%s", ("m2",), None)
    coloured = Text(True, colour=True).format(event)

    assert re.sub(r"\033\[[\d;]*m", "", coloured).endswith(" info joined name=m2")
    assert coloured.count("\033[") > 4
    assert json.loads(Json().format(event))["name"] == "m2"


def test_s3_20_a_publisher_keeps_a_rate_and_tells_its_progress_on_one_line() -> None:
    time, waited = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        time[0] += seconds

    with shell() as sh:
        words = ["produce", "news", "--rate", "2", "--url", sh.url]
        console = console_of(b"1\n2\n3\n4\n", now=lambda: time[0])
        console.sleep = sleep
        assert run(words, console) == 0

    assert waited == [0.5, 0.5, 0.5]
    assert "\n" not in progress_line("produced", 50, 200, 2.0)
