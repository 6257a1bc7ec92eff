"""Every example that a `--help` shows runs, in a shell, against a node that was just started."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrow as library
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan
from duckrow.tools import backups
from duckrow.tools.cli import WORDS, commands

ROOT = Path(__file__).parents[2]
SLOW = ("chaos run", "rtt")  # each launches a cluster, and hurts or measures it for a while
EXAMPLES = [
    pytest.param(
        command.words,
        example,
        id=example,
        marks=[pytest.mark.long] if command.words in SLOW else [],
    )
    for word in WORDS
    if word != "pipeline"  # in the session of Spark: tests/spark/test_examples.py
    for command in commands(word)
    for example in command.examples
]
# What a reader of the examples has before: three rides, and a topic to be removed.
BEFORE = {"rides": 3, "old": 1}
CLUSTER = """
[members.m1]
id = 1
address = "127.0.0.1:{port}"
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, as an installation has it."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "duckrow"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT / 'src')!r})\n"
        "from duckrow.tools.cli import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with library.Node() as node:
        yield node.url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """In the folder where its commands look for it."""
    folder = tmp_path_factory.mktemp("cluster") / ".duckrow"
    with LocalCluster.launch(Plan(durability="memory"), folder, keep=False) as found:
        yield found


def environ(program: Path, home: Path, url: str = "") -> dict[str, str]:
    """Of somebody who has nothing but the program."""
    return {
        "PATH": f"{program}:/usr/bin:/bin",
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        **({"DUCKROW_URL": url} if url else {}),
    }


@pytest.mark.parametrize(("words", "example"), EXAMPLES)
def test_an_example_of_a_help_runs(
    words: str,
    example: str,
    program: Path,
    url: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if words in ("node", "bridge run"):
        (tmp_path / "cluster.toml").write_text(CLUSTER.format(port=free_port()))
        run_a_node(example, program, tmp_path)
        return
    if words.startswith("cluster "):
        run_on_a_cluster(words, example, program, tmp_path, request)
        return
    if words.startswith("archive "):
        run_with_an_archive(words, example, program, tmp_path)
        return
    if words in ("backup", "restore"):
        with library.Node(tmp_path / "data") as node:
            node.client.produce("rides", b"entry")
        backups.backup(tmp_path / "data", tmp_path / "monday")
    with library.connect(url) as client:
        for topic, entries in BEFORE.items():
            if topic in client.topics():
                client.delete_topic(topic)
            client.produce_many(topic, [b"entry"] * entries)
        if words == "topic new":  # it may be made once
            for topic in re.findall(r"topic new (\w+)", example):
                if topic in client.topics():
                    client.delete_topic(topic)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", example],
        cwd=tmp_path,
        env=environ(program, tmp_path, url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )

    if words.startswith("member ") and words != "member ls":
        assert b"this node is alone" in done.stderr  # others to vote with are not here
        return
    assert (done.returncode, b"duckrow:" in done.stderr) == (0, False), done.stderr.decode()


def run_with_an_archive(words: str, example: str, program: Path, home: Path) -> None:
    """Some files in ./archive, that the node knows, and entries that are still to become some."""
    with library.Node(home / "data") as node, library.connect(node.url) as client:
        client.create_topic("rides", archive=10, max_entries=10)
        fill = "seq 1 100 | duckrow produce rides && duckrow archive run --once --to ./archive"
        before = fill if words != "archive init" else "true"
        done = subprocess.run(
            ["bash", "-c", f"{before} && seq 101 200 | duckrow produce rides && {example}"],
            cwd=home,
            env=environ(program, home, node.url),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, b"duckrow:" in done.stderr) == (0, False), done.stderr.decode()


def run_on_a_cluster(
    words: str, example: str, program: Path, home: Path, request: pytest.FixtureRequest
) -> None:
    """One that runs, but for what starts or ends one."""
    verb, down = words.removeprefix("cluster "), "duckrow cluster down"
    if verb == "init":
        (home / ".duckrow").mkdir()
    elif verb == "up":
        example = f"{example} && {down}"
    elif verb == "down":
        example = f"duckrow cluster up --detach --nodes 1 && {example}"
    else:
        found: LocalCluster = request.getfixturevalue("cluster")
        home = found.folder.parent
        if found.machine("m2").pids() and verb in ("start", "wipe"):
            found.stop("m2")
        elif not found.machine("m2").pids() and verb not in ("start", "wipe"):
            found.start("m2")
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", example],
        cwd=home,
        env=environ(program, home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=90,
        check=False,
    )

    assert (done.returncode, b"duckrow:" in done.stderr) == (0, False), done.stderr.decode()
    assert (home / ".duckrow").exists() == (verb not in ("up", "down"))


def run_a_node(example: str, program: Path, home: Path) -> None:
    """Until it is ready, and then it is told to stop.  Its port is any, for others may run as well."""
    example = re.sub(r":38\d\d\b", ":0", example)
    with subprocess.Popen(
        ["bash", "-c", f"exec {example}"],
        cwd=home,
        env=environ(program, home) | {"DUCKROW__NODE__LISTEN": "unix:"},
        stderr=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stderr is not None
        lines = []
        for line in node.stderr:
            lines.append(line)
            if re.search(r"\b(bridge_)?ready ", line):
                node.terminate()

    assert node.returncode == 0, lines
    assert any("stopping" in line for line in lines)
