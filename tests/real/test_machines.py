"""Nodes of one cluster as processes with their bridges: started, killed, ended in order."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from clikit import duckrow
from duckrow.node.locks import BRIDGE_LOCK
from duckrow.node.records import PREFIX_BYTES, RecordKind, decode, seed_of
from duckrow.node.segmentreads import opening_in
from duckrow.node.supervising import Supervisor

from .daemonkit import PROGRAM, SECONDS
from .machines import Machine, Machines, cluster_text, machines, until

NAMES = ("m1", "m2", "m3")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("row"), *NAMES) as found:
        for machine in found.values():
            machine.start()
        yield found


@pytest.fixture
def three(shared: Machines) -> Machines:
    """All of them run, whatever a test before did."""
    for machine in shared.values():
        machine.ready()
    until(lambda: len(shared["m1"].status()["members"]) == 3, shared["m1"].said)
    return shared


def values(machine: Machine, topic: str) -> list[bytes]:
    with machine.client() as client:
        return [entry.value for entry in client.pull(topic, limit=10_000)]


def test_nodes_of_one_cluster_file_have_the_same_entries(three: Machines) -> None:
    for name, machine in three.items():
        with machine.client() as client:
            client.produce_many("same", [f"{name}-{i}" for i in range(20)])
    three.agree()

    found = [values(machine, "same") for machine in three.values()]
    assert found[0] == found[1] == found[2]
    assert sorted(found[0]) == sorted(f"{n}-{i}".encode() for n in NAMES for i in range(20))


def test_a_node_that_was_killed_comes_back_to_its_bridge_and_the_others_go_on(
    three: Machines,
) -> None:
    killed, other = three["m1"], three["m2"]
    bridge, view = killed.bridge, other.status()["view"]
    killed.kill()
    with other.client() as client:
        client.produce_many("on", ["while", "it", "was", "away"])
    killed.start().ready()

    assert killed.bridge == bridge
    assert f"bridge_adopted pid={bridge}" in killed.said()
    assert three.agree()["view"] == view  # nobody had to agree on anything
    assert values(killed, "on") == [b"while", b"it", b"was", b"away"]


def test_a_bridge_that_was_killed_is_started_again_and_nothing_is_lost(three: Machines) -> None:
    node = three["m1"]
    before = node.pid
    with node.client() as here, three["m2"].client() as there:
        numbers = [here.produce("again", b"before").number]
        killed = node.kill_bridge()
        numbers.append(there.produce("again", b"elsewhere").number)
        numbers.append(here.produce("again", b"after").number)  # waits for the new one

    assert numbers == [1, 2, 3]
    assert node.pid == before
    assert node.bridge not in (0, killed)
    three.agree()
    assert values(node, "again") == [b"before", b"elsewhere", b"after"]


def test_a_bridge_that_was_adopted_is_looked_after_like_a_child(three: Machines) -> None:
    node = three["m3"]
    node.kill()
    node.start().ready()
    killed = node.kill_bridge()
    until(lambda: node.bridge not in (0, killed), node.said)
    with node.client() as client:
        client.produce("adopted", b"one")


# A bridge as far as its supervisor sees it: it has the lock, and says by its exit code whether it was
# told to end once, or twice, which would end a bridge at once.
TOLD_TWICE = """
import fcntl, os, signal, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, b"%d" % os.getpid())
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
sys.exit(1 if signal.sigtimedwait({signal.SIGTERM}, 0.5) else 0)
"""


def test_a_bridge_that_was_adopted_is_told_once_that_it_shall_end(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TOLD_TWICE, str(tmp_path / BRIDGE_LOCK)], stdout=subprocess.PIPE
    ) as bridge:
        assert bridge.stdout is not None
        bridge.stdout.readline()

        async def main() -> None:
            supervisor = Supervisor([], tmp_path)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.run)
                while supervisor.pid != bridge.pid:
                    await trio.lowlevel.checkpoint()
                await supervisor.stop()

        trio.run(main)

    assert bridge.returncode == 0


def test_a_bridge_that_is_told_to_end_by_its_node_and_by_others_ends_in_order(
    tmp_path: Path,
) -> None:
    """A shutdown tells all processes of the machine, and a node then tells its bridge.  Ended at once, at
    `write` it could not say after the next boot what it had acknowledged, and no machine of a cluster that is
    shut down as a whole could.
    """
    with machines(tmp_path, "m1") as row:
        node = row["m1"].start().ready()
        bridge = node.bridge
        os.kill(bridge, signal.SIGTERM)
        os.kill(bridge, signal.SIGINT)
        node.until("bridge_ended")
        assert "bridge_ended code=0" in node.said()


def test_who_started_a_node_is_told_nothing_by_its_bridge(tmp_path: Path) -> None:
    """It had said that all is ready before the node was, and that all ends when it was started again."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor,
        machines(tmp_path, "m1", NOTIFY_SOCKET=str(tmp_path / "notify")) as row,
    ):
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(SECONDS)
        node = row["m1"].start().ready()
        os.kill(node.bridge, signal.SIGTERM)
        node.until("bridge_ready", times=2)
        node.stop()
        said = [supervisor.recv(100), supervisor.recv(100)]
        supervisor.setblocking(False)
        with pytest.raises(BlockingIOError):
            supervisor.recv(100)
    assert said == [b"READY=1", b"STOPPING=1"]


