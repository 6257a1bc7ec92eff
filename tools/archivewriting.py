"""Writes a file of the archive: row groups into a file aside, which gets its name when it is safe.

    put, put, put ──► .<name>.<node>.tmp ──► digest in the footer ──► synced ──► <name>

The name that is there wins: another node has written the same rows, which is made sure of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from duckrow.node.archivefooter import Digest, Footer
from duckrow.node.archivenames import Named, temporary
from duckrow.node.archiveplace import Place
from duckrow.node.archivereading import verified
from duckrow.node.archivetables import GROUP_ROWS, schema, table
from duckrow.node.entries import Batch
from duckrow.node.errors import Conflict, Corrupt

COMPRESSION: Final = "zstd"
OFTEN_THE_SAME: Final = ["timestamp", "producer", "position"]  # a dictionary of these pays

T = TypeVar("T")


class Writer:
    """One file; nothing is there of it until `finish`."""

    def __init__(
        self, place: Place, name: Named, topic_id: int, node: str, *, replace: bool = False
    ) -> None:
        self.name, self._topic_id = name, topic_id
        self.rows = 0
        self._place, self._replace = place, replace
        self._aside = temporary(name.path, node)
        self._digest = Digest()
        self._stream: Any = None
        self._parquet: Any = None

    def put(self, group: Sequence[Batch]) -> Writer | None:
        """A row group; the file itself with the last one.

        Raises:
            OSError: it cannot be written; nothing is left of it.
            Conflict: the name stands for other rows.
        """
        try:
            if self._parquet is None:
                self._open()
            rows = table(group)
            self._digest.put(rows)
            self._parquet.write_table(rows, row_group_size=GROUP_ROWS)
            self.rows += rows.num_rows
            if self.rows < len(self.name.span):
                return None
            self._finish()
        except BaseException:
            self.abandon()
            raise
        return self

    def abandon(self) -> None:
        """Unless it is finished, nothing is left of it."""
        parquet, stream = self._parquet, self._stream
        self._parquet = self._stream = None
        for each in (parquet, stream):
            try:
                if each is not None:
                    each.close()
            except OSError:
                pass  # what could not be written is not wanted any more
        if stream is not None:
            self._place.remove(self._aside)

    def _open(self) -> None:
        from pyarrow import parquet

        self._stream = self._place.create(self._aside)
        self._parquet = parquet.ParquetWriter(
            self._stream,
            schema(),
            compression=COMPRESSION,
            use_dictionary=OFTEN_THE_SAME,
            write_page_checksum=True,
        )

    def _finish(self) -> None:
        span = self.name.span
        footer = Footer(
            self.name.topic, self._topic_id, self.name.partition, span, self._digest.hex()
        )
        self._parquet.add_key_value_metadata(footer.pairs())
        self._parquet.close()
        self._stream.close()
        if self._is_there(footer):
            self._place.remove(self._aside)
        else:
            self._place.publish(self._aside, self.name.path)
        self._parquet = self._stream = None

    def _is_there(self, footer: Footer) -> bool:
        """Whether somebody else has written the same rows meanwhile.

        Raises:
            Conflict: they are others.
        """
        if self._replace or not self._place.has(self.name.path):
            return False
        try:
            found = verified(self._place, self.name)
        except Corrupt:
            return False  # ours takes its place
        if found != footer:
            raise Conflict(
                f"{self._place}/{self.name.path} has other rows than this node: their digest is "
                f"{found.digest[:16]}…, and that of the same numbers here {footer.digest[:16]}…; "
                "`duckrow verify` and `duckrow pipeline audit` tell which nodes differ"
            )
        return True


class OtherHand(Generic[T]):
    """One task at a time in another thread: while it writes a buffer, we fill the next one, and wait
    when that is full.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._under_way: Future[T] | None = None

    def wait(self) -> T | None:
        """The result of what it does; None: it does nothing.

        Raises:
            Exception: what went wrong there.
        """
        under_way, self._under_way = self._under_way, None
        return None if under_way is None else under_way.result()

    def swap(self, task: Callable[[], T]) -> T | None:
        """As `wait`; then it begins this."""
        found = self.wait()
        self._under_way = self._thread.submit(task)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown()
