"""The daemon as a process: how it starts, who gets in, how it ends, what is left when it is killed."""

from __future__ import annotations

import errno
import http.client
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import duckrow
from duckrow.node import columns, makers, requests
from duckrow.node import daemon as node_daemon
from duckrow.node.addresses import Tcp, Unix
from duckrow.node.alone import open_node
from duckrow.node.bridgedrow import ReplacedError
from duckrow.node.commands import PID_BYTES
from duckrow.node.daemon import DaemonOptions
from duckrow.node.effects import Code
from duckrow.node.env import Env
from duckrow.node.keeper import Keeper
from duckrow.node.requests import Ask, Outcome, Verb

from .daemonkit import SECONDS, Daemon, Wire, daemon, metrics, resident

PID = b"d" * PID_BYTES


def order(wire: Wire, seq: int, value: bytes = b"v", topic: str = "t") -> int:
    command = makers.produce(makers.Turn(PID, seq, 1, seq - 1), topic, columns.encode([value]), 1)
    return wire.send(Verb.ORDER, command.head, False, body=command.body)


# -- starting -------------------------------------------------------------------------------


def test_the_second_process_of_a_folder_touches_nothing(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
        second = Daemon(tmp_path, "--listen", f"unix:{tmp_path}/other.sock")
        assert second.end() == 1
        assert str(running.process.pid) in second.said[-1]
        assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
        with Wire(str(running.socket)) as wire:
            assert wire.ask(Verb.TOPICS) == [[], False]


def test_a_socket_that_a_killed_node_left_is_taken_over(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.end(signal.SIGKILL)
        assert running.socket.is_socket()
    with daemon(tmp_path) as running, Wire(str(running.socket)):
        assert running.socket.stat().st_mode & 0o777 == 0o600
        running.end(signal.SIGTERM)
        assert not running.socket.exists()


def test_a_socket_where_somebody_listens_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "node.sock"))
        other.listen()
        running = Daemon(tmp_path)
        assert running.end() == 1
        assert "another process listens there" in running.said[-1]
    assert (tmp_path / "node.sock").exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "node.sock").write_text("mine")
    running = Daemon(tmp_path)

    assert running.end() == 1
    assert "a file is there, which is no socket" in running.said[-1]
    assert (tmp_path / "node.sock").read_text() == "mine"


