"""Running a command of the command line inside a test: words in, exit code and both streams out."""

from __future__ import annotations

import io
import json
import resource
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from duckrow.tools.cli import run
from duckrow.tools.console import Console


class Done(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def document(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Files of this process have no room for more bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


class Talk(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def console_of(
    stdin: bytes = b"",
    environ: Mapping[str, str] | None = None,
    *,
    terminal: bool = False,
    now: Callable[[], float] = lambda: 0.0,
) -> Console:
    kind = Terminal if terminal else io.BytesIO
    return Console(kind(stdin), kind(), Talk(terminal), environ or {}, now)


def duckrow(
    line: str,
    stdin: bytes = b"",
    environ: Mapping[str, str] | None = None,
    *,
    terminal: bool = False,
) -> Done:
    """`duckrow("topic ls -o json")`."""
    console = console_of(stdin, environ, terminal=terminal)
    code = run(shlex.split(line), console)
    assert isinstance(console.out, io.BytesIO)
    assert isinstance(console.err, io.StringIO)
    return Done(code, console.out.getvalue(), console.err.getvalue())
