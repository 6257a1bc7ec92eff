"""The blocking client among processes: killed nodes, forks, several addresses, Ctrl-C anywhere."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import duckrow
from duckrow.node import blocking, blockingline, clientcore, outbox, outboxes
from duckrow.node.addresses import Tcp
from duckrow.node.daemon import DaemonOptions
from duckrow.node.server import ServerOptions
from real.daemonkit import ROOT, SECONDS, daemon


def everything(row: duckrow.Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    after: object = 0
    while entries := row.pull(topic, after, limit=10_000, max_bytes=1 << 22):
        found += [entry.value for entry in entries]
        after = entries.after
    return found


# -- a node that is killed ------------------------------------------------------------------------


class Producer(threading.Thread):
    """Produces until told to stop; remembers what was answered."""

    def __init__(self, row: duckrow.Client, number: int) -> None:
        super().__init__()
        self.row, self.number = row, number
        self.told: list[tuple[int, bytes]] = []
        self.stopping = threading.Event()
        self.count = 0
        self.trouble: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.produce()
        except duckrow.DuckrowError as error:
            self.trouble = error

    def produce(self) -> None:
        if self.number % 2:
            value = self.fresh()
            number = self.row.produce("load", value).number
            assert number is not None
            self.told.append((number, value))
        else:
            values = [self.fresh() for _ in range(50)]
            receipts = self.row.produce_many("load", values)
            numbers = [number for _, _, number in receipts]
            self.told += zip(numbers, values, strict=True)

    def fresh(self) -> bytes:
        self.count += 1
        return b"%d-%d" % (self.number, self.count)


def test_a_node_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    row = duckrow.connect(f"duck+unix://{tmp_path}/node.sock", timeout=SECONDS)
    producers = [Producer(row, number) for number in range(4)]
    seen = 0
    for life in range(4):
        with daemon(tmp_path) as node:
            if not life:
                for producer in producers:
                    producer.start()
            target = seen + 200
            while seen < target:  # reads through the same client, beside the load
                seen = row.pull("load", seen, limit=1, wait=SECONDS)[0].number
                seen = row.pull("load", "last", wait=SECONDS)[0].number
            node.process.kill()
    with daemon(tmp_path):
        for producer in producers:
            producer.stopping.set()
        for producer in producers:
            producer.join()
        found = everything(row, "load")
        row.close()

    assert [producer.trouble for producer in producers] == [None] * 4
    numbered = dict(enumerate(found, 1))
    assert len(set(found)) == len(found)
    for producer in producers:
        assert {number: numbered[number] for number, _ in producer.told} == dict(producer.told)
        own = [value for value in found if value.startswith(b"%d-" % producer.number)]
        assert own == [b"%d-%d" % (producer.number, n) for n in range(1, producer.count + 1)]


# -- several addresses ------------------------------------------------------------------------------


class Relay(threading.Thread):
    """Takes one connection and passes it on; `cut` ends both."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._target = socket.create_connection(("127.0.0.1", target))

    def run(self) -> None:
        taken, _ = self.listener.accept()
        back = threading.Thread(target=self._pass, args=(self._target, taken))
        back.start()
        self._pass(taken, self._target)
        back.join()
        taken.close()
        self._target.close()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
        except OSError:
            pass  # cut
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # by the other thread

    def cut(self) -> None:
        self.listener.close()
        self._target.shutdown(socket.SHUT_RDWR)
        self.join()


def test_the_next_address_is_used_when_one_dies(tmp_path: Path) -> None:
    with daemon(tmp_path, "--listen", "tcp://127.0.0.1:0") as node:
        relay = Relay(node.port())
        relay.start()
        url = f"duck://127.0.0.1:{relay.port},127.0.0.1:{node.port()}"
        with duckrow.connect(url, timeout=SECONDS) as row:
            first = row.produce("moved", b"1").number
            relay.cut()
            second = row.produce("moved", b"2").number
            found = everything(row, "moved")

    assert (first, second) == (1, 2)
    assert found == [b"1", b"2"]


def test_an_address_that_takes_connections_and_says_nothing_is_left(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, "--listen", "tcp://127.0.0.1:0") as node,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        url = f"duck://127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{node.port()}"
        with duckrow.connect(url, timeout=SECONDS) as row:
            assert row.produce("heard", b"1").number == 1


def test_a_node_that_wants_a_token_says_so_and_lets_in_who_has_it(tmp_path: Path) -> None:
    config = DaemonOptions(
        data=tmp_path, listen=(Tcp("127.0.0.1", 0),), server=ServerOptions(token="sesame")
    )
    with duckrow.Node(config=config) as node:
        with (
            duckrow.connect(node.url, timeout=SECONDS) as row,
            pytest.raises(duckrow.Refused, match="token is missing"),
        ):
            row.produce("t", b"1")
        with duckrow.connect(node.url, token="sesame") as row:
            assert row.produce("t", b"1").number == 1


# -- threads --------------------------------------------------------------------------------------------


def test_a_thread_sends_much_while_another_waits_for_long(node: duckrow.Node) -> None:
    row = node.client
    waiting = threading.Thread(target=lambda: row.pull("nothing-yet", wait=SECONDS))
    waiting.start()
    receipts = row.produce_many("much", [bytes(10_000)] * 2_000)
    row.produce("nothing-yet", b"now")
    waiting.join()

    assert receipts.count == 2_000


def reads(node: duckrow.Node, name: str) -> bool:
    """Whether a client of this name waits for entries."""
    return any(each["reading"] for each in node.client.clients() if each["name"] == name)


