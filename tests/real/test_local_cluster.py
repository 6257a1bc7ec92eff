"""Local clusters as processes: that they can be hurt as they say, and that nothing of them is left."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from duckrow.cluster import asking, machine, wire
from duckrow.cluster.control import Control
from duckrow.cluster.guard import children_of
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.machine import BRIDGE, NODE, Machine
from duckrow.cluster.plan import HOST, Plan, Wires
from duckrow.cluster.ports import free_ports, no_namespaces, ports_from
from duckrow.cluster.processes import Processes, environment
from duckrow.node.errors import Conflict, DuckrowError, NoQuorum, NotFound, Refused, Timeout

LAUNCHER = """
import sys
from pathlib import Path
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan
with LocalCluster.launch(Plan(nodes=2, durability="memory"), Path(sys.argv[1])) as cluster:
    print(*(pid for each in cluster.machines for pid in each.pids().values()), flush=True)
    sys.stdin.read()
"""


def test_two_launchers_never_choose_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens there yet when the second one looks."""
    wished = iter([17_001, 17_001, 17_002])
    monkeypatch.setattr("random.SystemRandom.choice", lambda _self, _ports: next(wished))

    assert free_ports(1) == [17_001]
    assert free_ports(1) == [17_002]


def test_all_ends_with_the_launcher_even_if_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as launcher:
        assert launcher.stdout is not None
        pids = [int(word) for word in launcher.stdout.readline().split()]
        watched = [os.pidfd_open(pid) for pid in [*pids, *children_of(launcher.pid)]]
        # An orphan: its node cannot end it any more.
        os.kill(pids[0], signal.SIGKILL)
        launcher.kill()

        assert len(watched) == 2 * 2 + 1
        for fd in watched:
            assert select.select([fd], [], [], 30)[0], "a process lives on"
            os.close(fd)


