"""What is exported is imported, entry by entry, in both forms; what is wrong with a file is told."""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import duckrow
from duckrow.tools.export import count, export_file, export_lines, export_parquet
from duckrow.tools.import_ import import_lines, import_parquet

Told = list[tuple[int, int, bytes | None, object, bytes]]


@pytest.fixture(scope="module")
def row() -> Iterator[duckrow.Client]:
    with duckrow.Node() as node:
        yield node.client


@pytest.fixture(scope="module")
def source(row: duckrow.Client) -> str:
    """Three partitions; text, bytes, nothing; keys, headers and neither."""
    row.create_topic("source", partitions=3)
    row.produce("source", "süß", key="k", headers={"a": b"text", "b": b"\xff"}, partition=0)
    row.produce("source", b"\x00\xff", key=b"\xfe", partition=1)
    row.produce("source", b"", partition=1)
    row.produce("source", b"x", headers=[("a", b"1"), ("a", b"2")], partition=2)
    row.produce_many("source", [b"%d" % each for each in range(30_000)], partition=2)
    return "source"


def told(row: duckrow.Client, topic: str) -> Told:
    found: Told = []
    after: object = 0
    while entries := row.pull(topic, after, limit=65_536, max_bytes=1 << 22):
        found += [(e.partition, e.number, e.key, e.headers, e.value) for e in entries]
        after = entries.after
    return sorted(found, key=lambda each: each[:2])


def test_json_lines_bring_back_what_they_were_made_of(row: duckrow.Client, source: str) -> None:
    lines: list[str] = []
    done: list[int] = []
    exported = export_lines(row, source, lines.append, tell=done.append)
    row.create_topic("lines", partitions=3)
    imported = import_lines(
        row, "lines", "".join(lines).splitlines(), keep_partitions=True, tell=done.append
    )

    assert exported == imported == count(row, source) == 30_004
    assert sum(done) == 2 * 30_004
    assert told(row, "lines") == told(row, source)


def test_a_parquet_file_brings_back_what_it_was_made_of(
    row: duckrow.Client, source: str, tmp_path: Path
) -> None:
    exported = export_parquet(row, source, tmp_path / "source.parquet")
    row.create_topic("parquet", partitions=3)
    imported = import_parquet(row, "parquet", tmp_path / "source.parquet", keep_partitions=True)

    assert exported == imported == 30_004
    assert told(row, "parquet") == told(row, source)
    assert [path.name for path in tmp_path.iterdir()] == ["source.parquet"]


def test_other_programs_read_the_columns(row: duckrow.Client, source: str, tmp_path: Path) -> None:
    from pyarrow import parquet

    export_parquet(row, source, tmp_path / "source.parquet")
    table = parquet.read_table(tmp_path / "source.parquet")
    first = table.slice(0, 1).to_pylist()[0]

    assert table.column_names == (
        ["topic", "partition", "number", "time", "producer", "key", "value", "headers"]
    )
    assert (first["topic"], first["number"], first["value"]) == ("source", 1, "süß".encode())
    assert first["headers"] == [{"name": "a", "value": b"text"}, {"name": "b", "value": b"\xff"}]
    assert first["time"].tzinfo is not None


def test_without_its_partition_an_entry_goes_where_its_key_belongs(row: duckrow.Client) -> None:
    lines = ['{"value":"a","key":"k","partition":7}', "", '{"value":"b","key":"k"}']
    assert import_lines(row, "free", lines) == 2

    assert [each[2:5:2] for each in told(row, "free")] == [(b"k", b"a"), (b"k", b"b")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Expecting"),
        ("[]", "not an object"),
        ("{}", "neither value nor value_base64"),
        ('{"value":"a","value_base64":"YQ=="}', "both"),
        ('{"value_base64":"?"}', "base64"),
        ('{"value_base64":7}', "7 is not text"),
        ('{"value":7}', "7 is not text"),
        ('{"value":"a","partition":-1}', "its partition is -1"),
        ('{"value":"a","partition":"0"}', "its partition is '0'"),
        ('{"value":"a","headers":{"a":1}}', "header a is not text: 1"),
        ('{"value":"a","headers_base64":{"a":[null]}}', "header a is not text: None"),
        ('{"value":"a","headers":["a"]}', "headers are no object"),
        ('{"value":"a","key":[]}', "not text"),
        ('{"value":"\udcff"}', "surrogates"),
    ],
)
def test_a_wrong_line_is_told_by_its_number_and_those_before_it_are_in(
    row: duckrow.Client, line: str, why: str, request: pytest.FixtureRequest
) -> None:
    topic = re.sub(r"[^a-z0-9]", "-", request.node.name)[:100]
    with pytest.raises(duckrow.Refused, match=f"line 2 is no entry: .*{why}"):
        import_lines(row, topic, ['{"value":"first"}', line, '{"value":"last"}'])

    assert [each[4] for each in told(row, topic)] == [b"first"]


