"""Measurements that go into a database as they come: a kill in the middle, a new start, and Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import duckrow
from postgreskit import postgres
from spark import servers

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "duckrow.tools.cli", "pipeline", "metrics", *words],
        env=servers.environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_measurements_that_are_followed_are_there_once_after_a_kill_and_ctrl_c_reports(
    tmp_path: Path,
) -> None:
    """What was killed may still write for a moment, while the next one reads the same again."""
    produced = 0

    def produce(count: int) -> None:
        nonlocal produced
        said = [json.dumps({"name": "ms", "value": produced + n}) for n in range(count)]
        node.client.produce_many("loads", said)
        produced += count

    def rows() -> int:
        found = base.execute("select count(*) from metrics").fetchone()
        return int(found[0]) if found else 0

    with duckrow.Node() as node, postgres() as to, psycopg.connect(to, autocommit=True) as base:
        produce(100)
        at = ("--url", node.url, "--to", to, "--checkpoint", str(tmp_path / "at"))
        words = ("loads", *at, "--master", "local[2]", "--follow")
        first = start(*words)
        servers.until(lambda: _is_made(base) and rows(), "rows of the first")
        for _ in range(20):  # some of it is on its way when it dies
            produce(50)
        first.kill()
        first.communicate()
        there = rows()
        produce(50)
        second = start(*words)
        servers.until(lambda: rows() == produced, "all rows")
        produce(1)
        servers.until(lambda: rows() == produced, "what came while it ran")
        second.send_signal(signal.SIGINT)
        out, err = second.communicate(timeout=servers.SECONDS)
        found = base.execute("select count(*), count(distinct value) from metrics").fetchone()

    told = json.loads(out)
    assert second.returncode == 130
    assert "Traceback" not in err, err  # Java tells there that it begins
    assert told["added"] <= produced - there
    assert told["entries"] >= 51
    assert told["others"] == 0
    assert found == (produced, produced)


def _is_made(base: psycopg.Connection[tuple[object, ...]]) -> bool:
    return base.execute("select to_regclass('metrics')").fetchone() != (None,)