def test_told_to_stop_a_node_ends_its_bridge_in_order_and_the_others_know_at_once(
    three: Machines,
) -> None:
    node, other = three["m3"], three["m1"]
    assert node.stop() == 0
    assert node.bridge == 0
    _, stopping, after = node.said().rpartition("bridge: bridge_stopping")
    assert stopping
    assert " warning " not in after  # of its orderly end; a link may still have come up
    assert " error " not in after
    with other.client() as client:
        client.produce("left", b"one")
        assert {member["id"] for member in client.status()["members"]} == {1, 2}
    node.start().ready()
    three.agree()
    assert values(node, "left") == [b"one"]


def test_a_machine_that_lost_its_disk_copies_the_row_and_votes_again(three: Machines) -> None:
    lost = three["m2"]
    with three["m1"].client() as client:
        client.produce("disk", b"one")
        lost.stop()
        shutil.rmtree(lost.data)
        client.produce("disk", b"two")
        lost.start().ready()
        until(lambda: len(lost.status()["members"]) == 3, lost.said)
        client.produce("disk", b"three")
    three.agree()
    assert values(lost, "disk") == [b"one", b"two", b"three"]


def all_up(machine: Machine) -> bool:
    return all(link["up"] for link in machine.status()["links"])


def test_a_machine_tells_its_links_and_who_is_there(three: Machines) -> None:
    three.agree()
    for name, machine in three.items():
        until(partial(all_up, machine), machine.said)
        status = machine.status()
        assert [member["name"] for member in status["members"]] == [*NAMES]
        assert {peer["name"]: peer["state"] for peer in status["peers"]} == dict.fromkeys(
            NAMES, "acts"
        )
        assert {link["peer"] for link in status["links"]} == {*NAMES} - {name}
        assert all(link["position"] > 0 for link in status["links"])
        assert status["waiting_for"] == []
        assert duckrow(f"why --url {machine.url}").code == 0
    rows = duckrow(f"link ls -o jsonl --url {three['m1'].url}").rows
    assert [(row["node"], row["peer"], row["up"]) for row in rows] == [
        ("m1", "m2", True),
        ("m1", "m3", True),
    ]


def test_the_rows_of_all_members_of_the_file_are_verified(three: Machines) -> None:
    position = three.agree()["position"]
    found = duckrow(f"verify -o json --cluster {three['m1'].file}").document

    assert (found["same"], found["position"], found["first_difference"]) == (True, position, None)
    assert [*found["nodes"]] == [*NAMES]
    assert len({node["hash"] for node in found["nodes"].values()}) == 1


def test_who_is_alone_says_for_whom_it_waits(three: Machines) -> None:
    one = three["m1"]
    for name in ("m2", "m3"):
        three[name].stop()
    try:
        until(lambda: one.status()["waiting_for"] == ["m2", "m3"], one.said)
        assert (
            "m1 takes nothing new: it does not reach m2 and m3"
            in duckrow(f"why --url {one.url} -o csv").text
        )
        told = duckrow(f"produce t one --timeout 1 --url {one.url}")
        assert told.code == 5
        assert "m1 can order nothing: it does not reach m2 and m3" in told.err
        (given,) = duckrow(f"produce t one --wait accepted --url {one.url} -o jsonl").rows
        waits = duckrow(f"receipt {given['receipt']} --url {one.url} -o json").document
        assert (waits["state"], waits["number"]) == ("waiting", None)
    finally:
        for name in ("m2", "m3"):
            three[name].start()
    until(lambda: values(one, "t") == [b"one"], one.said)


