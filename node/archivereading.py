"""Reads an archive: which file has a number, and its entries as the batches that they were.

    listing ──► file ──► row group ──► batches          the last few of each are remembered

A number that no known file has, or a file that has gone, makes it list the partition anew.  Page checksums are compared when
a row group is read, so a damaged one is `Corrupt` and never wrong entries.  Blocking; a client that
is not calls it in a thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta  # sim-ok: what a footer says; no clock is read
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from .archivefooter import Digest, Footer
from .archivenames import Named, Span, tidy
from .archiveplace import Place
from .archivetables import batches_of, pyarrow, schema, weight
from .entries import Batch
from .errors import Corrupt, NotFound
from .limits import MIB

GROUPS_BYTES: Final = 128 * MIB  # of row groups in memory, about
FILES_KEPT: Final = 32  # footers
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
T = TypeVar("T")
_Group = tuple[str, str, int]  # path and digest of its file, and which of them


class Run(NamedTuple):
    """Entries of a partition, numbered without a gap."""

    batches: list[Batch]
    ended: bool  # the archive has no more of what was asked for, right behind them


class Archive:
    """For several threads; one reads at a time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._reading = Lock()
        self._spans: dict[tuple[str, int], list[Span]] = {}
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._groups: OrderedDict[_Group, list[Batch]] = OrderedDict()
        self._sizes: dict[_Group, int] = {}

    def run(
        self,
        topic: str,
        topic_id: int,
        partition: int,
        numbers: Span,
        limit: int,
        max_bytes: int,
    ) -> Run:
        """From the first of these numbers that there is; some entries, unless there are none.

        Raises:
            Corrupt: a file is not what was written.
            NotFound: the archive cannot be reached from here.
        """
        return self._look(lambda: self._run(topic, topic_id, partition, numbers, limit, max_bytes))

    def reach(self) -> None:
        """
        Raises:
            NotFound: there is no archive there, seen from here.
        """
        try:
            mark = self.place.mark()
        except OSError as error:
            raise self._away(error) from error
        if not mark:
            raise NotFound(
                f"there is no archive at {self.place}, seen from here: name the place where this "
                "machine finds it, as in archive='/mnt/archive'"
            )

    def last(
        self, topic: str, topic_id: int, partition: int, below: int, count: int
    ) -> list[Batch]:
        """The last entries below a number, at most so many; in order.

        Raises:
            Corrupt, NotFound: see `run`.
        """
        return self._look(lambda: self._last(topic, topic_id, partition, below, count))

    def _last(
        self, topic: str, topic_id: int, partition: int, below: int, count: int
    ) -> list[Batch]:
        found: list[Batch] = []
        spans = self._listed(topic, partition, fresh=True)
        for span in reversed([span for span in spans if span.first < below]):
            name = Named(topic, partition, span)
            if not self._is_of(name, topic_id):
                continue
            start = max(span.first, min(span.last, below - 1) + 1 - count)
            batches = [batch for batch in self._groups_of(name, start) if batch.first < below]
            if batches and batches[-1].last >= below:
                batches[-1] = batches[-1].part(0, below - batches[-1].first)
            found = batches + found
            count -= sum(map(len, batches))
            if count < 1:
                break
        return found

    def _run(
        self,
        topic: str,
        topic_id: int,
        partition: int,
        numbers: Span,
        limit: int,
        max_bytes: int,
    ) -> Run:
        found: list[Batch] = []
        rows = size = 0
        at = numbers.first
        for batch in self._from(topic, topic_id, partition, numbers):
            if (found and batch.first != at) or batch.first > numbers.last:
                return Run(found, True)
            part = batch.part(0, min(len(batch), numbers.last + 1 - batch.first, limit - rows))
            found.append(part)
            rows, size = rows + len(part), size + weight(part.columns, part.lo, part.hi)
            at = part.last + 1
            if at > numbers.last:
                return Run(found, True)
            if rows >= limit or size >= max_bytes:
                return Run(found, False)
        return Run(found, True)

    def first(self, topic: str, topic_id: int, partition: int, since: int = 1) -> int | None:
        """The first number there is, not below `since`; None: there is nothing.

        Raises:
            Corrupt, NotFound: see `run`.
        """
        return self._look(lambda: self._first(topic, topic_id, partition, since))

    def _first(self, topic: str, topic_id: int, partition: int, since: int) -> int | None:
        for span in self._listed(topic, partition, fresh=True):
            if span.last < since:
                continue
            if self._is_of(Named(topic, partition, span), topic_id):
                return max(span.first, since)
        return None

    def tables(self, topic: str, topic_id: int, partition: int, numbers: Span) -> Iterator[Any]:
        """These numbers as tables of Arrow, from the first on, as far as there is no gap.

        Raises:
            Corrupt, NotFound: see `run`.
        """
        at = numbers.first
        while at <= numbers.last:
            found = self._look(partial(self._table, topic, topic_id, partition, at))
            if found is None:
                return
            part = found.slice(0, numbers.last + 1 - at)
            at += part.num_rows
            yield part

    def _table(self, topic: str, topic_id: int, partition: int, at: int) -> Any:
        """From this number on, some; None: it is not here."""
        name = self._holder(topic, partition, at)
        if name is None or name.span.first > at:
            return None
        return self._file(name).rows_from(at) if self._is_of(name, topic_id) else None

    def since(self, topic: str, topic_id: int, partition: int, time: int) -> int | None:
        """The first number at or after a time; None: all that is here is older.

        Raises:
            Corrupt, NotFound: see `run`.
        """
        return self._look(lambda: self._since(topic, topic_id, partition, time))

    def _since(self, topic: str, topic_id: int, partition: int, time: int) -> int | None:
        spans = self._listed(topic, partition, fresh=True)
        files = [Named(topic, partition, span) for span in spans]
        lo, hi = 0, len(files)
        while lo < hi:
            middle = (lo + hi) // 2
            if self._file(files[middle]).newest() < time:
                lo = middle + 1
            else:
                hi = middle
        if lo == len(files) or not self._is_of(files[lo], topic_id):
            return None
        for batch in self._groups_of(files[lo], files[lo].span.first):
            if batch.time >= time:
                return batch.first
        return None

    def _from(self, topic: str, topic_id: int, partition: int, numbers: Span) -> Iterator[Batch]:
        """Batches from the first of these numbers on, through all files."""
        at = numbers.first
        while at <= numbers.last:
            name = self._holder(topic, partition, at)
            if name is None:
                return
            if not self._is_of(name, topic_id):
                at = name.span.last + 1  # of another topic that had this name
                continue
            yield from self._groups_of(name, max(at, name.span.first))
            at = name.span.last + 1

    def _holder(self, topic: str, partition: int, number: int) -> Named | None:
        """The file with this number, or with the next one there is."""
        for fresh in (False, True):
            spans = self._listed(topic, partition, fresh=fresh)
            at = bisect_left(spans, number, key=lambda span: span.last)
            if at < len(spans) and (fresh or spans[at].first <= number):
                return Named(topic, partition, spans[at])
        return None

    def _listed(self, topic: str, partition: int, *, fresh: bool) -> list[Span]:
        key = topic, partition
        if fresh or key not in self._spans:
            try:
                files = self.place.files(topic, partition)
            except OSError as error:
                raise self._away(error) from error
            if not files:
                self.reach()  # else a disk that is away would be an archive without entries
            self._spans[key] = tidy(file.named.span for file in files)
        return self._spans[key]

    def _is_of(self, name: Named, topic_id: int) -> bool:
        """Whether it is a file of that topic, and not of an older one that had its name."""
        if self._file(name).footer.topic_id != topic_id:
            del self._files[
                name.path
            ]  # that one may have been moved away, and be another one by now
        return self._file(name).footer.topic_id == topic_id

    def _file(self, name: Named) -> _File:
        if name.path not in self._files:
            self._files[name.path] = _File(self.place, name)
            if len(self._files) > FILES_KEPT:
                self._files.popitem(last=False)
        self._files.move_to_end(name.path)
        return self._files[name.path]

    def _groups_of(self, name: Named, start: int) -> Iterator[Batch]:
        """Batches of the file, from that number on."""
        file = self._file(name)
        for group in range(file.group_of(start), file.groups):
            # The path alone may become that of another topic.
            key = name.path, file.footer.digest, group
            if key not in self._groups:
                self._groups[key] = file.batches(group)
                self._sizes[key] = file.size_of(group)
                while sum(self._sizes.values()) > GROUPS_BYTES and len(self._groups) > 1:
                    del self._sizes[self._groups.popitem(last=False)[0]]
            self._groups.move_to_end(key)
            batches = self._groups[key]
            for batch in batches[bisect_left(batches, start, key=lambda each: each.last) :]:
                yield batch if batch.first >= start else batch.part(start - batch.first, len(batch))

    def _look(self, read: Callable[[], T]) -> T:
        """A compaction may have put a file into a larger one since it was listed: then once more.

        Raises:
            NotFound: that is not why it has gone.
        """
        with self._reading:
            try:
                return read()
            except FileNotFoundError:
                self._spans.clear()
                self._files.clear()
            except Corrupt:
                self._files.clear()  # a whole one that comes in its place is another file than the open one
                raise
            try:
                return read()
            except FileNotFoundError as error:
                raise self._away(error) from error

    def _away(self, error: OSError) -> NotFound:
        return NotFound(f"the archive at {self.place} cannot be read from here: {error}")


