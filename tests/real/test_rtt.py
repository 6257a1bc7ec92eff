"""Round trips and late arrivals, measured on clusters of real processes, which are left as they were found."""

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

from clikit import Done, duckrow
from duckrow.cluster.guard import children_of
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan, Wires
from duckrow.cluster.ports import no_namespaces
from duckrow.cluster.processes import environment
from duckrow.cluster.relays import PATIENCE
from duckrow.node.blocking import Client
from duckrow.tools import lateruns
from duckrow.tools.late import Read, Verdict
from duckrow.tools.roundtrips import SAMPLE, SUMMARY


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A chain of three, whose second link is slower than the first."""
    plan = Plan(nodes=3, topology="chain", durability="memory", wires=Wires(delay=0.002))
    with LocalCluster.launch(plan) as found:
        found.link_is("m2", "m3", Wires(delay=0.006))
        yield found


def rtt(cluster: LocalCluster, words: str) -> Done:
    return duckrow(f"rtt --dir {cluster.folder} {words}")


def test_a_cluster_that_runs_is_measured_over_the_links_that_it_has(cluster: LocalCluster) -> None:
    found = rtt(cluster, "--count 6 -o json").document

    assert (found["near"], found["far"], found["hops"]) == ("m1", "m3", 2)
    assert (found["delay_ms"], found["wire_ms"]) == (4, 16)
    assert found["durability"] == "memory"
    assert found["p50_ms"] >= 16, "the wires delay as much"
    assert found["relay_p50_ms"] >= 16, "those of the relays, too"
    assert {*SUMMARY} <= found.keys()


def test_sizes_are_swept_from_any_machine_to_any_other(cluster: LocalCluster) -> None:
    rows = rtt(cluster, "--from m2 --to m1 --size 1,300KiB --count 3").rows

    assert [(row["size"], row["hops"], row["wire_ms"]) for row in rows] == [
        (1, 1, 4),
        (300 * 1024, 1, 4),
    ]


def test_samples_are_kept_in_a_file_and_in_a_topic(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "trips.jsonl"
    before = {*cluster.client(0).topics()}
    row = rtt(cluster, f"--to m2 --count 4 --samples {file} --record latency -o json").document

    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["sample"] for each in kept] == [1, 2, 3, 4]
    assert all([*each] == [*SAMPLE] for each in kept)
    assert max(each["ms"] for each in kept) == pytest.approx(row["max_ms"], abs=0.001)
    assert {each["run"] for each in kept} == {row["run"]}
    found = cluster.client(2).pull("latency", wait=10)
    assert [json.loads(entry.value) for entry in found] == kept
    assert {*cluster.client(0).topics()} - before == {"latency"}, "the others are gone"


def test_what_cannot_be_measured_is_told_before_anything_is_started(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    wrong = rtt(cluster, "--durability fsync")
    assert wrong.code == 1
    assert "has durability memory, not fsync" in wrong.err
    assert rtt(cluster, "--delay 5").code == 2
    assert rtt(cluster, "--to m9").code == 3
    assert duckrow("rtt --nodes 2 --record latency").code == 2
    for record in ("no/topic --url duck://127.0.0.1:1", "latency --url duck://127.0.0.1:1"):
        told = duckrow(f"rtt --nodes 2 --timeout 0.5 --record {record}")
        assert (told.code != 0, "starting" in told.err) == (True, False)
    assert duckrow("rtt --topology knot").code == 2
    assert duckrow("rtt --size 10,0").code == 2
    assert duckrow("rtt --size 2MiB").code == 2
    assert duckrow("rtt --url duck://127.0.0.1:1").code == 2
    assert "there are m1 to m2" in duckrow("rtt --nodes 3,2 --to m3").err
    assert "a local cluster has 1 to" in duckrow("rtt --nodes 3,99").err
    assert duckrow("rtt --experiments --nodes 4").code == 2
    assert duckrow(f"rtt --dir {tmp_path}").code == 3
    assert duckrow("rtt --plot trips.xls").code == 1
    assert duckrow(f"rtt --samples {tmp_path}/no/trips.csv").code == 3


def test_clients_of_an_experiment_are_at_all_machines_and_see_one_row(
    cluster: LocalCluster,
) -> None:
    words = f"bench matrix --dir {cluster.folder} --producers 3 --consumers 3 --topics 1,2"
    rows = duckrow(f"{words} --messages 5").rows

    assert [(row["deliveries"], row["ok"]) for row in rows] == [(45, True), (90, True)]
    (row,) = duckrow(f"bench topics --dir {cluster.folder} --topics 3 --count 12").rows
    assert row["ok"]


def test_no_reader_of_the_row_misses_what_comes_late(cluster: LocalCluster) -> None:
    """Of the same entries sites without an agreement make different logs."""
    done = duckrow(f"bench late --dir {cluster.folder} --messages 40 --rate 400 -o json")

    found = done.document
    assert (found["writers"], found["readers"], found["entries"]) == (3, 6, 120)
    assert found["delays_ms"] == [2, 6]
    assert [found[name] for name in ("skipped", "twice", "reordered", "different")] == [0] * 4
    assert found["ok"]
    assert found["by_site_differing"] > 0
    assert found["by_clock_missed"] > 0


def test_a_reader_who_goes_past_an_entry_fails_the_experiment(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: one who reads by number, and takes the fifth for done."""

    def hasty(row: Client, topic: str, count: int, note: lateruns.Note) -> None:
        def but_one(found: Read) -> None:
            if found.number != 5:
                note(found)

        lateruns.read(row, topic, count, but_one)

    outcome = lateruns.run(cluster, 5, 400.0, 1, lambda _more: None, hasty)

    assert outcome.verdict == Verdict(skipped=3, twice=0, reordered=0, different=0)
    monkeypatch.setattr(lateruns, "run", lambda *_: outcome)
    done = duckrow(f"bench late --dir {cluster.folder} -o json")
    assert done.code == 1
    assert json.loads(done.out)["skipped"] == 3
    assert "duckrow: readers saw the row wrongly: 3 skipped" in done.err


def test_what_is_started_to_measure_ends_with_ctrl_c(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "duckrow.tools.cli", "rtt", "--count", "100000", "-o", "jsonl"],
        env={**environment(), "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        # Two guards: the one of the cluster, and that of relays and echo, which comes when they start.
        watched: dict[int, int] = {}
        while len(guards := children_of(process.pid)) < 2 or not all(map(children_of, guards)):
            assert process.poll() is None, process.communicate()[1]
        for pid in [*guards, *(child for each in guards for child in children_of(each))]:
            watched[pid] = os.pidfd_open(pid)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)

        assert process.returncode == 130
        assert len(watched) >= 2 + 2 + 1
        for fd in watched.values():
            assert select.select([fd], [], [], PATIENCE)[0], "a process lives on"
            os.close(fd)
        assert [*tmp_path.iterdir()] == []


@pytest.mark.long
def test_relays_are_where_the_machines_are_in_namespaces() -> None:
    if no_namespaces():
        assert duckrow("rtt --netns").code == 1
        return
    found = duckrow("rtt --nodes 3 --netns --delay 5 --count 10 -o json").document

    assert found["wire_ms"] == 20
    assert found["p50_ms"] >= 20
    assert found["relay_p50_ms"] >= 20


@pytest.mark.long
def test_the_experiments_stand_beside_what_their_inventor_measured() -> None:
    rows = duckrow("rtt --experiments --count 50").rows

    assert [(row["nodes"], row["seed_ms"]) for row in rows] == [(2, "800"), (3, "1,000-1,100")]
    assert all(row["times_faster"] > 1 for row in rows)
