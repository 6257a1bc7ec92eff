"""The command line against a real node: topics, and what a node tells of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrow as library
from clikit import Done, duckrow
from duckrow.cluster.comparing import Digest, compared
from duckrow.node.entries import Entries
from duckrow.node.pins import GONE
from duckrow.node.realio import RealDisk
from duckrow.node.topicinfo import PartitionInfo, Pin, TopicInfo
from duckrow.tools.cli import version
from duckrow.tools.cli_doctor import of_data, of_status
from duckrow.tools.cli_status import told as told_status
from duckrow.tools.cli_trace import told
from duckrow.tools.cli_why import of_archive, of_node, of_topic
from duckrow.tools.samples import percentile


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with library.Node() as node:
        yield node.url


class Shell:
    def __init__(self, url: str, topic: str) -> None:
        self.url, self.topic = url, topic

    def __call__(self, line: str, *, terminal: bool = False) -> Done:
        """`T` stands for the test's own topic."""
        line = re.sub(r"\bT\b", self.topic, line)
        environ = {"DUCKROW_URL": self.url, "COLUMNS": "200"}
        return duckrow(line, b"", environ, terminal=terminal)


@pytest.fixture
def sh(url: str, request: pytest.FixtureRequest) -> Shell:
    return Shell(url, re.sub(r"[^\w.-]", "_", request.node.name, flags=re.ASCII)[:100])


def test_a_new_topic_has_the_policy_that_was_given(sh: Shell) -> None:
    done = sh("topic new T --partitions 2 --max-age 7d --max-bytes 10MiB --when-full reject")

    info = done.document
    assert list(info) == ["topic", "id", "policy", "partitions"]
    assert info["policy"] == {
        "max_age": 604_800.0,
        "max_entries": 0,
        "max_bytes": 10 << 20,
        "when_full": "reject",
        "partitions": 2,
        "archive": 0,
    }
    assert info["partitions"] == [
        {"partition": p, "first": 1, "last": 0, "entries": 0, "bytes": 0} for p in (0, 1)
    ]
    assert sh("topic info T").document == info


def test_ages_are_seconds_to_the_command_line_and_to_programs(sh: Shell) -> None:
    sh("topic new T --max-age 1m30s")
    with library.connect(sh.url) as client:
        assert client.topic(sh.topic).policy["max_age"] == 90.0
        assert client.set_topic(sh.topic, max_age=0.25).policy["max_age"] == 0.25
        assert client.set_topic(sh.topic, max_age=None).policy["max_age"] == 0
        for age in (-1, "1m", True, float("inf")):
            with pytest.raises(library.DuckrowError):
                client.set_topic(sh.topic, max_age=age)
        client.set_topic(sh.topic, max_age=7200)
    assert "policy      max_age 2h" in sh("topic info T", terminal=True).lines


def test_a_topic_is_made_once(sh: Shell) -> None:
    assert sh("topic new T").code == 0
    assert sh("topic new T").code == 1


def test_a_policy_is_changed_and_brought_back(sh: Shell) -> None:
    sh("topic new T --max-entries 5")

    assert sh("topic set T --max-age 1h").document["policy"]["max_entries"] == 5
    assert (
        sh("topic set T --max-entries default").document["policy"] | {"max_age": 0}
        == (sh("topic set T --max-age default").document["policy"])
    )


@pytest.mark.parametrize(
    "words",
    ["set T", "set T --max-age soon", "set T --partitions 0", "set T --when-full x", "new", "rm"],
)
def test_what_is_no_policy_is_a_usage_error(words: str, sh: Shell) -> None:
    assert sh(f"topic {words}").code == 2


def test_a_topic_that_is_not_there_is_exit_3(sh: Shell) -> None:
    for line in ("topic info T", "topic rm T", "topic prune T 1", "topic set T --max-age 1h"):
        done = sh(line)
        assert (done.code, f"topic '{sh.topic}'" in done.err) == (3, True), done.err


def test_all_topics_are_listed_with_what_they_hold(sh: Shell) -> None:
    sh("topic new T --partitions 3")
    sh("produce T a b")

    (row,) = [row for row in sh("topic ls").rows if row["topic"] == sh.topic]
    assert (row["partitions"], row["entries"]) == (3, 2)
    assert {"topic": sh.topic} in sh("topic ls --names").rows
    assert sh("topic ls", terminal=True).lines[0].split() == (
        ["TOPIC", "PARTITIONS", "ENTRIES", "BYTES", "POLICY"]
    )


