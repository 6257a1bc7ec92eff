"""Bits that change on a disk, while whoever wrote them has the files open."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Final

FLIPS_MAX: Final = 20  # at once


def flip_bits(row: Path, chance: random.Random) -> list[str]:
    """Some, in the segments of a row; each as its file and the place in it."""
    return [place for _ in range(chance.randint(1, FLIPS_MAX)) if (place := _flip(row, chance))]


def _flip(row: Path, chance: random.Random) -> str:
    """Large files are hit more often, as by chance they would be."""
    sizes: dict[Path, int] = {}
    for path in sorted(row.glob("*.seg")):
        with contextlib.suppress(FileNotFoundError):
            sizes[path] = path.stat().st_size
    if not sum(sizes.values()):
        return ""
    (path,) = chance.choices([*sizes], [*sizes.values()])
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        place = chance.randrange(path.stat().st_size)
        (byte,) = os.pread(file.fileno(), 1, place)
        os.pwrite(file.fileno(), bytes([byte ^ 1 << chance.randrange(8)]), place)
        return f"{path.name}+{place}"
    return ""
