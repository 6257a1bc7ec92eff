"""What is told about bytes on the disk that are not those that were written."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from .events import ERROR, INFO, Note

TOLD = 20  # one by one, of what one look found


@attrs.frozen
class Damage:
    """One damaged stretch of one file; `str` of it is a sentence for the operator."""

    file: str
    offset: int
    length: int
    what: str  # what lay there, as far as it is known
    first: int = 0  # positions concerned, from first to last; 0: none, or not known
    last: int = 0
    topics: tuple[str, ...] = ()
    mended: bool = False  # what it said is known from elsewhere; nothing is lost

    def __str__(self) -> str:
        where = f"{self.file}: {self.length:,} bytes at {self.offset:,} are damaged: {self.what}"
        if self.first:
            row = f"position {self.first}"
            if self.last != self.first:
                row = f"positions {self.first} to {self.last}"
            where += f" ({row})"
        if self.topics:
            where += f" of {', '.join(self.topics)}"
        return where + ("; nothing is lost" if self.mended else "")


def tell_of_damages(note: Note, damages: Sequence[Damage]) -> None:
    for damage in damages[:TOLD]:
        note(INFO if damage.mended else ERROR, "damaged what=%s", damage)
    if more := len(damages[TOLD:]):
        note(ERROR, "damaged more=%d", more)