def test_a_guard_whose_launcher_was_killed_before_it_was_ready_leaves_nothing(
    tmp_path: Path,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    subprocess.run(
        [sys.executable, "-m", "duckrow.cluster.guard", str(tmp_path / "deep" / "row")],
        env=environment(),
        input=b"",
        stdout=writer,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    os.close(writer)

    assert [*tmp_path.iterdir()] == []


def test_whoever_hears_that_a_cluster_has_ended_can_have_its_folder_at_once(tmp_path: Path) -> None:
    slow_to_end = "main(Path(sys.argv[1]), None); sys.stdin.read()"
    guard = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; from pathlib import Path; from duckrow.cluster.guard import main; {slow_to_end}",
            str(tmp_path),
        ],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with guard:
        assert guard.stdout is not None
        assert guard.stdout.readline() == b"ready\n"
        assert Processes(tmp_path).end(keep=False)
        with ExitStack() as owned:
            next_one = Processes(tmp_path).guard(owned)
            assert guard.poll() is None
        assert next_one.returncode == 0


def test_the_cluster_of_another_user_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(_sock: socket.socket, _path: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(Refused, match=r"guard\.sock is that of another user"):
        asking.ask(tmp_path, "guard.sock", {})


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """One that does nothing, in the place of a bridge."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as found:
        yield found


def test_a_process_that_has_not_said_its_number_yet_is_killed_all_the_same(
    tmp_path: Path, program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([0, 0])
    monkeypatch.setattr(machine, "holder", lambda _lock: next(looks, program.pid))
    Machine(1, "m1", "", tmp_path).kill(BRIDGE, seconds=30)

    assert program.wait() == -signal.SIGKILL


def test_nobody_is_killed_whose_number_a_bridge_had_that_ended_meanwhile(
    tmp_path: Path, program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([os.getpid()])  # whoever has the number of the old one now
    monkeypatch.setattr(machine, "holder", lambda _lock: next(looks, program.pid))
    Machine(1, "m1", "", tmp_path).kill(BRIDGE, seconds=30)

    assert program.wait() == -signal.SIGKILL


def test_ports_that_only_root_may_have_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(_sock: socket.socket, _address: tuple[str, int]) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "bind", bind)
    with pytest.raises(Refused, match="only root may listen at port 80: choose one from 1024"):
        ports_from(80, 4)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"", NotFound, "the cluster is down"),
        (b'{"error": "there is no room"}\n', Refused, "s.sock: there is no room"),
    ],
)
def test_who_hangs_up_or_says_that_it_cannot_has_not_done_what_was_asked(
    answer: bytes, kind: type[DuckrowError], said: str, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(str(tmp_path / "s.sock"))
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as caller:
                caller.recv(99)
                caller.sendall(answer)

        served = threads.submit(serve)
        with pytest.raises(kind, match=said):
            asking.ask(tmp_path, "s.sock", {"end": True})
        served.result()


def test_a_cluster_that_stays_is_found_by_its_folder_hurt_and_ended(tmp_path: Path) -> None:
    home = tmp_path / ("so long that no socket could have its path " * 3)
    plan = Plan(nodes=2, durability="memory")
    LocalCluster.launch(plan, home, leash=False)
    found = LocalCluster.at(home)
    try:
        with pytest.raises(Conflict, match=r"a cluster runs in .* cluster down --dir"):
            LocalCluster.launch(plan, home)
        with pytest.raises(Conflict, match="m1 runs"):
            found.start("m1")
        with pytest.raises(Conflict, match="m2 runs: stop or kill it"):
            found.wipe("m2")
        with pytest.raises(Refused, match="no wires"):
            found.links_are(Wires(delay=0.01))
        with pytest.raises(NotFound, match="no machine 'm3': there are m1, m2"):
            found.kill("m3")
        assert found.client(0).produce("rides", b"one").number == 1
        found.pause("m2")
        assert found.machine(1).is_paused
        found.resume("m2")
        found.kill("m2", NODE)
        bridge = found.machine(1).pid(BRIDGE)
        assert not found.machine(1).pid(NODE)
        found.start("m2")
        assert found.machine(1).pid(BRIDGE) == bridge, "its node adopts it"
        assert [e.value for e in found.client("m2").pull("rides", wait=10)] == [b"one"]
    finally:
        found.down()
    assert not any(machine.pids() for machine in found.machines)
    with pytest.raises(NotFound, match="its disks were kept"):
        LocalCluster.at(home)
    with pytest.raises(Refused, match="disks of 2 machines, and 3 are to be"):
        LocalCluster.launch(Plan(nodes=3), home)
    with LocalCluster.launch(plan, home, keep=False) as again:
        assert [e.value for e in again.client("m2").pull("rides", wait=10)] == [b"one"]
    assert (home / "m1" / "data").exists(), "what was kept once stays"


def test_the_row_is_the_same_over_links_that_lose_and_damage_packets_and_are_cut_one_way() -> None:
    """In namespaces, or where they cannot be had over wires that lose, which is all they can."""
    packets = not no_namespaces()
    bad = Wires(
        loss=0.05, **({"overtakes": 0.1, "comes_twice": 0.1, "is_flipped": 0.05} if packets else {})
    )
    plan = Plan(nodes=2, durability="memory", namespaces=packets, wires=bad)
    with LocalCluster.launch(plan) as cluster:
        told = [cluster.client(at).produce_many("rides", [b"x" * 3_000] * 50) for at in (0, 1)]
        cluster.links_are(Wires())
        cluster.cut("m2", "m1", one_way=True)
        with pytest.raises((NoQuorum, Timeout)), cluster.connect("m1", timeout=1.0) as row:
            row.produce("rides", b"not answered in that time")
        cluster.heal()
        last = cluster.client("m2").produce("rides", b"after it").number or 0
        read = [cluster.client(at).pull("rides", last - 1, wait=30)[0].number for at in (0, 1)]

    assert sorted((each.first, each.last) for each in told) == [(1, 50), (51, 100)]
    assert read == [last, last]


def test_who_is_not_root_is_told_that_namespaces_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(Refused, match="they need root, and wires on loopback"):
        LocalCluster.launch(Plan(namespaces=True))


@pytest.fixture
def delayed(tmp_path: Path) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over a wire of 20 ms."""
    at, behind = free_ports(2)
    told = (
        f'{{"delay": 0.02, "jitter": 0, "rate": 0, "loss": 0, "links": [[1, 2, {at}, {behind}]]}}'
    )
    path = tmp_path / "w.sock"
    with (
        socket.create_server((HOST, behind)) as server,
        subprocess.Popen(
            [sys.executable, "-m", "duckrow.cluster.wire", "w.sock", told],
            env=environment(),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        with socket.create_connection((HOST, at)) as one:
            other = server.accept()[0]
            with other:
                yield one, other
        assert path.exists()
        process.kill()


def test_what_goes_over_a_wire_is_late_and_whole(
    delayed: tuple[socket.socket, socket.socket],
) -> None:
    one, other = delayed
    sent = os.urandom(3_000_000)
    began = time.monotonic()
    other.sendall(b"!")
    assert one.recv(1) == b"!"
    assert time.monotonic() - began >= 0.02
    parts: list[bytes] = []
    for start in range(0, len(sent), 300_000):
        one.sendall(sent[start : start + 300_000])
    one.shutdown(socket.SHUT_WR)
    while part := other.recv(1 << 20):
        parts.append(part)

    assert b"".join(parts) == sent


def test_wires_go_on_when_one_end_is_gone_and_the_other_takes_no_more(
    delayed: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    one, other = delayed
    one.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            select.select([], [one], [], 0.5)
            one.send(bytes(1 << 20))
    other.sendall(b"back")
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
    other.settimeout(30)
    with suppress(ConnectionError):
        while other.recv(1 << 20):
            pass

    assert asking.ask(tmp_path, "w.sock", {"where": True})["pid"]


def test_a_cut_wire_keeps_what_it_has_and_gives_it_when_healed(
    delayed: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    one, other = delayed

    def tell(line: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(tmp_path / "w.sock"))
            sock.sendall(line + b"\n")
            assert json.loads(sock.recv(99))["pid"]

    tell(b'{"cut": [1, 2], "one_way": true}')
    one.sendall(b"there")
    other.sendall(b"back")
    assert one.recv(4) == b"back", "one way only"
    assert not select.select([other], [], [], 0)[0]
    tell(b'{"heal": []}')

    assert other.recv(5) == b"there"


def test_wires_go_on_when_what_they_have_is_due_in_ages(
    delayed: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    late = {"delay": 1e15, "jitter": 0, "rate": 0, "loss": 0}
    asking.ask(tmp_path, "w.sock", {"links": late})
    delayed[0].sendall(b"late")
    for _ in range(3):  # the first one may come before what was sent
        assert asking.ask(tmp_path, "w.sock", {"how": (1, 2)})["how"] == late


def test_pieces_that_are_due_together_keep_their_order() -> None:
    near, far = socket.socketpair()
    source, drain = socket.socketpair()
    with near, far, source, drain:
        lane = wire.Lane((1, 2), far, source)
        quick = {"delay": 0.0, "jitter": 0.0, "rate": 0.0, "loss": 0.0}
        slow = {**quick, "delay": 5.0}
        near.send(b"a")
        lane.take(0.0, slow)
        near.send(b"b")
        lane.take(1.0, quick)
        lane.give(4.9)
        assert lane.bytes == 2
        lane.give(5.0)

        assert (lane.bytes, drain.recv(9)) == (0, b"ab")


def test_a_link_is_as_it_was_told_until_all_are_told_the_same(tmp_path: Path) -> None:
    plan = Plan(nodes=3, topology="chain", durability="memory", wires=Wires())
    with LocalCluster.launch(plan) as cluster:
        cluster.link_is("m1", "m2", Wires(delay=0.03))
        slow = [cluster.link_between(*pair).delay for pair in (("m2", "m1"), ("m2", "m3"))]
        began = time.monotonic()
        cluster.client("m1").produce("rides", b"there and back over that link")
        took = time.monotonic() - began
        cluster.links_are(Wires(delay=0.001))
        same = [cluster.link_between(*pair).delay for pair in (("m2", "m1"), ("m2", "m3"))]
        with pytest.raises(Refused, match="no link between m1 and m3"):
            cluster.link_between("m1", "m3")

    assert slow == [0.03, 0.0]
    assert took >= 0.06
    assert same == [0.001, 0.001]


def test_links_that_are_told_nonsense_stay_as_they_were(tmp_path: Path) -> None:
    control = Control(str(tmp_path / "c.sock"), {"delay": 0.5})
    with control.socket:
        said: list[object] = [{}, {"delay": "slow"}, {"delay": None}, []]
        for nonsense in said:
            with pytest.raises((KeyError, TypeError, ValueError)):
                control.obey({"links": nonsense})

        assert control.how((1, 2)) == {"delay": 0.5}