def test_a_person_sees_units_and_only_what_is_special(sh: Shell) -> None:
    done = sh("topic new T --max-age 90s --max-bytes 1GiB", terminal=True)

    assert "policy      max_age 90s, max_bytes 1GiB" in done.lines
    assert "PARTITION  FIRST  LAST  ENTRIES  BYTES" in done.lines


def test_pruned_entries_are_gone_and_numbers_stay(sh: Shell) -> None:
    sh("produce T a b c")

    assert sh("topic prune T 2").document["partitions"][0]["first"] == 3
    assert [row["number"] for row in sh("pull T").rows] == [3]


def test_a_topic_that_was_removed_begins_again_with_one(sh: Shell) -> None:
    sh("produce T a b")
    assert sh("topic rm T") == (0, b"", "")

    assert sh("produce T c").rows[0]["number"] == 1


def test_status_has_what_the_contract_names(sh: Shell) -> None:
    status = sh("status").document

    named = "node version view members position state_hash ready active links waiting_for disk"
    assert set(named.split()) <= set(status)
    assert (status["ready"], status["active"]) == (True, True)
    assert "disk" in sh("status", terminal=True).text


def test_a_client_sees_itself_among_the_clients(sh: Shell, url: str) -> None:
    with library.connect(url, name="me") as client:
        client.status()
        names = [row["name"] for row in sh("client ls").rows]

    assert "me" in names
    assert "duckrow" in names


def test_an_accepted_entry_is_found_by_its_receipt(sh: Shell) -> None:
    (given,) = sh("produce T one --wait accepted").rows

    sh("pull T --wait 30")
    found = sh(f"receipt {given['receipt']}").document
    assert (found["state"], found["topic"], found["number"]) == ("ordered", sh.topic, 1)
    assert found["receipt"] == given["receipt"]


@pytest.mark.parametrize("receipt", ["nix", "-", "AAAA"])
def test_what_is_no_receipt_is_refused(receipt: str, sh: Shell) -> None:
    assert sh(f"receipt {receipt}").code == 1


def test_one_node_is_the_same_as_itself(sh: Shell) -> None:
    found = sh("verify").document

    assert (found["same"], found["first_difference"]) == (True, None)
    assert list(found["nodes"]["m1"]) == ["position", "hash"]


def test_every_address_of_a_url_is_looked_at_and_one_that_does_not_answer_is_told_of() -> None:
    with library.Node(listen="tcp://127.0.0.1:0") as node:
        here = node.url.removeprefix("duck://")
        done = duckrow(f"verify --url duck://{here},{here}")
        partly = duckrow(f"verify --timeout 2s --url duck://127.0.0.1:1,{here}")
        nobody = duckrow("verify --timeout 20ms --url duck://127.0.0.1:1,127.0.0.1:2")

    assert done.document["same"]
    assert (partly.code, "127.0.0.1:1" in partly.err) == (1, True)
    assert "answered: there is nothing to compare it with" in partly.err
    assert (nobody.code, nobody.out) == (4, b"")


@pytest.mark.parametrize("command", ["verify", "trace rides 1"])
def test_a_cluster_file_that_is_not_there_is_told_as_what_was_named_and_is_not(
    command: str,
) -> None:
    done = duckrow(f"{command} --cluster none.toml")
    assert done.code == 3
    assert "there is no cluster file none.toml: `duckrow cluster init` writes one" in done.err


def test_an_entry_in_the_middle_is_traced(sh: Shell) -> None:
    sh("produce T a bb ccc")

    row = sh("trace T 2").document
    assert (row["state"], row["bytes"], row["batch"]) == ("there", 2, {"first": 1, "entries": 3})
    assert row["said"] == "it came in a batch of 3, and 1 came after it"
    assert '"said":"the last number is 3"' in sh("trace T 4").text