class _File:
    """One that is open."""

    def __init__(self, place: Place, name: Named) -> None:
        """
        Raises:
            FileNotFoundError: it is not there.
            Corrupt: it is no file of an archive.
        """
        from pyarrow import parquet

        self.name, self.where = name, f"{place}/{name.path}"
        with _told(self.where):
            self._parquet = parquet.ParquetFile(
                place.open(name.path), page_checksum_verification=True
            )
            metadata = self._parquet.metadata
            self.footer = Footer.of(metadata.metadata or {})
            self.groups: int = metadata.num_row_groups
            rows = [metadata.row_group(group).num_rows for group in range(self.groups)]
        if not self._parquet.schema_arrow.equals(schema()):
            raise Corrupt(f"{self.where} has other columns than a file of an archive")
        self._starts = [*accumulate(rows, initial=name.span.first)][:-1]
        if self.footer.named != name or sum(rows) != len(name.span):
            raise Corrupt(
                f"{self.where} has {sum(rows):,} rows, and its footer says {self.footer.named.path}"
            )

    def group_of(self, number: int) -> int:
        return bisect_right(self._starts, number) - 1

    def size_of(self, group: int) -> int:
        """Bytes that it takes in memory."""
        return int(self._parquet.metadata.row_group(group).total_byte_size)

    def newest(self) -> int:
        """The time of its last entry."""
        found = self._parquet.metadata.row_group(self.groups - 1).column(1).statistics
        if found is None or not found.has_min_max:
            return self.batches(self.groups - 1)[-1].time
        newest: datetime = found.max
        return (newest - _EPOCH) // _MICROSECOND

    def batches(self, group: int) -> list[Batch]:
        return list(batches_of(self.name, self.table(group)))

    def rows_from(self, number: int) -> Any:
        """The rest of the row group that has this number."""
        group = self.group_of(number)
        return self.table(group).slice(number - self._starts[group])

    def table(self, group: int) -> Any:
        """
        Raises:
            Corrupt: it cannot be read.
        """
        with _told(self.where):
            return self._parquet.read_row_group(group)