def test_whoever_started_it_is_told_that_it_is_ready_and_that_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(SECONDS)
        with daemon(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify")) as running:
            assert supervisor.recv(100) == b"READY=1"
            running.process.send_signal(signal.SIGTERM)
            assert supervisor.recv(100) == b"STOPPING=1"
            assert running.end() == 0


def test_told_to_stop_before_it_is_ready_it_stops(tmp_path: Path) -> None:
    with daemon(tmp_path) as running, duckrow.connect(running.url) as row:
        row.produce_many("t", [b"x" * 100] * 50_000)
        running.end(signal.SIGKILL)
    again = Daemon(tmp_path)
    while (tmp_path / "data" / "row" / "lock").read_text() != str(again.process.pid):
        assert again.process.poll() is None
    code = again.end(signal.SIGTERM)
    assert code in (0, -signal.SIGTERM), again.said
    assert "Traceback" not in "".join(again.said)
    with daemon(tmp_path) as running, duckrow.connect(running.url) as row:
        assert row.topic("t").partitions[0].last == 50_000


def test_told_to_stop_while_it_begins_anew_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had waited for the row, which an image of a machine that is away has to bring, however long."""
    serves, begins_anew = trio.Event(), trio.Event()

    @asynccontextmanager
    async def opened(
        env: Env, options: DaemonOptions, _supervision: object
    ) -> AsyncIterator[Keeper]:
        async with open_node(env, options.node) as keeper, trio.open_nursery() as nursery:
            nursery.start_soon(be_replaced)
            yield keeper

    async def be_replaced() -> None:
        await serves.wait()
        monkeypatch.setattr(node_daemon, "_opened", opened_in_vain)
        raise ReplacedError("an image took the place of the row")

    @asynccontextmanager
    async def opened_in_vain(*_: object) -> AsyncIterator[Keeper]:
        begins_anew.set()
        await trio.sleep_forever()
        yield  # never

    async def main() -> None:
        stop = trio.Event()
        options = DaemonOptions(data=tmp_path, listen=(Unix(str(tmp_path / "socket")),))
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                await nursery.start(node_daemon.run, options, stop)
                serves.set()
                await begins_anew.wait()
                stop.set()

    monkeypatch.setattr(node_daemon, "_opened", opened)
    trio.run(main)


def test_a_node_that_begins_anew_is_not_ready_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is let in then, however long it takes; what it had told was of the row before."""
    serves, goes_on, asked = trio.Event(), trio.Event(), trio.Event()

    @asynccontextmanager
    async def opened(
        env: Env, options: DaemonOptions, _supervision: object
    ) -> AsyncIterator[Keeper]:
        async with open_node(env, options.node) as keeper, trio.open_nursery() as nursery:
            if not goes_on.is_set():
                nursery.start_soon(be_replaced)
            yield keeper

    async def be_replaced() -> None:
        await serves.wait()
        monkeypatch.setattr(node_daemon, "_opened", opened_later)
        raise ReplacedError("an image took the place of the row")

    @asynccontextmanager
    async def opened_later(*given: Any) -> AsyncIterator[Keeper]:
        asked.set()
        await goes_on.wait()
        async with opened(*given) as keeper:
            yield keeper

    async def main() -> None:
        stop, http = trio.Event(), Tcp("127.0.0.1", 0)
        options = DaemonOptions(data=tmp_path, listen=(Unix(str(tmp_path / "s")),), http=http)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                running = await nursery.start(node_daemon.run, options, stop)
                assert isinstance(running.http, Tcp)
                port = running.http.port
                assert await trio.to_thread.run_sync(get, port, "/readyz") == (200, "ok\n")
                serves.set()
                await asked.wait()
                assert (await trio.to_thread.run_sync(get, port, "/readyz"))[0] == 503
                assert (await trio.to_thread.run_sync(get, port, "/metrics"))[0] == 503
                goes_on.set()
                while (await trio.to_thread.run_sync(get, port, "/readyz"))[0] != 200:
                    await trio.sleep(0.01)
                stop.set()

    monkeypatch.setattr(node_daemon, "_opened", opened)
    trio.run(main)


# -- who gets in ------------------------------------------------------------------------------


def test_the_node_knows_who_is_at_the_other_end_of_its_socket(tmp_path: Path) -> None:
    with daemon(tmp_path) as running, Wire(str(running.socket)) as wire:
        (each,), _ = wire.ask(Verb.CLIENTS)

    assert (each["uid"], each["pid"], each["name"]) == (os.getuid(), os.getpid(), "wire")


def test_over_tcp_the_token_is_asked_for_and_on_the_socket_it_is_not(tmp_path: Path) -> None:
    words = ("--listen", "tcp://127.0.0.1:0", "--set", "node.token=sesame")
    with daemon(tmp_path, *words) as running:
        address = "127.0.0.1", running.port()
        with Wire(str(running.socket)), Wire(address, token="sesame"):
            pass
        for token in ("", "open"):
            with Wire(address, hello=False) as wire:
                wire.send(Verb.HELLO, requests.VERSION, "x", token, {})
                _, outcome, fields, _ = wire.answer()
                assert (outcome, fields[0]) == (Outcome.FAILED, "refused")
                with pytest.raises(EOFError):
                    wire.answer()
        assert running.end(signal.SIGTERM) == 0
    assert "sesame" not in "".join(running.said)


def test_there_are_as_many_clients_as_there_are_files(tmp_path: Path) -> None:
    limited = (
        "sh",
        "-c",
        'ulimit -n 300 && exec "$@"',
        "-",
        sys.executable,
        "-m",
        "duckrow.tools.cli",
    )
    running = Daemon(tmp_path, program=limited)
    with running.process:
        try:
            running.ready()
            wires = [Wire(str(running.socket)) for _ in range(300 - 256)]
            with Wire(str(running.socket), hello=False) as more:
                assert more.answer()[2][0] == "no-quorum"
            wires.pop().socket.close()
            assert wires[0].ask(Verb.TOPICS) == [[], False]
            for wire in wires:
                wire.socket.close()
        finally:
            running.process.kill()


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(5000), b"\xff" * 5000, b"\x05"]
)
def test_garbage_is_answered_with_a_reason_or_the_end(tmp_path: Path, garbage: bytes) -> None:
    with daemon(tmp_path) as running:
        with Wire(str(running.socket), hello=False) as wire:
            wire.socket.sendall(garbage)
            wire.socket.shutdown(socket.SHUT_WR)
            with pytest.raises(EOFError):
                while True:
                    assert wire.answer()[1] == Outcome.FAILED
        with Wire(str(running.socket)) as wire:
            assert wire.ask(Verb.STATUS)[0]["clients"] == 1