def test_an_entry_is_traced_at_every_node_of_a_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    with library.Node(listen="tcp://127.0.0.1:0") as node:
        node.client.produce("t", "one")
        members = f'[members.m1]\nid = 1\naddress = "tcp://127.0.0.1:1"\nurl = "{node.url}"\n'
        away = '[members.m2]\nid = 2\naddress = "tcp://127.0.0.1:2"\nurl = "duck://127.0.0.1:2"\n'
        file.write_text(members + away)
        found = duckrow(f"trace t 1 --timeout 2s --cluster {file} -o jsonl")
        missing = duckrow(f"trace t 2 --timeout 2s --cluster {file} -o jsonl")

    assert [row["state"] for row in found.rows] == ["there", "unknown"]
    assert found.rows[1]["node"] == "m2"
    assert "127.0.0.1:2" in found.rows[1]["said"]
    assert found.code == 0
    assert missing.code == 3
    assert b'"state":"not yet"' in missing.out


def test_an_entry_is_there_pruned_or_still_to_come(sh: Shell) -> None:
    sh("produce T a b c --key k")
    sh("topic prune T 1")

    there = sh("trace T 2").document
    assert (there["state"], there["key"], there["bytes"]) == ("there", "k", 1)
    assert there["batch"] == {"first": 1, "entries": 3}
    assert "value" not in there
    for number, state in ((1, "pruned"), (9, "not yet")):
        done = sh(f"trace T {number}")
        assert done.code == 3
        assert f'"state":"{state}"' in done.text
    assert sh("trace nix 1").code == 3


def test_nothing_stands_still_in_a_node_that_is_well(sh: Shell) -> None:
    sh("produce T a")

    assert sh("why T") == (0, b"", "nothing stands still\n")


def test_why_tells_of_a_full_topic_and_how_to_go_on(sh: Shell) -> None:
    sh("topic new T --max-entries 1 --when-full reject")
    sh("produce T a")
    assert sh("produce T b").code == 1

    done = sh("why T", terminal=True)
    assert done.code == 1
    (line,) = done.lines
    said, _, command = line.partition("  Next: duckrow ")
    assert said == f"{sh.topic}/0: it is full (max_entries = 1), and what comes is refused."
    assert command == f"topic prune {sh.topic} 1 --partition 0"
    assert sh(command).code == 0
    assert sh("produce T b").code == 0


def test_doctor_finds_nothing_bad(sh: Shell, tmp_path: Path) -> None:
    done = sh(
        f"doctor --set node.data={tmp_path} --set store.soft_reserve=0 "
        "--set store.soft_reserve_share=0"
    )

    assert done.code == 0
    assert {row["check"] for row in done.rows} >= {"program", "configuration", "data", "node"}


def test_doctor_tells_what_is_bad(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[node]\nname = 3\n[nod]\nname = 4\n")
    done = sh(f"doctor --config {tmp_path}/wrong.toml")

    assert done.code == 1
    assert '"bad"' in done.text


def test_doctor_reads_every_file_and_tells_of_a_byte_that_changed(tmp_path: Path) -> None:
    words = f"doctor --files --set node.data={tmp_path}/data"
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}

    def files() -> list[dict[str, str]]:
        lines = duckrow(f"{words} -o jsonl", environ=environ).out.splitlines()
        return [row for row in map(json.loads, lines) if row["check"] == "files"][1:]

    assert [row["state"] for row in files()] == ["warn"]
    with library.Node(tmp_path / "data") as node:
        node.client.produce_many("rides", [b"ride %d" % number for number in range(1000)])
        (busy,) = files()
        assert (busy["state"], busy["next"]) == ("warn", "stop the node first")
    assert [row["state"] for row in files()] == ["ok"]

    segment = tmp_path / "data" / "row" / "00000001.seg"
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"ride 500", b"RIDE 500", 1))
    (damaged,) = files()
    assert damaged["state"] == "bad"
    assert "00000001.seg" in damaged["said"]
    assert duckrow(words, environ=environ).code == 1