def test_what_was_pruned_is_not_exported(row: duckrow.Client) -> None:
    row.produce_many("pruned", [b"%d" % each for each in range(10)])
    row.prune("pruned", 7)
    lines: list[str] = []

    assert export_lines(row, "pruned", lines.append) == 3
    row.prune("pruned", 10)
    assert export_lines(row, "pruned", lines.append) == 0


@pytest.mark.parametrize("export", [export_file, export_parquet])
def test_an_export_that_fails_half_way_leaves_the_file_that_was_there(
    row: duckrow.Client, source: str, tmp_path: Path, export: Callable[..., int]
) -> None:
    path = tmp_path / "source.out"
    path.write_text("from yesterday")

    def fails(_done: int) -> None:
        assert [each.name for each in tmp_path.iterdir() if each != path] == ["source.out.writing"]
        raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(OSError, match="No space left"):
        export(row, source, path, tell=fails)

    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "source.out": "from yesterday"
    }


def test_an_export_writes_through_a_link_and_into_a_pipe(
    row: duckrow.Client, source: str, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        for name in ("link", "pipe"):
            assert export_file(row, source, tmp_path / name) == 30_004
        piped = read.result()

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").read_text() == piped
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_the_command_says_that_a_file_did_not_fit_and_leaves_none(
    tmp_path: Path, name: str
) -> None:
    with duckrow.Node() as node:
        node.client.produce_many("t", [random.randbytes(1000) for _ in range(1000)])
        export = [sys.executable, "-m", "duckrow.tools.cli", "export", "t", name]
        done = subprocess.run(
            ["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", *export],
            cwd=tmp_path,
            env={**os.environ, "DUCKROW_URL": node.url},
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert re.fullmatch(r"duckrow: .*File too large.*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_topic_that_is_not_there_cannot_be_exported(row: duckrow.Client, tmp_path: Path) -> None:
    with pytest.raises(duckrow.NotFound):
        export_parquet(row, "nowhere", tmp_path / "x.parquet")

    with pytest.raises(FileNotFoundError, match="there is no such folder: '/nowhere'"):
        export_file(row, "nowhere", Path("/nowhere/x.jsonl"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_values_is_refused(row: duckrow.Client, tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"other": [1]}), tmp_path / "x.parquet")

    with pytest.raises(duckrow.Refused, match="no column value; it has other"):
        import_parquet(row, "t", tmp_path / "x.parquet")


def test_what_is_no_parquet_file_is_refused_by_its_name(
    row: duckrow.Client, tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and something else")

    with pytest.raises(duckrow.Refused, match=r"x\.parquet is no Parquet file"):
        import_parquet(row, "nothing", path)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"value": None}, "None is not text"),
        ({"value": b"b", "key": 7}, "7 is not text"),
        ({"value": b"b", "partition": -1}, "its partition is -1"),
        ({"value": b"b", "headers": [{"name": "a"}]}, "'value'"),
        ({"value": b"b", "headers": ["a"]}, ""),
    ],
)
def test_a_wrong_row_of_a_parquet_file_is_told_by_its_number_and_those_before_it_are_in(
    row: duckrow.Client,
    tmp_path: Path,
    wrong: dict[str, object],
    why: str,
    request: pytest.FixtureRequest,
) -> None:
    import pyarrow
    from pyarrow import parquet

    topic = re.sub(r"[^a-z0-9]", "-", request.node.name)[-100:]
    rows = [dict.fromkeys(wrong) | {"value": b"first"}, wrong]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "x.parquet")

    with pytest.raises(duckrow.Refused, match=f"row 2 is no entry: .*{why}"):
        import_parquet(row, topic, tmp_path / "x.parquet")

    assert [each[4] for each in told(row, topic)] == [b"first"]