def test_clients_that_ask_for_megabytes_and_never_read_cost_little(tmp_path: Path) -> None:
    with daemon(tmp_path, "--set", "store.durability=write") as running:
        with duckrow.connect(running.url) as row:
            row.produce_many("t", [bytes(100_000)] * 400)
        before = resident(running.process.pid)
        wires = [Wire(str(running.socket)) for _ in range(10)]
        for wire in wires:
            for _ in range(60):
                wire.send(Verb.PULL, *Ask("t", max_bytes=1 << 22).fields())
            wire.send(Verb.FOLLOW, *Ask("t", max_bytes=1 << 22).fields(), 1 << 40)
        with Wire(str(running.socket)) as wire:
            for _ in range(20):
                wire.ask(Verb.STATUS)
        grown = resident(running.process.pid) - before
        for wire in wires:  # and all of them are answered, to whoever does read
            done = 0
            while done < 60:
                outcome = wire.answer()[1]
                assert outcome != Outcome.FAILED
                done += outcome == Outcome.DONE
            wire.socket.close()

    assert grown < 10 * (6 << 20) + (60 << 20), "2.4 GB were asked for"


# -- ending -----------------------------------------------------------------------------------


def test_told_to_stop_it_answers_what_it_took(tmp_path: Path) -> None:
    with daemon(tmp_path) as running, Wire(str(running.socket)) as wire:
        pull = wire.send(Verb.PULL, *Ask("quiet", wait_us=60_000_000).fields())
        taken = [order(wire, seq) for seq in range(1, 51)]
        first = wire.answer()
        running.process.send_signal(signal.SIGTERM)
        answers = {first[0]: first}
        with pytest.raises(EOFError):
            while True:
                answer = wire.answer()
                answers[answer[0]] = answer
        assert running.end() == 0
    done = [each for each in taken if answers.get(each, [0, 1])[1] == Outcome.DONE]
    assert answers[pull][1] == Outcome.DONE, "a pull that waited ends, with nothing"
    assert requests.decode_pulled(*answers[pull][2:]).batches == []
    assert sorted(answers) == sorted([pull, *taken])
    assert done == taken[: len(done)]
    with daemon(tmp_path) as running, duckrow.connect(running.url) as row:
        assert row.topic("t").partitions[0].last == len(done)


def test_it_leaves_a_snapshot_behind_when_it_ends_in_order(tmp_path: Path) -> None:
    with daemon(tmp_path) as running, Wire(str(running.socket)) as wire:
        order(wire, 1)
        wire.answer()
        assert list((tmp_path / "data" / "state").iterdir()) == []
        running.end(signal.SIGTERM)

    assert len(list((tmp_path / "data" / "state").iterdir())) == 1