def test_doctor_rebuilds_a_row_that_ended_at_a_damaged_item(tmp_path: Path) -> None:
    words = f"doctor --rebuild --set node.data={tmp_path}/data -o jsonl"
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}

    def rebuild() -> tuple[int, list[dict[str, str]]]:
        done = duckrow(words, environ=environ)
        rows = map(json.loads, done.out.splitlines())
        return done.code, [row for row in rows if row["check"] in ("rebuild", "lost")]

    with library.Node(tmp_path / "data") as node:
        for number in range(1, 101):
            node.client.produce("rides", b"ride %d" % number)
        code, (busy,) = rebuild()
        assert (code, busy["state"], busy["next"]) == (1, "bad", "stop the node first")
    assert rebuild()[1][0]["said"] == "nothing lacks that can be made again"
    for snapshot in (tmp_path / "data" / "state").iterdir():
        snapshot.unlink()
    segment = tmp_path / "data" / "row" / "00000001.seg"
    content = bytearray(segment.read_bytes())
    content[content.index(b"ride 60") - 60] ^= 1
    segment.write_bytes(content)
    with library.Node(tmp_path / "data") as node, pytest.raises(library.Corrupt, match="rebuild"):
        node.client.produce("rides", b"new")

    code, rows = rebuild()

    assert code == 0
    assert [row["state"] for row in rows][:2] == ["ok", "warn"]
    assert any("damaged items at positions" in row["said"] for row in rows)
    with library.Node(tmp_path / "data") as node:
        values = [entry.value for entry in node.client.pull("rides")]
        assert values == [b"ride %d" % number for number in range(1, 101) if number != 60]
        assert node.client.produce("rides", b"new").number == 100


@pytest.mark.parametrize("case", ["produce", "produce --batch 1", "consume", "latency --batch 1"])
def test_a_benchmark_gives_a_row_and_leaves_nothing(case: str, sh: Shell) -> None:
    before = sh("topic ls --names").rows
    (row,) = sh(f"bench {case} --count 20 --size 10").rows

    assert (row["count"], row["size"]) == (20, 10)
    assert row["rate"] > 0
    assert row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert sh("topic ls --names").rows == before


def test_experiments_check_what_everybody_saw_and_leave_nothing(sh: Shell) -> None:
    before = sh("topic ls --names").rows
    rows = sh("bench matrix --producers 1,2 --consumers 2 --topics 1,2 --count 5").rows

    assert [(row["producers"], row["topics"], row["deliveries"]) for row in rows] == (
        [(1, 1, 10), (1, 2, 20), (2, 1, 20), (2, 2, 40)]
    )
    assert all(row["ok"] for row in rows)
    (alone,) = sh("bench fanout --consumers 3 --count 4 --rate 1000 --think 1ms").rows
    assert (alone["case"], alone["deliveries"], alone["ok"]) == ("fanout", 12, True)
    assert sh("topic ls --names").rows == before


@pytest.mark.parametrize(
    "words", ["--consumers 0", "--consumers x", "--rate -1", "--think soon", "--size 15"]
)
def test_what_is_no_experiment_is_a_usage_error(words: str, sh: Shell) -> None:
    assert sh(f"bench matrix {words}").code == 2


# What has no node in it.


def status(**changed: object) -> dict[str, object]:
    place = changed.get("position", 7)
    return {
        "node": "m1",
        "active": True,
        "view": 1,
        "position": 7,
        "hashed": place,
        "state_hash": "a",
        **changed,
    }


def row(items: str, floor: int = 0) -> Digest:
    """One whose digest at a position is all of it up to there."""
    return lambda position: items[:position].encode() if position >= floor else None


def test_nodes_are_the_same_as_far_as_all_have_come() -> None:
    both = [status(), status(node="m2")]
    behind = [status(), status(node="m2", position=6, state_hash="b")]

    same = compared(both, [row("abcdefg"), row("abcdefg")])
    assert (same["same"], same["first_difference"], same["position"]) == (True, None, 7)
    short = compared(behind, [row("abcdefg"), row("abcdef")])
    assert (short["same"], short["first_difference"], short["position"]) == (True, None, 6)


@pytest.mark.parametrize(("other", "first"), [("Xbcdefg", 1), ("abcXefg", 4), ("abcdefX", 7)])
def test_the_first_position_at_which_rows_differ_is_told(other: str, first: int) -> None:
    both = [status(), status(node="m2"), status(node="m3")]
    found = compared(both, [row("abcdefg"), row(other), row("abcdefg")])

    assert (found["same"], found["first_difference"]) == (False, first)


