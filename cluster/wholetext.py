"""A small file that is there when it is whole: written aside, and renamed.  What goes wrong names it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ASIDE: Final = ".new"


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """
    Raises:
        OSError: with the name of the file; what was there before is there still.
    """
    aside = path.with_name(path.name + ASIDE)
    try:
        aside.touch(mode)
        aside.write_text(text, "utf-8")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        # A full disk is told by `write`, which knows of no name.
        raise OSError(error.errno, error.strerror, str(path)) from error
