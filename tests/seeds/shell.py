"""A real node and the command line, for features that somebody types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckrow as library
from clikit import Done, duckrow


class Shell:
    """One line after the other, against one node."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, line: str, stdin: str = "", *, terminal: bool = False) -> Done:
        return duckrow(line, stdin.encode(), {"DUCKROW_URL": self.url}, terminal=terminal)

    def rows(self, line: str, stdin: str = "") -> list[Any]:
        return self(line, stdin).rows


@contextmanager
def shell() -> Iterator[Shell]:
    with library.Node() as node:
        yield Shell(node.url)
