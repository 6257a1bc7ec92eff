"""The tutorial of two programs, walked through: both of its programs, a node that dies, a restart."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .daemonkit import ROOT, SECONDS, Daemon, daemon

PAGE = ROOT / "docs" / "tutorials" / "two-programs.md"
NAMES = ("producer.py", "consumer.py")


@contextmanager
def program(name: str, node: Daemon) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-u", name],
        cwd=node.home,
        env={"PYTHONPATH": str(ROOT / "src"), "DUCKROW_URL": node.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def typed(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_the_two_programs_do_what_their_page_says(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for name, block in zip(NAMES, blocks, strict=True):
        (tmp_path / name).write_text(block)
        assert len([line for line in block.splitlines() if line]) <= 10

    with (
        daemon(tmp_path) as node,
        program("producer.py", node) as producer,
        program("consumer.py", node) as consumer,
    ):
        typed(producer, "hello")
        assert (read(producer), read(consumer)) == ("is number 1", "1 hello")
        node.end(signal.SIGKILL)
        typed(producer, "are you there?")
        with daemon(tmp_path) as again:
            assert (read(producer), read(consumer)) == ("is number 2", "2 are you there?")
            consumer.kill()
            typed(producer, "again")
            assert read(producer) == "is number 3"
            with program("consumer.py", again) as other:
                line = read(other)
                assert line in ("2 are you there?", "3 again")  # as the page says
                assert line == "3 again" or read(other) == "3 again"
            assert producer.stdin is not None
            producer.stdin.close()
            assert producer.wait(SECONDS) == 0