def test_what_a_node_keeps_no_more_is_not_held_against_it() -> None:
    both = [status(), status(node="m2")]
    found = compared(both, [row("abcdefg"), row("abcdeXg", floor=5)])
    assert (found["same"], found["first_difference"]) == (False, 6)


def test_whose_row_is_compared_with_nobodys_is_told() -> None:
    both = [status(position=3, state_hash="b"), status(node="m2"), status(node="m3")]
    found = compared(both, [row("abc"), row("abcdefg", floor=5), row("abcdefg", floor=5)])
    assert (found["position"], found["unknown"]) == (3, ["m2", "m3"])


def test_rows_that_are_the_same_with_states_that_are_not_differ() -> None:
    both = [status(), status(node="m2", state_hash="b")]
    found = compared(both, [row("abcdefg"), row("abcdefg")])
    assert (found["same"], found["first_difference"]) == (False, 7)


def test_a_link_that_is_down_is_a_cause_and_who_is_waited_for_a_better_one() -> None:
    links = [{"peer": "m2", "up": False}, {"peer": "m3", "up": True}]
    (down,) = of_node(status(links=links))
    assert down.why.startswith("m1 has no link with m2;")
    (waits,) = of_node(status(links=links, waiting_for=["m2"]))
    assert waits.why == "m1 waits for m2"
    away = status(links=links, active=False, why="it does not reach m2", waiting_for=["m2"])
    told, _ = of_node(away)
    assert told.why == "m1 takes nothing new: it does not reach m2"
    assert told.next == "duckrow link ls"


def test_who_waits_to_be_dialled_says_where_the_reason_is_told() -> None:
    """Its own links have none, and `link ls` here would be no help."""
    links = [{"peer": "m1", "up": False, "trouble": ""}, {"peer": "m2", "up": False}]
    away = status(node="m3", links=links, active=False, why="it does not reach m1 and m2")
    _, waits = of_node(away)
    assert waits.why == (
        "m3 has no link with m1, m2, which are to dial it and have not come: if they run, is m3 in "
        "their cluster file, at its address?"
    )
    assert waits.next == "duckrow link ls --url URL, with that of one of them"


@pytest.mark.parametrize("trouble", ["", "connection refused"])
@pytest.mark.parametrize("active", [True, False])
def test_a_link_that_was_cut_by_command_is_told_as_such(active: bool, trouble: str) -> None:
    """Also where it could not be dialled before: that is not tried again."""
    links = [{"peer": "m2", "up": False, "refused": True, "trouble": trouble}]
    *_, cut = of_node(status(links=links, active=active, why="it does not reach m2"))
    assert cut.why == "m1 has no link with m2: it is cut by command"
    assert cut.next == "duckrow cluster heal m1 m2"


def test_that_a_machine_has_no_vote_is_the_cause_that_it_orders_nothing() -> None:
    peers = [{"name": name, "weight": n, "witness": False} for n, name in enumerate(("m1", "m2"))]
    (told,) = of_node(status(active=False, peers=peers))
    assert told.why == "m1 has no vote, so it follows the others and orders nothing"
    assert told.next == "duckrow member add m1"


def test_before_a_cluster_is_founded_it_is_told_who_was_not_met_and_why() -> None:
    links = [{"peer": "m3", "up": False, "trouble": "it has another secret"}]
    founding = status(view=0, active=False, waiting_for=["m3"], links=links)
    missing, link = of_node(founding)
    assert missing.why == "the cluster is founded when all have met, and m1 has not met m3"
    assert link.why == "m1 has no link with m3: it has another secret"


def test_a_witness_is_told_where_it_can_be_looked_up() -> None:
    peers = [{"name": "m1", "weight": 1, "witness": True}]
    (told,) = of_node(status(active=False, peers=peers, why="it is a witness"))
    assert (told.why, told.next) == ("m1 takes nothing new: it is a witness", "duckrow member ls")


def test_a_full_disk_and_a_row_that_ended_are_causes() -> None:
    assert list(of_node(status())) == []
    (full,) = of_node(status(disk={"state": "soft", "free": 12}))
    assert "12 bytes are free" in full.why
    (ended,) = of_node(status(active=False, why="the row is damaged"))
    assert "m1 takes nothing new: the row is damaged" in ended.why
    (waits,) = of_node(status(waiting_for=["m2", "m3"]))
    assert waits.why == "m1 waits for m2, m3"


