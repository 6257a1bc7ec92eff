"""`duckrow node`: with what words it starts the processes beside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from clikit import duckrow
from duckrow.cluster import processes
from duckrow.node.daemon import DaemonOptions
from duckrow.tools import cli_node, logs

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


def test_files_in_the_working_folder_are_not_taken_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node came up where its user had a file of that name, and its bridge did not."""
    (tmp_path / "typing.py").write_text('raise SystemExit("a file of the user")\n')
    monkeypatch.chdir(tmp_path)

    for words in (cli_node.own_program(), processes.python("duckrow.tools.cli")):
        done = subprocess.run(
            [*words, "--help"],
            env=processes.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert (done.returncode, done.stderr) == (0, "")


def test_who_runs_it_from_a_checkout_runs_its_bridge_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "-P" in cli_node.own_program()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "-P" not in cli_node.own_program()


def test_a_bridge_is_not_met_in_a_folder_that_somebody_else_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the path of the data is too long for a socket it is beside that of the clients, in /tmp: whoever made
    that folder had been the bridge, to the node.
    """
    user = os.getuid() + 4_321
    folder = Path(f"/tmp/duckrow-{user}")
    folder.mkdir()
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    monkeypatch.setattr(os, "getuid", lambda: user)
    long = tmp_path / ("x" * 100)
    words = f"--cluster {tmp_path}/cluster.toml --name m1 --data {long}"
    try:
        node = duckrow(f"node {words} --listen unix:{tmp_path}/socket")
        bridge = duckrow(f"bridge run {words}")
    finally:
        folder.rmdir()

    for done in (node, bridge):
        assert done.code == 1
        assert f"{folder} belongs to user" in done.err