def first_item(segment: bytes) -> int:
    """The offset of its record, which a recovery can make again."""
    opening = opening_in(segment, 1)
    assert opening is not None
    seed, offset = seed_of(opening.uuid, 1), 0
    while record := decode(segment, 0, offset, seed):
        if record.kind == RecordKind.ITEM:
            return offset
        offset = record.end
    raise AssertionError("there is no item")


def test_doctor_reads_the_row_of_a_stopped_machine_of_a_cluster_and_changes_nothing(
    tmp_path: Path,
) -> None:
    """It had refused to, as a node alone has to, said to stop the node, and ended with exit code 0."""

    def files(*words: str) -> dict[str, str]:
        done = duckrow(f"doctor -o jsonl --set node.data={data} {' '.join(words)}")
        rows: list[dict[str, str]] = [json.loads(line) for line in done.out.splitlines()]
        return rows[-1]

    def contents() -> dict[str, bytes]:
        return {
            p.name: p.read_bytes() for p in data.rglob("*") if p.is_file() and "lock" not in p.name
        }

    with machines(tmp_path, "m1", "m2", "m3") as row:
        for machine in row.values():
            machine.start()
        data = row["m1"].data
        with row["m1"].ready().client() as client:
            client.produce_many("T", [b"ride-1", b"ride-2", b"ride-3"], timeout=30)
        assert files("--files")["next"] == "stop the node first"
        row["m1"].clear()
        before = contents()
        found = files("--files")
        assert (found["state"], contents()) == ("ok", before)
        assert "every byte of the row is whole, up to position" in found["said"]
        assert "its neighbours" in files("--rebuild")["next"]

        segment = data / "row" / "00000001.seg"
        whole = segment.read_bytes()
        damaged = bytearray(whole)
        damaged[first_item(whole) + PREFIX_BYTES] ^= 1
        segment.write_bytes(damaged)
        before = contents()
        assert (files("--files")["state"], contents()) == ("bad", before), "nothing is put back"
        segment.write_bytes(whole.replace(b"ride-2", b"RIDE-2", 1))
        before = contents()
        found = files("--files")
        assert (found["state"], contents()) == ("bad", before)
        assert "00000001.seg" in found["said"]
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size - 20)
        before = contents()
        found = files("--files")
        assert found["state"] != "ok", "it depends on what the last record had said to be durable"
        assert contents() == before, "an end is not cut off"
        row["m1"].start().ready()
        until(lambda: values(row["m1"], "T") == [b"ride-1", b"ride-2", b"ride-3"], row["m1"].said)


def test_doctor_makes_no_row_of_its_own_where_a_machine_waits_for_its_first_view(
    tmp_path: Path,
) -> None:
    """It began one, as a node alone does, and the machine went on by itself."""
    with machines(tmp_path, "m1", "m2", "m3") as row:
        segment = row["m1"].start().data / "row" / "00000001.seg"
        until(lambda: segment.exists() and segment.stat().st_size > 0, row["m1"].said)
        row["m1"].clear()
        before = segment.read_bytes()
        done = duckrow(f"doctor --files --set node.data={row['m1'].data}")
        assert (done.code, segment.read_bytes()) == (0, before)
        for machine in row.values():
            machine.start()
        until(lambda: len(row["m1"].ready().status()["members"]) == 3, row["m1"].said)


def test_a_bridge_without_a_node_leaves_the_others_and_ends(tmp_path: Path) -> None:
    with machines(tmp_path, *NAMES, DUCKROW__NODE__ORPHAN="500ms") as found:
        for machine in found.values():
            machine.start()
        for machine in found.values():
            machine.ready()
        orphan, other = found["m2"], found["m1"]
        orphan.kill()
        until(lambda: not orphan.bridge, orphan.said)
        assert "no_node" in orphan.said()
        with other.client() as client:
            client.produce("t", b"one")
            until(lambda: len(client.status()["members"]) == 2, other.said)
        orphan.start().ready()
        found.agree()
        assert values(orphan, "t") == [b"one"]


