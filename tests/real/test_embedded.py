"""A node in a thread and the blocking client over a real socket, as a user would have them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrow


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node() as node:
        yield node


def test_what_was_produced_is_pulled(node: duckrow.Node) -> None:
    row = node.client
    receipt = row.produce("rides", b"one", key=b"k", headers={"h": b"v"})
    entries = row.pull("rides", after=0)

    assert (receipt.number, receipt.topic, receipt.partition) == (1, "rides", 0)
    assert [(e.number, e.value, e.key, e.headers) for e in entries] == [
        (1, b"one", b"k", (("h", b"v"),))
    ]


def test_many_entries_get_one_run_of_numbers(node: duckrow.Node) -> None:
    values = [b"%d" % i for i in range(200_000)]
    receipts = node.client.produce_many("many", values)
    found: list[bytes] = []
    after: object = 0
    while entries := node.client.pull("many", after, limit=65_536, max_bytes=1 << 22):
        found += [entry.value for entry in entries]
        after = entries.after

    assert (receipts.first, receipts.last, receipts.count) == (1, 200_000, 200_000)
    assert found == values


def test_a_pull_waits_for_what_comes(node: duckrow.Node) -> None:
    with duckrow.connect(node.url) as other:
        thread = threading.Thread(target=other.produce, args=("late", b"now"))
        thread.start()
        entries = node.client.pull("late", after=0, wait=30)
        thread.join()

    assert [entry.value for entry in entries] == [b"now"]


def test_nothing_there_is_an_empty_result(node: duckrow.Node) -> None:
    assert len(node.client.pull("nowhere", after=0, wait=0.01)) == 0


def test_threads_share_a_client_and_each_entry_is_there_once(node: duckrow.Node) -> None:
    row = node.client
    numbers: list[int] = []

    def produce(name: int) -> None:
        for index in range(100):
            number = row.produce("shared", b"%d-%d" % (name, index)).number
            assert number is not None
            numbers.append(number)

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [entry.value for entry in row.pull("shared", 0, limit=1000)]

    assert sorted(numbers) == list(range(1, 801))
    assert len(set(values)) == 800
    for name in range(8):  # what a thread produced keeps its order
        own = [value for value in values if value.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, index) for index in range(100)]


def test_entries_that_nobody_waits_for_are_there_after_close(node: duckrow.Node) -> None:
    with duckrow.connect(node.url) as row:
        for index in range(5_000):
            row.produce("quick", b"%d" % index, wait="none")
    entries = node.client.pull("quick", 0, limit=10_000)

    assert [entry.value for entry in entries] == [b"%d" % index for index in range(5_000)]


def test_a_node_that_ends_and_starts_again_has_everything(tmp_path: Path) -> None:
    with duckrow.Node(tmp_path) as node:
        receipt = node.client.produce("kept", b"one", wait="accepted")
    with duckrow.Node(tmp_path) as node:
        again = node.client.produce("kept", b"two")

        assert node.client.receipt(str(receipt)).number == 1
        assert again.number == 2
        assert [entry.value for entry in node.client.pull("kept")] == [b"one", b"two"]


def test_a_folder_in_use_is_refused_and_the_error_names_the_process(tmp_path: Path) -> None:
    with (
        duckrow.Node(tmp_path),
        pytest.raises(duckrow.Conflict, match="process"),
        duckrow.Node(tmp_path),
    ):
        pass


def test_settings_are_given_as_a_file_or_by_name(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        f'[node]\nname = "shop"\ndata = "{tmp_path}/data"\n[store]\ndurability = "write"\n'
    )
    with duckrow.Node(config=file) as node:
        status = node.client.status()
    with duckrow.Node(tmp_path / "other", config={"store.durability": "memory"}) as node:
        other = node.client.status()

    assert (status["node"], status["level"]) == ("shop", "write")
    assert (tmp_path / "data" / "row").is_dir()
    assert other["level"] == "memory"
    assert (tmp_path / "other" / "row").is_dir()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"store.durabilty": "write"}, "did you mean store.durability"),
        ({"store.durability": "often"}, "is none of fsync, write, memory"),
        ({"archive.to": "old"}, "archive.to needs processes beside the node"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(config: dict[str, object], why: str) -> None:
    with pytest.raises(duckrow.Refused, match=why), duckrow.Node(config=config):
        pass


def test_a_node_for_strangers_asks_for_a_token_or_is_told_that_it_need_not(tmp_path: Path) -> None:
    with (
        pytest.raises(duckrow.Refused, match="can be reached from other machines: set a token"),
        duckrow.Node(tmp_path / "1", listen="tcp://0.0.0.0:0"),
    ):
        pass
    with duckrow.Node(tmp_path / "2", listen="tcp://0.0.0.0:0", config={"node.insecure": "true"}):
        pass


def test_a_full_topic_refuses_and_says_what_to_do(node: duckrow.Node) -> None:
    row = node.client
    row.create_topic("small", max_entries=2, when_full="reject")
    row.produce_many("small", [b"1", b"2"])

    with pytest.raises(duckrow.Full, match="prune it, or raise its limits"):
        row.produce("small", b"3")
    row.prune("small", 1)
    assert row.produce("small", b"3").number == 3


def test_keys_keep_to_a_partition_after_there_are_more(node: duckrow.Node) -> None:
    row = node.client
    row.produce("wide", b"before", key=b"k")
    with duckrow.connect(node.url) as other:
        other.set_topic("wide", partitions=4)
    receipts = [row.produce("wide", b"after", key=b"k") for _ in range(3)]

    assert len({receipt.partition for receipt in receipts}) == 1
    assert len(row.pull("wide", 0)) == 4


def test_expecting_a_last_number_lets_one_of_two_win(node: duckrow.Node) -> None:
    row = node.client
    row.produce("count", b"a", expect_last=0)

    with pytest.raises(duckrow.Conflict, match="the last number is 1"):
        row.produce("count", b"b", expect_last=0)
    assert row.produce("count", b"b", expect_last=1).number == 2


def test_an_id_is_numbered_once(node: duckrow.Node) -> None:
    first = node.client.produce("ids", b"a", id="order-17")
    second = node.client.produce("ids", b"a", id="order-17")

    assert (first.number, second.number) == (1, 1)


def test_a_follow_goes_on_with_what_is_new(node: duckrow.Node) -> None:
    row = node.client
    row.produce_many("news", [b"1", b"2", b"3"])
    follow = row.follow("news", after=1)
    old = [next(follow).number, next(follow).number]
    with duckrow.connect(node.url) as other:
        other.produce("news", b"4")
    new = next(follow)
    follow.close()

    assert old == [2, 3]
    assert (new.number, new.value) == (4, b"4")


def test_an_entry_that_is_too_large_is_refused_by_name_and_value(node: duckrow.Node) -> None:
    with pytest.raises(duckrow.LimitExceeded, match=r"1,048,577.*1,048,576"):
        node.client.produce("large", b"x" * (1 << 20) + b"x")


def test_nobody_at_the_address_is_an_error_that_names_it_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    with duckrow.connect(f"duck+unix://{tmp_path}/none.sock", timeout=0.1) as row:
        with pytest.raises(
            duckrow.NoQuorum,
            match=r"none\.sock, which cannot.*`duckrow node` run there.*nothing was written",
        ):
            row.produce("t", b"v")
        with pytest.raises(duckrow.Timeout, match=r"none\.sock, which cannot be reached"):
            row.pull("t")