def test_a_thread_may_wait_for_ever_while_another_receives(node: duckrow.Node) -> None:
    with duckrow.connect(node.url, name="shared") as row:
        reader = threading.Thread(target=row.pull, args=("quiet",), kwargs={"wait": SECONDS})
        reader.start()
        while not reads(node, "shared"):
            pass
        receipt = row.produce("t", "x", timeout=math.inf)
        row.produce("quiet", "x")
        reader.join()

    assert receipt.number


def test_a_thread_that_watches_does_not_wait_for_another_that_pulls(node: duckrow.Node) -> None:
    with duckrow.connect(node.url, name="shared") as row:
        reader = threading.Thread(target=row.pull, args=("quiet",), kwargs={"wait": SECONDS})
        reader.start()
        while not reads(node, "shared"):
            pass
        node.client.produce("t", "x")
        news = row.watch().wait({("t", None): {}}, SECONDS)
        waits_still = reader.is_alive()
        row.produce("quiet", "x")
        reader.join()

    assert news == [("t", None)]
    assert waits_still


def test_a_flush_that_has_no_more_time_gives_nothing_up(tmp_path: Path) -> None:
    with duckrow.connect(f"duck+unix://{tmp_path}/node.sock") as row:
        for value in ("1", "2", "3"):
            row.produce("t", value, wait="none")
        with pytest.raises(duckrow.Timeout, match="3 that nobody waits for have none yet"):
            row.flush(timeout=0.01)
        with duckrow.Node(listen=f"unix:{tmp_path}/node.sock"):
            row.flush()
            assert everything(row, "t") == [b"1", b"2", b"3"]


def test_a_client_that_is_closed_lets_the_others_go(node: duckrow.Node) -> None:
    row = duckrow.connect(node.url)
    errors: list[duckrow.DuckrowError] = []

    def wait() -> None:
        try:
            row.pull("never", wait=SECONDS)
        except duckrow.DuckrowError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    row.produce("beside", b"v")
    row.close()
    for thread in threads:
        thread.join()

    assert [type(error) for error in errors] == [duckrow.Disconnected] * 3
    with pytest.raises(duckrow.Disconnected):
        row.produce("beside", b"v")


def test_a_timeout_leaves_the_client_in_order(node: duckrow.Node) -> None:
    with duckrow.connect(node.url) as row:
        row.create_topic("tight", max_entries=1, when_full="block")
        row.produce("tight", b"1")
        with pytest.raises(duckrow.Timeout):
            row.produce("tight", b"2", timeout=0.05)
        row.prune("tight", 1)

        assert row.produce("tight", b"3").number == 2
        assert everything(row, "tight") == [b"3"]


# -- forks ----------------------------------------------------------------------------------------------

FORK = """
import os, sys, threading
import duckrow

row = duckrow.connect(sys.argv[1])
row.produce("forked", b"before")
follow = row.follow("forked")
next(follow)
stop = threading.Event()
def load():
    while not stop.is_set():
        row.produce("load", b"x")
thread = threading.Thread(target=load)
thread.start()
children = []
for child in range(4):
    pid = os.fork()
    if not pid:
        try:
            for index in range(50):
                row.produce("forked", b"%d-%d" % (child, index))
            row.produce("forked", b"last", wait="none")
            row.close()
        except BaseException as error:
            print("child", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(pid)
for index in range(50):
    row.produce("forked", b"p-%d" % index)
codes = [os.waitpid(pid, 0)[1] for pid in children]
stop.set()
thread.join()
row.close()
print(codes)
"""


def test_a_fork_is_a_producer_of_its_own(node: duckrow.Node) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, node.url],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    entries = list(node.client.pull("forked", limit=1_000))
    producers = {entry.producer for entry in entries}

    assert (done.stdout, done.stderr) == ("[0, 0, 0, 0]\n", "")
    assert len(producers) == 5
    for name in (b"p", b"0", b"1", b"2", b"3"):
        own = [e.value for e in entries if e.value.startswith(name + b"-")]
        assert own == [b"%b-%d" % (name, index) for index in range(50)]
    assert [e.value for e in entries].count(b"last") == 4


# -- Ctrl-C ---------------------------------------------------------------------------------------------

LIBRARY = {module.__file__ for module in (blocking, blockingline, clientcore, outbox, outboxes)}


class Interrupt:
    """Raises KeyboardInterrupt before the n-th line of the client's code."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in LIBRARY:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node() as node:
        yield node


@pytest.mark.parametrize("start", range(4))
def test_ctrl_c_at_any_line_leaves_the_client_in_order(node: duckrow.Node, start: int) -> None:
    told: list[bytes] = []
    row = duckrow.connect(node.url)
    before = sys.gettrace()
    for line in range(1 + 3 * start, 770, 12):
        sys.settrace(Interrupt(line))
        try:
            row.produce("ctrl", b"%d-a" % line)
            told.append(b"%d-a" % line)
            row.produce_many("ctrl", [b"%d-b" % line, b"%d-c" % line])
            told += [b"%d-b" % line, b"%d-c" % line]
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        row.produce("ctrl", b"%d-z" % line)
        told.append(b"%d-z" % line)
    row.close()
    found = everything(node.client, "ctrl")

    assert len(set(found)) == len(found)
    assert [value for value in found if value in set(told)] == told


def test_ctrl_c_while_no_node_is_there_is_told_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    with duckrow.connect(f"duck+unix://{tmp_path}/none.sock") as row:
        monkeypatch.setattr(row._line._hung_up, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt) as caught:
            row.pull("t")

    assert caught.value.__context__ is None, "not 'during handling of FileNotFoundError'"