def test_a_node_that_was_alone_gets_peers_and_they_get_its_row(tmp_path: Path) -> None:
    with machines(tmp_path, "m1", "m2") as found:
        first, second = found.values()
        file = first.file.read_text()
        first.start("--set", "store.durability=write", alone=True).ready()
        with first.client() as client:
            client.produce_many("t", ["one", "two"])
        assert first.stop() == 0

        # The file of a cluster of one first, since others join by command.
        first.file.write_text(file.replace("id = 2\n", "id = 2\nvotes = 0\n"))
        first.start().ready()
        assert values(first, "t") == [b"one", b"two"]
        second.start().ready()
        with first.client() as client:
            client.produce("t", b"three")
            until(lambda: second.status()["position"] > 2, second.said)
            client.members("add", node="m2", weight=1, witness=False, seconds=10.0)
            client.produce("t", b"four")
        with second.client() as client:
            client.produce("t", b"five")
        found.agree()
        for machine in found.values():
            assert values(machine, "t") == [b"one", b"two", b"three", b"four", b"five"]


# -- what cannot be ----------------------------------------------------------------------------


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    with machines(tmp_path, "m1", "m2") as found:
        yield found["m1"]


def refused(machine: Machine, *words: str, code: int = 1) -> str:
    """What it said; it ended by itself, and had started no bridge, or one."""
    machine.log.unlink(missing_ok=True)
    machine.start(*words)
    assert machine.wait() == code, machine.said()
    assert machine.said().count("bridge_started") <= 1
    assert "Traceback" not in machine.said()
    assert machine.bridge == 0
    return machine.said()


def test_a_cluster_file_that_is_wrong_is_told(one: Machine) -> None:
    one.file.write_text(one.file.read_text() + "[members.m3]\nid = 1\n")
    said = refused(one)
    assert "members.m3 has no address" in said
    assert "members.m1 and members.m3 have the same id, 1" in said


def test_a_name_that_is_not_in_the_cluster_file_is_told(one: Machine) -> None:
    one.name = "m4"
    assert "no member 'm4': there are m1, m2" in refused(one, code=3)


def test_a_cluster_file_that_is_not_there_is_told(one: Machine) -> None:
    one.file.unlink()
    one.start()
    assert one.wait() == 3
    assert f"there is no cluster file {one.file}" in one.said()


def test_a_port_that_somebody_has_is_told(one: Machine) -> None:
    port = int(re.findall(r"127\.0\.0\.1:(\d+)", one.file.read_text())[0])
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        said = refused(one)
    assert f"tcp://127.0.0.1:{port} is in use: another process listens there" in said
    assert "the bridge ended with exit code 1; it says why above" in said


def test_addresses_that_others_reach_need_a_secret(one: Machine) -> None:
    near = one.file.read_text()
    one.file.write_text(near.replace("127.0.0.1", "10.11.12.13", 1))
    assert "10.11.12.13" in (said := refused(one))
    assert "the cluster has no secret: give it one under [cluster]" in said
    one.file.write_text(near)
    assert "tcp://0.0.0.0:3826 can be reached" in refused(one, "--peers", "0.0.0.0:3826")


def test_the_row_of_another_member_is_left_alone(one: Machine, tmp_path: Path) -> None:
    one.start(alone=True).ready()
    assert one.stop() == 0
    one.file.write_text(cluster_text({"m1": 1, "m2": 2}, tmp_path, first=7))
    said = refused(one)
    assert "the row here is that of member 1, and the cluster file gives m1 the id 7" in said


def test_a_folder_has_one_node_and_one_bridge(one: Machine, tmp_path: Path) -> None:
    one.start().ready()
    second = Machine(tmp_path / "second", one.name, one.file)
    second.data = one.data
    second.start()
    assert second.wait() == 1
    assert f"is held by process {one.pid}" in second.said()
    bridge = subprocess.run(
        [*PROGRAM, "bridge", "run", "--cluster", one.file, "--name", "m1", "--data", one.data],
        env={"PYTHONPATH": "src"},
        stderr=subprocess.PIPE,
        timeout=SECONDS,
        text=True,
        check=False,
    )
    assert bridge.returncode == 1
    assert f"is held by process {one.bridge}" in bridge.stderr
    assert one.status()["ready"]


def test_told_to_stop_while_it_waits_for_its_bridge_a_node_stops(one: Machine) -> None:
    one.start()
    until(lambda: one.bridge != 0, one.said)
    one.signal(signal.SIGTERM)
    one.wait()
    until(lambda: one.bridge == 0, one.said)
    assert "Traceback" not in one.said()