@contextmanager
def _told(where: str) -> Iterator[None]:
    """What pyarrow finds wrong, as an error of ours."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, Corrupt, ValueError, pyarrow().ArrowException) as error:
        raise Corrupt(f"{where} cannot be read: {error}") from error


def footer_of(place: Place, name: Named) -> Footer:
    """What a file says of itself.

    Raises:
        Corrupt, FileNotFoundError: see `verified`.
    """
    return _File(place, name).footer


def verified(place: Place, name: Named) -> Footer:
    """Reads all of a file, and compares.

    Raises:
        Corrupt: its rows are not those that were written.
        FileNotFoundError: it is not there.
    """
    file = _File(place, name)
    for _ in _checked(file):
        pass
    return file.footer


def entries_in(place: Place, name: Named) -> Iterator[Batch]:
    """All of a file; whether it is what was written shows at the end.

    Raises:
        Corrupt, FileNotFoundError: see `verified`.
    """
    yield from _checked(_File(place, name))


def _checked(file: _File) -> Iterator[Batch]:
    digest, at = Digest(), file.name.span.first
    for group in range(file.groups):
        table = file.table(group)
        digest.put(table)
        for batch in batches_of(file.name, table):
            if batch.first != at:
                raise Corrupt(f"{file.where}: {batch.first:,} stands where {at:,} should")
            yield batch
            at = batch.last + 1
    if digest.hex() != file.footer.digest:
        raise Corrupt(
            f"{file.where}: its rows have the digest {digest.hex()[:16]}…, and when it was "
            f"written they had {file.footer.digest[:16]}…"
        )
