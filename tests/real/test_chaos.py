"""Clusters that are hurt under load: what is reported, and that all is well afterwards."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckrow.cluster import chaos, chaosload
from duckrow.cluster.faultplan import SCENARIOS, Fault
from duckrow.cluster.guard import children_of
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan, Wires
from duckrow.cluster.ports import no_namespaces
from duckrow.cluster.processes import environment
from duckrow.cluster.thindisk import may_mount, no_disks
from duckrow.node.errors import Timeout
from duckrow.tools.cli_chaos import PROMISES, row_of

CHAOS = [sys.executable, "-m", "duckrow.tools.cli", "chaos", "run"]
TOPOLOGY = "chain"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    plan = Plan(nodes=3, topology=TOPOLOGY, durability="write", wires=Wires())
    with LocalCluster.launch(plan) as found:
        yield found


def test_a_cluster_that_is_hurt_keeps_its_promises(cluster: LocalCluster) -> None:
    said: list[str] = []

    result = chaos.run(cluster, {}, "all", 5, 8.0, lambda _, fault: said.append(str(fault)))

    row = row_of(result, "all", 5)
    assert row["ok"], str(result.report)
    assert row["acknowledged"] > 0
    assert row["operations"] > 0
    assert sum(row["faults"].values()) == len(said) > 0
    assert not any(row[promise] for promise in PROMISES)
    assert not any(topic.startswith("chaos-") for topic in cluster.client(0).topics())


def test_what_is_taken_away_behind_its_back_is_reported(cluster: LocalCluster) -> None:
    """Entries that somebody prunes were acknowledged and are gone: as if the product had lost them."""

    def sabotage(_: float, __: Fault) -> None:
        with cluster.connect(0) as row:
            (topic,) = (name for name in row.topics() if name.startswith("chaos-"))
            last = row.topic(topic).partitions[0].last
            row.prune(topic, last)

    result = chaos.run(cluster, {}, "pause", 1, 4.0, sabotage)

    row = row_of(result, "pause", 1)
    assert not row["ok"]
    assert row["lost"] + sum(row["other"].values()) + row["skipped"] > 0
    _forget(cluster)


def test_whoever_is_interrupted_heals_what_was_hurt(cluster: LocalCluster) -> None:
    command = [*CHAOS, "pause", "--seed", "3", "--duration", "60", "--dir", str(cluster.folder)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert "pause, seed 3" in running.stderr.readline()
        assert "stands still" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        running.communicate()

    assert running.returncode == 130
    for machine in cluster.machines:
        assert not machine.is_paused
        cluster.wait(machine.name)
    assert not any(topic.startswith("chaos-") for topic in cluster.client(0).topics())


def test_a_run_starts_a_cluster_of_its_own_and_ends_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*CHAOS, "kill", "--seed", "2", "--nodes", "2", "--duration", "2", "-o", "json"],
        env={**environment(), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["ok"]
    assert row["seed"] == 2
    assert set(row["faults"]) <= set(SCENARIOS["kill"])
    assert [*tmp_path.iterdir()] == []


def test_a_fault_that_ends_in_an_error_is_no_success(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(name: str, *_processes: str) -> None:
        raise Timeout(f"{name} does not stand still")

    monkeypatch.setattr(cluster, "pause", pause)
    result = chaos.run(cluster, {}, "pause", 1, 2.0, lambda *_: None)
    _forget(cluster)

    assert result.seconds >= 2.0, "all others are done"
    assert row_of(result, "pause", 1)["stuck"] == result.faults.total() > 0
    assert "m3 stands still for 0.15 s: m3 does not stand still" in str(result.report)


def test_a_mistake_in_what_hurts_a_cluster_is_raised(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "pause", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        chaos.run(cluster, {}, "pause", 1, 60.0, lambda *_: None)
    _forget(cluster)


@pytest.mark.parametrize(
    ("who", "kind", "count"), [("_produce", "stuck-produce", 3), ("_pull", "stuck-pull", 3)]
)
def test_clients_that_do_not_go_on_when_all_is_well_again_are_stuck(
    who: str, kind: str, count: int, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaosload.Load, who, lambda *_: None)
    monkeypatch.setattr(chaos, "GO_ON_SECONDS", 0.5)
    result = chaos.run(cluster, {}, "cut", 1, 0.5, lambda *_: None)
    _forget(cluster)

    assert result.report.counts == {kind: count}


def _forget(cluster: LocalCluster) -> None:
    """What a run has left for whoever looks into it."""
    row = cluster.client(0)
    for topic in row.topics():
        if topic.startswith("chaos-"):
            row.delete_topic(topic)


@pytest.mark.parametrize("scenario", ["disk-full", "kill"])
def test_a_run_that_is_killed_leaves_nothing_either(scenario: str, tmp_path: Path) -> None:
    """Disks of its own, which root has, included."""
    if scenario == "disk-full" and no_disks():
        return
    command = [*CHAOS, scenario, "--seed", "2", "--nodes", "3", "--duration", "60"]
    with subprocess.Popen(
        command,
        env={**environment(), "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        assert "seed 2" in running.stderr.readline()
        running.stderr.readline()  # something is hurt
        (guard,) = children_of(running.pid)
        ended = os.pidfd_open(guard)
        running.kill()
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)

    assert [*tmp_path.iterdir()] == []


def test_what_cannot_be_is_refused_before_anything_is_hurt(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    def said(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*CHAOS, *words],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        return done.returncode, done.stderr

    code, told = said()
    assert (code, "there is no cluster in" in told) == (3, True)
    code, told = said("flood", "--dir", str(cluster.folder))
    assert (code, "there is no scenario 'flood': kill, power" in told) == (3, True)
    code, told = said("disk-full", "--dir", str(cluster.folder))
    assert (code, "its machines have no disks of their own" in told) == (1, True)
    code, told = said("kill", "--nodes", "3", "--dir", str(cluster.folder))
    assert (code, "--nodes starts a cluster for this run" in told) == (2, True)
    code, told = said("kill", "--topology", "ring", "--dir", str(cluster.folder))
    assert (code, "--topology is of a cluster that --nodes starts" in told) == (2, True)


def test_root_of_a_container_has_no_disks_of_its_own() -> None:
    assert may_mount("Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n")
    assert not may_mount("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n")


def test_a_machine_whose_disk_was_full_may_take_a_moment_to_see_that_it_has_room() -> None:
    if no_disks():
        return
    words = ["disk-full", "--seed", "3", "--nodes", "3", "--duration", "2", "-o", "json"]
    done = subprocess.run(
        [*CHAOS, *words], env=environment(), capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["faults"]["disk-full"] >= 1


@pytest.mark.long  # with disks of their own, or in namespaces: for root
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("seed", "nodes", "topology", "durability", "namespaces"),
    [
        (1, 3, "mesh", "write", False),
        (2, 3, "chain", "fsync", False),
        (3, 3, "mesh", "write", True),
        (4, 5, "ring", "write", False),
        (5, 5, "mesh", "write", True),
    ],
)
def test_everything_at_once_breaks_no_promise(
    seed: int, nodes: int, topology: str, durability: str, namespaces: bool
) -> None:
    """In a process of its own, since its mounts are."""
    words = ["all", "--seed", str(seed), "--nodes", str(nodes), "--topology", topology]
    words += ["--durability", durability, "--duration", "120", "-o", "json"]
    if namespaces:
        assert no_namespaces() == ""
        words.append("--netns")
    done = subprocess.run(
        [*CHAOS, *words], env=environment(), capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads(done.stdout)
    assert row["ok"]
    assert len(row["faults"]) >= 6, row
