"""A file that is there when it is whole: written aside, synced, renamed.

Who is cut off in the middle, or has no room, finds what was there before, or nothing, and never a part.
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
    """Where to write meanwhile.  What is no plain file, a pipe say, is written to as it comes.

    Raises:
        OSError: with the name of a file; a full disk is told by `write`, which knows of none.
    """
    target = path.resolve()  # a link stays one
    try:
        if target.exists() and not target.is_file():
            yield target
            return
        check_folder(target)
        aside = target.with_name(f"{target.name}.{ENDING}")
        try:
            yield aside
            _sync(aside, os.O_RDONLY)
            aside.rename(target)
            _sync(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            why = os.strerror(error.errno)
            raise OSError(error.errno, f"{why}; it was not written", str(path)) from error
        raise


def check_folder(path: Path) -> None:
    """
    Raises:
        FileNotFoundError: there is none to write it to.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
