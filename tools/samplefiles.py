"""Where samples of round trips are kept: a file of CSV, JSON lines or Parquet, or a topic.

Their fields are told in roundtrips.py.  In CSV and JSON a time is RFC 3339, as everywhere; in Parquet it
is a timestamp of microseconds, UTC.  A topic has an entry for each sample, the JSON of the line.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duckrow.node.errors import Refused

from .moments import show_time
from .roundtrips import SAMPLE, Fields
from .rows import to_json
from .wholefile import check_folder, whole_file

if TYPE_CHECKING:
    import pyarrow

    from duckrow import Client

TEXTS: Final = ("run", "topology", "near", "far", "durability")
WHOLE: Final = ("nodes", "hops", "size", "sample")


def ready(path: str) -> None:
    """Before anything is measured.

    Raises:
        FileNotFoundError, Refused: samples cannot be kept there.
    """
    if Path(path).suffix not in WRITERS:
        raise Refused(f"{path}: samples are kept in a file that ends in {', '.join(WRITERS)}")
    check_folder(Path(path))
    if Path(path).suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401 - only whether it is there
        except ModuleNotFoundError as error:
            raise Refused(
                "Parquet needs pyarrow, which is not installed: pip install 'duckrow[parquet]'"
            ) from error


def write(path: str, rows: Sequence[Fields]) -> None:
    with whole_file(Path(path)) as aside:
        WRITERS[Path(path).suffix](aside, rows)


def record(client: Client, topic: str, rows: Sequence[Fields]) -> None:
    client.produce_many(topic, [to_json(_plain(row)) for row in rows])


def _csv(path: Path, rows: Sequence[Fields]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, SAMPLE, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_plain, rows))


def _json_lines(path: Path, rows: Sequence[Fields]) -> None:
    text = "".join(f"{to_json(_plain(row))}\n" for row in rows)
    path.write_text(text, encoding="utf-8")


def _parquet(path: Path, rows: Sequence[Fields]) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist([*rows], schema=_schema())
    pyarrow.parquet.write_table(table, path)


def _schema() -> pyarrow.Schema:
    import pyarrow

    kinds = {
        **dict.fromkeys(TEXTS, pyarrow.string()),
        **dict.fromkeys(WHOLE, pyarrow.int32()),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    return pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in SAMPLE])


def _plain(row: Fields) -> Fields:
    """In the order of the fields, and with its time as text."""
    return {name: show_time(row[name]) if name == "time" else row[name] for name in SAMPLE}


WRITERS: Final[dict[str, Callable[[Path, Sequence[Fields]], None]]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