def topic(entries: int, **policy: object) -> TopicInfo:
    part = PartitionInfo(0, 5, 4 + entries, entries, 100)
    return TopicInfo("t", 1, dict(policy), (part,))


def test_a_topic_that_drops_its_oldest_never_stands_still() -> None:
    assert list(of_topic(topic(9, when_full="drop-oldest", max_entries=9))) == []
    assert list(of_topic(topic(8, when_full="block", max_entries=9))) == []
    (by_count,) = of_topic(topic(9, when_full="block", max_entries=9))
    assert "max_entries = 9" in by_count.why
    assert "waits for room" in by_count.why
    assert by_count.next == "duckrow topic prune t 5 --partition 0"
    (by_size,) = of_topic(topic(1, when_full="slot", max_bytes=100))
    assert "max_bytes = 100" in by_size.why


def test_an_entry_of_an_empty_partition_is_not_yet_or_pruned() -> None:
    def state(number: int, first: int, last: int) -> str:
        part = PartitionInfo(0, first, last, 0, 0)
        return str(told("t", number, 0, part, Entries(), {"node": "m1"})["state"])

    assert [state(1, 1, 0), state(3, 5, 4), state(5, 5, 4)] == ["not yet", "pruned", "not yet"]


def test_what_is_kept_for_an_archive_that_does_not_get_on_is_told_with_what_to_do() -> None:
    pins = [Pin("a", 1, 0, 10, 1, 3, 9, 0), Pin("b", 2, 0, 10, 1, 501, 509, 0)]
    missed = {"place": "", "pinned": 502, "trouble": ""}
    (cause,) = of_archive(missed, pins)
    assert "502 pruned entries, most of b, keep their room" in cause.why
    assert "no archiver has come yet" in cause.why
    assert cause.next.startswith("duckrow archive run --to PLACE; or duckrow topic set b --archive")
    (gone,) = of_archive(missed | {"place": "/a", "trouble": GONE}, pins)
    assert gone.next.startswith("duckrow archive run --to /a; or ")
    (full,) = of_archive(missed | {"place": "/a", "trouble": "its disk is full"}, pins)
    assert full.next.startswith("duckrow topic set b --archive 0")
    assert full.why.endswith("its disk is full")
    assert list(of_archive(missed | {"place": "/a"}, pins)) == []

    assert told_status(status(archive=missed))["archive"] == (
        "502 pruned entries are kept here for an archiver: none has come yet"
    )
    assert "archive" not in told_status(status(archive=missed | {"pinned": 0}))
    assert [c.state for c in of_status(status(archive=missed))] == ["ok", "warn"]
    assert [c.state for c in of_status(status(archive=missed | {"place": "/a"}))] == ["ok", "ok"]


def test_a_file_in_the_place_of_the_data_folder_is_told() -> None:
    with pytest.raises(NotADirectoryError, match=r"/dev/null should be a folder, and is some"):
        RealDisk.at("/dev/null")


def test_a_folder_that_others_may_look_into_is_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    assert next(of_data(folder, 0, 0)).state == "warn"
    folder.chmod(0o700)
    assert [check.state for check in of_data(folder, 0, 0)] == ["ok", "ok"]
    assert [check.state for check in of_data(folder / "new", 1 << 62, 0)] == ["ok", "bad"]
    assert next(of_data(Path("/proc/nix"), 0, 0)).check == "data"


def test_another_version_is_a_warning_and_a_row_that_ended_is_bad() -> None:
    assert [c.state for c in of_status(status(version=version()))] == ["ok"]
    assert [c.state for c in of_status(status(version="0.0.1"))] == ["ok", "warn"]
    assert [c.state for c in of_status(status(active=False, disk={"state": "hard"}))] == (
        ["bad", "bad"]
    )


def test_a_percentile_is_a_value_that_was_measured() -> None:
    times = [float(n) for n in range(1, 101)]

    assert [percentile(times, part) for part in (0.5, 0.99, 1.0, 0.0)] == [50, 99, 100, 1]
    assert percentile([3.0], 0.5) == 3.0
