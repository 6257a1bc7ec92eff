"""What the tests of the archive share: a node in this process, its archiver, and what the files hold."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckrow
from duckrow.node.archiveplace import Place
from duckrow.node.archivereading import Archive
from duckrow.node.entries import Entry
from duckrow.tools.archiver import Archiver
from real.daemonkit import PROGRAM, ROOT

SPAN = 100


@contextmanager
def node_with_archive(**policy: Any) -> Iterator[duckrow.Client]:
    """A node of its own with the topic `t`."""
    with duckrow.Node() as node, duckrow.connect(node.url) as row:
        row.create_topic("t", **({"archive": SPAN, "max_entries": SPAN} | policy))
        yield row


def produce(row: duckrow.Client, count: int, first: int = 1, topic: str = "t", **more: Any) -> None:
    """Entries of about 30 bytes that say their number."""
    values = [b"%030d" % number for number in range(first, first + count)]
    row.produce_many(topic, values, **more)


def archiver(row: duckrow.Client, place: Path | str, node: str = "m1") -> Archiver:
    return Archiver(row, Place(str(place)), node)


def archived(found: Archiver) -> Archiver:
    """Everything that is due."""
    while found.round() or found.later:
        found.client.barrier()
    return found


def rows(place: Path | str, topic: str = "t") -> list[dict[str, Any]]:
    """As any reader of Parquet sees it."""
    from pyarrow import dataset

    found = dataset.dataset(str(place), format="parquet", partitioning="hive").to_table()
    chosen = [row for row in found.to_pylist() if row["topic"] == topic]
    return sorted(chosen, key=lambda row: (row["partition"], row["offset"]))


def names(place: Path) -> list[str]:
    """Of all files, those on their way too."""
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


@contextmanager
def process(
    url: str, *words: str, before: tuple[str, ...] = (), **env: str
) -> Iterator[subprocess.Popen[str]]:
    """`duckrow archive run` as a process, started by `before`; killed if it still runs."""
    with subprocess.Popen(
        [*before, *PROGRAM, "archive", "run", "--url", url, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **env},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def until(running: subprocess.Popen[str], text: str) -> str:
    """Reads what it says until a line holds `text`.

    Raises:
        EOFError: it ended without having said that.
    """
    assert running.stderr is not None
    said = []
    for line in running.stderr:
        said.append(line)
        if text in line:
            return line
    raise EOFError("".join(said))


def read_all(place: Path | str, row: duckrow.Client, topic: str = "t") -> list[Entry]:
    """Through the archive's own reader, partition 0."""
    from duckrow.node.archivenames import Span

    archive = Archive(Place(str(place)))
    found: list[Entry] = []
    at = 1
    while run := archive.run(topic, row.topic(topic).id, 0, Span(at, 1 << 62), 1_000, 1 << 20):
        if not run.batches:
            break
        found += [entry for batch in run.batches for entry in batch]
        at = found[-1].number + 1
    return found


def condition(is_so: Callable[[], bool], row: duckrow.Client, tries: int = 2_000) -> bool:
    """Asked again and again; each time costs a round trip through the row, so time passes."""
    for _ in range(tries):
        if is_so():
            return True
        row.barrier()
    return is_so()
