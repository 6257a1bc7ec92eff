"""What one segment numbered, while it is in memory; and how it travels in snapshots.

The rows of the open segment, and of sealed ones that are not written yet, exist nowhere else, and a
restart from a snapshot does not apply again what is in the snapshot.  So the snapshot takes them
along: the same bytes as a file, in chunks, unsealed if more is to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from .errors import Corrupt
from .numberchain import Tail
from .numberfile import Cover, NumberFile, Run, Stray, encode

PART: Final = "rows"
END: Final = "rows' end"


class Growing:
    """The rows of a segment, by key of their partition."""

    __slots__ = ("after", "begun", "segment", "strays", "tails", "upto")

    def __init__(self, segment: int, after: int) -> None:
        self.segment = segment
        self.after = after
        self.upto: int | None = None  # its last item, once it is sealed
        self.tails: dict[int, Tail] = {}
        self.strays: list[Stretch] = []
        # Rows and bytes that tails had when the newest capture began, of those that have more by now.
        self.begun: dict[int, tuple[int, int]] | None = None

    def cover(self, covered: int) -> Cover:
        upto = covered if self.upto is None else self.upto
        return Cover(self.segment, self.after, upto, sealed=self.upto is not None)

    def encode(self, store: bytes, covered: int) -> Iterator[bytes]:
        """The file, in pieces: as it is now, however long the caller rests in between."""
        # There may be thousands of partitions: nothing is done here for each of them.
        self.begun = {}
        runs = self._as_begun(self.tails.copy(), self.begun)
        # Strays of a topic that was deleted have no rows any more.
        strays = [each.value() for each in self.strays if each.key in self.tails]
        return encode(self.cover(covered), store, runs, strays)

    def note(self, key: int, tail: Tail) -> None:
        """Before a row is added to it, while there is a capture: that shows it without."""
        assert self.begun is not None
        if key not in self.begun:
            self.begun[key] = tail.stop, tail.size

    def _as_begun(
        self, tails: Mapping[int, Tail], begun: dict[int, tuple[int, int]]
    ) -> Iterator[Run]:
        try:
            for key in sorted(tails):
                tail = tails[key]
                length, size = begun.get(key) or (tail.stop, tail.size)
                yield Run(key, tail.rows, length, size)
        finally:
            if self.begun is begun:  # not that of a later capture
                self.begun = None

    def recall(self, file: NumberFile) -> None:
        """The rows of a file that was captured, back into memory."""
        for index, key in enumerate(file.keys.tolist()):
            tail = self.tails[key] = Tail(file.firsts[index])
            tail.rows += file.run(index)
            tail.next = file.lasts[index] + 1
            tail.size = file.sizes[index]
        if file.cover.sealed:
            self.upto = file.cover.upto


class Stretch:
    """A stray that may still become longer."""

    __slots__ = ("first", "key", "last", "numbered", "segment", "size")

    def __init__(self, stray: Stray, numbered: int) -> None:
        self.key, self.first, self.last, self.segment, self.size = stray
        self.numbered = numbered  # the segment that numbered it; -1: a file has it

    def adjoins(self, stray: Stray) -> bool:
        return self.last + 1 == stray.first and self.segment == stray.segment

    def value(self) -> Stray:
        return Stray(self.key, self.first, self.last, self.segment, self.size)


def captured(files: Sequence[Iterator[bytes]]) -> Iterator[tuple[str, bytes]]:
    """Files as chunks of a snapshot."""
    for pieces in files:
        for piece in pieces:
            yield PART, piece
        yield END, b""


def restored(chunks: Iterable[tuple[str, bytes]]) -> list[NumberFile]:
    """The files that are among the chunks of a snapshot.

    Raises:
        Corrupt: they are not whole.
    """
    files: list[NumberFile] = []
    data = bytearray()
    for kind, piece in chunks:
        if kind == PART:
            data += piece
        elif kind == END:
            files.append(NumberFile(bytes(data), captured=True))
            data = bytearray()
    if data:
        raise Corrupt(f"{len(data):,} bytes of the index have no end in this snapshot")
    return files