def test_told_twice_it_ends_at_once(tmp_path: Path) -> None:
    with daemon(tmp_path) as running, Wire(str(running.socket)) as wire:
        # Answers that nobody takes hold up an orderly end.
        values = [b"x" * 100_000] * 10
        for seq in range(1, 41):
            command = makers.produce(
                makers.Turn(PID, seq, 1, seq - 1), "t", columns.encode(values), len(values)
            )
            wire.send(Verb.ORDER, command.head, False, body=command.body)
            wire.answer()
        for _ in range(40):
            wire.send(Verb.PULL, *Ask("t", max_bytes=1 << 22).fields())
        running.process.send_signal(signal.SIGTERM)
        running.until("stopping")
        assert running.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert "stopped_at_once" in running.said[-1]
    with daemon(tmp_path) as running, duckrow.connect(running.url) as row:
        assert row.topic("t").partitions[0].last == 400


FAILING = """
import os, sys
from duckrow.tools import cli
sync, left = os.fdatasync, [int(sys.argv.pop(1))]
def failing(fd):
    left[0] -= 1
    if left[0] < 0:
        raise OSError(5, "Input/output error")
    sync(fd)
os.fdatasync = failing
sys.exit(cli.main())
"""


def test_a_sync_that_fails_ends_the_process_with_the_reason_in_its_last_line(
    tmp_path: Path,
) -> None:
    running = Daemon(tmp_path, program=(sys.executable, "-c", FAILING, "30"))
    with running.process:
        running.ready()
        with Wire(str(running.socket)) as wire, pytest.raises((EOFError, BrokenPipeError)):
            for seq in range(1, 200):
                order(wire, seq)
                assert wire.answer()[2][0] in (Code.ORDERED, "timeout")
        assert running.end() == 1
    assert "Input/output error" in running.said[-1]
    assert "Traceback" not in "".join(running.said)


# -- watching -----------------------------------------------------------------------------------


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_a_running_node_tells_its_health_and_its_metrics(tmp_path: Path) -> None:
    with daemon(tmp_path, "--set", "http.listen=tcp://127.0.0.1:0") as running:
        port = running.port()
        with Wire(str(running.socket)) as wire:
            for seq in range(1, 6):
                order(wire, seq, b"x" * 1000)
                wire.answer()
            wire.send(Verb.PULL, *Ask("quiet", wait_us=60_000_000).fields())
            wire.ask(Verb.TOPICS)
            status, text = get(port, "/metrics")
            found = metrics(text)
        assert status == 200
        assert (found["duckrow_entries_total"], found["duckrow_sessions"]) == (5, 1)
        assert found["duckrow_pulls_waiting"] == 1
        assert found["duckrow_sync_seconds_count"] > 0
        assert found['duckrow_disk_state{state="ok"}'] == 1
        assert get(port, "/healthz") == get(port, "/readyz") == get(port, "/readyz?active")
        assert get(port, "/readyz") == (200, "ok\n")
        assert get(port, "/", "POST")[0] == 405
        assert get(port, "/secrets")[0] == 404
        assert get(port, "/healthz", "HEAD") == (200, "")
        for garbage in (b"\x00" * 20_000, b"GET /" + b"x" * 20_000, b"\r\n\r\n", b"a b c\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), SECONDS) as stranger:
                try:
                    stranger.sendall(garbage)
                    stranger.shutdown(socket.SHUT_WR)
                    answer = stranger.recv(100)
                except OSError as hung_up:  # the node may do so at any of the three
                    assert hung_up.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
                    answer = b""
                assert answer[:10] in (b"HTTP/1.1 4", b"")
        assert get(port, "/readyz") == (200, "ok\n")
        assert running.end(signal.SIGTERM) == 0


def test_the_port_of_the_health_being_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        running = Daemon(tmp_path, "--set", f"http.listen=tcp://127.0.0.1:{port}")
        assert running.end() == 1
    assert "in use" in running.said[-1]
