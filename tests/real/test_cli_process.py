"""`duckrow node` as a process: what it says, how it ends, and what is left when it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import duckrow as library

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "duckrow.tools.cli"]


class Running:
    """A node that is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.said: list[str] = []
        for line in process.stderr:
            self.said.append(line)
            if "ready" in line:
                break
        found = re.search(r"unix:(/[^,\s\"]+)", "".join(self.said))
        assert found, self.said
        self.url = f"duck+unix://{found[1]}"

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.rest()

    def rest(self) -> int:
        """Reads what it still says, and waits for its end."""
        assert self.process.stderr is not None
        self.said += self.process.stderr
        return self.process.wait(timeout=60)


def environ(home: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "src"), "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}


@contextmanager
def node(home: Path, *words: str) -> Iterator[Running]:
    with subprocess.Popen(
        [*PROGRAM, "node", "--data", "data", "--listen", "unix:", *words],
        cwd=home,
        env=environ(home),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def command(home: Path, words: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=home,
        env=environ(home),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_client_finds_the_node_of_its_user_by_itself(tmp_path: Path) -> None:
    with node(tmp_path):
        assert command(tmp_path, ["produce", "rides"], "one\ntwo\n").returncode == 0
        done = command(tmp_path, ["pull", "rides", "-o", "value"])

    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\n", "")


def test_told_to_stop_it_ends_in_order_and_has_everything_when_it_is_back(tmp_path: Path) -> None:
    with node(tmp_path) as running, library.connect(running.url) as client:
        client.produce("rides", b"one")
        assert running.end(signal.SIGTERM) == 0
        assert any("stopping" in line for line in running.said)

    with node(tmp_path) as running, library.connect(running.url) as client:
        assert [entry.value for entry in client.pull("rides")] == [b"one"]


def test_killed_it_has_everything_that_was_answered_when_it_is_back(tmp_path: Path) -> None:
    with node(tmp_path) as running, library.connect(running.url) as client:
        client.produce_many("rides", [b"%d" % number for number in range(1000)])
        running.end(signal.SIGKILL)

    with node(tmp_path) as running, library.connect(running.url) as client:
        assert [entry.value for entry in client.pull("rides")] == (
            [b"%d" % number for number in range(1000)]
        )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_streams_are_closed_does_its_work(tmp_path: Path, closed: str) -> None:
    words = " ".join([*PROGRAM, "produce", "rides", "one", closed])
    with node(tmp_path) as running, library.connect(running.url) as client:
        done = subprocess.run(
            ["sh", "-c", words], cwd=tmp_path, env=environ(tmp_path), check=False, timeout=60
        )
        assert done.returncode == 0
        assert [entry.value for entry in client.pull("rides")] == [b"one"]


def test_no_file_of_a_node_takes_the_place_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    words = " ".join(["exec", *PROGRAM, "node --data data --listen unix: <&- >&- 2>&-"])
    with subprocess.Popen(["sh", "-c", words], cwd=tmp_path, env=environ(tmp_path)) as process:
        try:
            with library.connect(f"duck+unix://{tmp_path}/duckrow.sock", timeout=60) as client:
                client.produce("rides", b"one")
            streams = [Path(f"/proc/{process.pid}/fd/{fd}").readlink() for fd in range(3)]
        finally:
            process.kill()

    assert streams == [Path(os.devnull)] * 3


def test_a_configuration_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"[node]\n\xff")
    done = command(tmp_path, ["config", "show", "--config", "bad.toml"])

    assert done.returncode == 1
    assert done.stderr == "duckrow: bad.toml: byte 7 is not UTF-8: save it as such\n"


def test_what_is_no_url_is_a_wrong_use(tmp_path: Path) -> None:
    for words, more in ((["--url", "http://x"], {}), ([], {"DUCKROW_URL": "http://x"})):
        done = subprocess.run(
            [*PROGRAM, "status", *words],
            env=environ(tmp_path) | more,
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 2
        assert done.stderr.startswith("duckrow: 'http://x' is no URL of a node: write duck://")


def test_a_follow_ends_when_nobody_reads_it_any_more(tmp_path: Path) -> None:
    with node(tmp_path) as running, library.connect(running.url) as row:
        row.produce("rides", b"one")
        with subprocess.Popen(
            [*PROGRAM, "follow", "rides", "-o", "value"],
            env=environ(tmp_path) | {"DUCKROW_URL": running.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as follow:
            assert follow.stdout is not None
            assert follow.stderr is not None
            assert follow.stdout.readline() == b"one\n"
            follow.stdout.close()
            assert follow.stderr.read() == b""
            assert follow.wait(60) == 0


def test_a_follow_goes_on_when_the_node_is_started_again(tmp_path: Path) -> None:
    with node(tmp_path) as running, library.connect(running.url) as client:
        client.produce("rides", b"one")
        with subprocess.Popen(
            [*PROGRAM, "follow", "rides", "--max", "2", "-o", "value", "--timeout", "1s"],
            cwd=tmp_path,
            env=environ(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as follow:
            assert follow.stdout is not None
            assert follow.stdout.readline() == b"one\n"
            running.end(signal.SIGKILL)
            with node(tmp_path) as again, library.connect(again.url) as other:
                other.produce("rides", b"two")
                assert follow.stdout.readline() == b"two\n"
                assert follow.wait(60) == 0


def test_a_folder_is_for_one_process_and_the_second_is_told_which(tmp_path: Path) -> None:
    with node(tmp_path) as running:
        done = command(tmp_path, ["node", "--data", "data", "--listen", f"unix:{tmp_path}/2.sock"])

    assert done.returncode == 1
    assert str(running.process.pid) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_configuration_is_told_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "duckrow.toml").write_text("[node]\nlisen = []\n")
    done = command(tmp_path, ["node", "--data", "data"])

    assert done.returncode == 1
    assert "duckrow.toml, line 2: there is no setting node.lisen; did you mean" in done.stderr
    assert not (tmp_path / "data").exists()


def test_off_the_machine_a_node_listens_with_a_token_or_not_at_all(tmp_path: Path) -> None:
    done = command(tmp_path, ["node", "--data", "data", "--listen", "tcp://0.0.0.0:0"])

    assert done.returncode == 1
    assert "node.token" in done.stderr
    assert not (tmp_path / "data").exists()


def test_where_nobody_can_listen_it_says_so_and_ends(tmp_path: Path) -> None:
    done = command(tmp_path, ["node", "--data", "data", "--listen", "unix:/proc/nix/x.sock"])

    assert done.returncode == 3  # there is no such folder
    assert done.stderr.splitlines()[-1].startswith("duckrow: ")
    assert "Traceback" not in done.stderr


def test_settings_reach_the_node(tmp_path: Path) -> None:
    words = ("--name", "shop", "--set", "store.durability=write", "--set", "topics.create=explicit")
    with node(tmp_path, *words) as running, library.connect(running.url, timeout=30) as client:
        status = client.status()
        with pytest.raises(library.NotFound):
            client.produce("rides", b"one")
        client.create_topic("rides")
        client.produce("rides", b"one")

    assert (status["node"], status["level"]) == ("shop", "write")


def test_its_log_is_json_on_request(tmp_path: Path) -> None:
    with node(tmp_path, "--set", "log.format=json") as running:
        assert running.end(signal.SIGTERM) == 0

    events = [json.loads(line)["event"] for line in running.said]
    assert events[0] == "ready"
    assert "stopping" in events


@pytest.mark.parametrize("broken", ["a mistake", "a failed disk"])
def test_what_ends_it_is_an_event_too_with_where_it_happened_if_it_is_a_mistake(
    broken: str, tmp_path: Path
) -> None:
    error = "DiskFailed('x')" if broken == "a failed disk" else "KeyError('x')"
    code = f"""
import sys
from duckrow.node import daemon
from duckrow.node.errors import DiskFailed
from duckrow.tools.cli import run
from duckrow.tools.console import Console

async def main(options, ready):
    raise ExceptionGroup("", [ExceptionGroup("", [{error}])])

daemon.main = main
words = ["node", "--data", "data", "--listen", "unix:", "--set", "log.format=json"]
sys.exit(run(words, Console.of_the_process()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    (event,) = map(json.loads, done.stderr.splitlines())
    assert (event["event"], "x" in event["error"]) == ("ended", True)
    assert ("traceback" in event) == (broken == "a mistake")
