"""`duckrow node`: with what words it starts the processes beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from clikit import duckrow
from duckrow.node.daemon import DaemonOptions
from duckrow.tools import logs

CLUSTER = '[members.m1]\nid = 1\naddress = "tcp://127.0.0.1:1"\n'


def started(monkeypatch: pytest.MonkeyPatch, words: str) -> DaemonOptions:
    """With what the node would have been started."""
    given: list[DaemonOptions] = []

    def run(_main: object, options: DaemonOptions, *_: object) -> None:
        given.append(options)

    def start(*_: object, **__: Any) -> None:
        """No log of this process changes."""

    monkeypatch.setattr(trio, "run", run)
    monkeypatch.setattr(logs, "start", start)
    done = duckrow(f"node {words}")
    assert done.code == 0, done.err
    return given[0]


def test_a_cluster_file_in_the_own_home_is_the_same_to_the_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge looked for it in a folder `~` of the working folder, and the node ended with it."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "own.toml").write_text('[node]\nname = "m1"\ncluster = "~/cluster.toml"\n')
    monkeypatch.setenv("HOME", str(tmp_path))

    bridge = started(monkeypatch, f"--config {tmp_path}/own.toml").bridge

    assert bridge is not None
    words = bridge.command
    assert words[words.index("--cluster") + 1] == str(tmp_path / "cluster.toml")
