"""A small file that is there when it is whole: written aside, and renamed.  What is wrong with it names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from duckrow.node.errors import Corrupt, Refused

T = TypeVar("T")
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


def read_text(path: Path) -> str:
    """
    Raises:
        OSError: it cannot be read; FileNotFoundError: it is not there.
        Refused: it is no text.
    """
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            f"{path} is no text in UTF-8: {error.reason} at byte {error.start}"
        ) from error


def read_told(path: Path, make: Callable[[Any], T]) -> T:
    """What is made of that which `json.dumps` wrote.

    Raises:
        OSError: it cannot be read; FileNotFoundError: it is not there.
        Corrupt: it is something else.
    """
    try:
        return make(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            f"{path} is not as a cluster has written it ({type(error).__name__}: {error}): end what runs "
            "there, and remove the folder"
        ) from error
