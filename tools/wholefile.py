"""A file that is there when it is whole: written aside, synced, renamed.

Who is cut off in the middle finds what was there before, or nothing, and never a part.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENDING = "writing"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write meanwhile.  What is no plain file, a pipe say, is written to as it comes."""
    target = path.resolve()  # a link stays one
    if target.exists() and not target.is_file():
        yield target
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    aside = target.with_name(f"{target.name}.{ENDING}")
    try:
        yield aside
        _sync(aside, os.O_RDONLY)
        aside.rename(target)
        _sync(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        aside.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
