"""Care for an archive: what it holds, whether that is still what was written, and copies of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from duckrow.node.archivenames import Named, Span, gaps, temporary, tidy
from duckrow.node.archiveplace import File, Place
from duckrow.node.archivereading import footer_of, verified
from duckrow.node.errors import Conflict, Corrupt, Exists, NotFound, Refused

CHUNK: Final = 1 << 20

Tell = Callable[[int], None]  # so many files more are done


def quiet(_more: int) -> None:
    """For whoever does not want to know."""


class Holding(NamedTuple):
    """A partition of an archive."""

    topic: str
    partition: int
    first: int
    last: int
    entries: int
    files: int
    bytes: int
    missing: int  # numbers between first and last that no file has


class Finding(NamedTuple):
    """What is wrong with a file, or with numbers that have none."""

    file: str
    what: str  # damaged, missing, overlap, differs, only there
    why: str


def reached(where: str) -> Place:
    """
    Raises:
        NotFound: there is no archive there.
    """
    place = Place(where)
    try:
        mark = place.mark()
    except OSError as error:
        raise NotFound(f"{place} cannot be read: {error}") from error
    if not mark:
        raise NotFound(f"there is no archive at {place}")
    return place


def holdings(place: Place, topic: str | None = None) -> Iterator[Holding]:
    for name, partition, files in _partitions(place.files(topic)):
        spans = tidy(file.named.span for file in files)
        lost = sum(len(gap) for gap in gaps(spans))
        first, last = spans[0].first, spans[-1].last
        size = sum(file.size for file in files)
        yield Holding(name, partition, first, last, last + 1 - first - lost, len(files), size, lost)


def check(place: Place, topic: str | None = None, tell: Tell = quiet) -> Iterator[Finding]:
    """Reads everything; all that is wrong, in the order of the files."""
    for name, partition, files in _partitions(place.files(topic)):
        before: Span | None = None
        topic_id: int | None = None  # of the file before
        for file in files:
            span, path = file.named.span, file.named.path
            if before is not None and span.first > before.last + 1:
                lost = Named(name, partition, Span(before.last + 1, span.first - 1))
                yield Finding(lost.path, "missing", f"no file has these {len(lost.span):,} entries")
            elif before is not None and span.first <= before.last:
                yield Finding(path, "overlap", f"it begins before {before.last:,}, where one ends")
            before = span if before is None or span.last > before.last else before
            try:
                found = verified(place, file.named).topic_id
                if topic_id not in (None, found):
                    yield Finding(path, "another topic", "the file before is of another topic")
                topic_id = found
            except (Corrupt, Refused, FileNotFoundError) as error:
                yield Finding(path, "damaged", str(error))
            tell(1)


def compare(
    place: Place, other: Place, topic: str | None = None, tell: Tell = quiet
) -> Iterator[Finding]:
    """The files of two archives, by the digests of their rows; neither is read as a whole."""
    here, there = ({file.named for file in each.files(topic)} for each in (place, other))
    for name in sorted(here | there):
        if name not in there:
            yield Finding(name.path, "only there", f"{place} has it, and {other} has not")
        elif name not in here:
            yield Finding(name.path, "only there", f"{other} has it, and {place} has not")
        else:
            try:
                digests = [footer_of(each, name).digest for each in (place, other)]
                if digests[0] != digests[1]:
                    yield Finding(
                        name.path, "differs", f"rows have other digests: {digests[0]}, {digests[1]}"
                    )
            except (Corrupt, Refused, FileNotFoundError) as error:
                yield Finding(name.path, "damaged", str(error))
        tell(1)


class Copied(NamedTuple):
    files: int
    bytes: int
    there: int  # files that were there already


def copy(source: Place, target: Place, topic: str | None = None, tell: Tell = quiet) -> Copied:
    """Files that the target lacks; each is checked before, and has its name when it is safe.

    Raises:
        Corrupt: a file of the source is damaged; those before it are copied.
        Exists: the target has some of its numbers in a file that was cut elsewhere.
        Conflict: the target is of another row.
        OSError: the target takes no more.
    """
    here, other = source.mark(), target.mark()
    if here and not other:
        target.begin(here)
    elif here and other and here.lineage and other.lineage not in (0, here.lineage):
        raise Conflict(f"the archives at {source} and {target} are of two rows: nothing was copied")
    there: dict[tuple[str, int], list[Span]] = {}
    for file in target.files(topic):
        there.setdefault((file.named.topic, file.named.partition), []).append(file.named.span)
    done = size = had = 0
    for file in source.files(topic):
        name = file.named
        spans = there.get((name.topic, name.partition), [])
        if any(span.first <= name.span.first and name.span.last <= span.last for span in spans):
            had += 1
        elif clash := [s for s in spans if s.first <= name.span.last and name.span.first <= s.last]:
            raise Exists(
                f"{name.path} is not copied: {target} has some of its entries in {clash[0].name}"
            )
        else:
            verified(source, name)
            _copy(source, target, name)
            done, size = done + 1, size + file.size
        tell(1)
    return Copied(done, size, had)


def _copy(source: Place, target: Place, name: Named) -> None:
    aside = temporary(name.path, "copy")
    try:
        with source.open(name.path) as old, target.create(aside) as new:
            while chunk := old.read(CHUNK):
                new.write(chunk)
        target.publish(aside, name.path)
    except BaseException:
        target.remove(aside)
        raise


def _partitions(files: list[File]) -> Iterator[tuple[str, int, list[File]]]:
    def key(file: File) -> tuple[str, int]:
        return file.named.topic, file.named.partition

    for (topic, partition), found in groupby(files, key):
        yield topic, partition, list(found)
