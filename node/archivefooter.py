"""Footer and digest of a file of the archive: what it is, and whether its rows are still the same.

The digest is of rows, not of bytes: two writers of different versions make different bytes of the
same rows.  docs/reference/archive.md has its definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import attrs

from .archivenames import Named, Span
from .archivetables import COLUMNS, int64s, strings_of
from .errors import Corrupt, Refused

VERSION: Final = "1"
_PREFIX: Final = "duckrow."
_PARTS: Final = (
    "offset:data",
    "timestamp:data",
    "key:sizes",
    "key:data",
    "value:sizes",
    "value:data",
    "headers:sizes",
    "headers:key.sizes",
    "headers:key.data",
    "headers:value.sizes",
    "headers:value.data",
    "producer:sizes",
    "producer:data",
    "position:data",
)


@attrs.frozen
class Footer:
    topic: str
    topic_id: int
    partition: int
    span: Span
    digest: str

    @property
    def named(self) -> Named:
        return Named(self.topic, self.partition, self.span)

    def pairs(self) -> dict[str, str]:
        found = {
            "version": VERSION,
            "topic": self.topic,
            "topic_id": str(self.topic_id),
            "partition": str(self.partition),
            "first": str(self.span.first),
            "last": str(self.span.last),
            "digest": self.digest,
        }
        return {_PREFIX + name: value for name, value in found.items()}

    @classmethod
    def of(cls, pairs: Mapping[bytes, bytes]) -> Footer:
        """
        Raises:
            Corrupt: a pair is missing, or is none of ours.
        """
        try:
            found = {
                key.decode().removeprefix(_PREFIX): value.decode()
                for key, value in pairs.items()
                if key.startswith(_PREFIX.encode())
            }
            version = found["version"]
            footer = cls(
                found["topic"],
                int(found["topic_id"]),
                int(found["partition"]),
                Span(int(found["first"]), int(found["last"])),
                found["digest"],
            )
        except (KeyError, ValueError) as error:
            raise Corrupt(f"its footer is not that of a file of the archive: {error}") from error
        if version != VERSION:
            raise Refused(f"it is of version {version}, and this program knows {VERSION}")
        return footer


class Digest:
    """Of all rows that were put in, however they are cut into tables."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}

    def put(self, rows: Any) -> None:
        for name in COLUMNS:
            for chunk in rows.column(name).chunks:
                if name == "headers":
                    self._lists(name, chunk)
                elif name in ("key", "value", "producer"):
                    self._binary(name, chunk)
                else:
                    self._hash(f"{name}:data").update(int64s(chunk).cast("B"))

    def hex(self) -> str:
        lines = "".join(f"{part}:{self._hash(part).hexdigest()}\n" for part in _PARTS)
        return sha256(lines.encode()).hexdigest()

    def _hash(self, part: str) -> Any:
        if part not in self._parts:
            self._parts[part] = sha256()
        return self._parts[part]

    def _binary(self, name: str, column: Any) -> None:
        from pyarrow import compute

        sizes = compute.fill_null(compute.binary_length(column), -1)
        start = sizes.offset * 4
        raw = memoryview(sizes.buffers()[1]).cast("B")[start : start + len(sizes) * 4]
        part = "." if name.startswith("headers") else ":"
        self._hash(f"{name}{part}sizes").update(raw)
        if column.null_count:
            column = column.drop_null()
        strings = strings_of(column) if len(column) else None
        if strings is not None:
            lo, hi = strings.span(0, len(column))
            self._hash(f"{name}{part}data").update(strings.data[lo:hi])

    def _lists(self, name: str, column: Any) -> None:
        from pyarrow import compute

        sizes = compute.fill_null(compute.list_value_length(column), -1)
        start = sizes.offset * 4
        raw = memoryview(sizes.buffers()[1]).cast("B")[start : start + len(sizes) * 4]
        self._hash(f"{name}:sizes").update(raw)
        each = column.flatten()
        if len(each):
            keys, values = each.flatten()
            self._binary(f"{name}:key", keys)
            self._binary(f"{name}:value", values)
