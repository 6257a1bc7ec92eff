"""The console: the streams of one run of the command line, so that a command can be called in a test.

Results go to `out`, talk goes to `err`: what a pipe gets is never mixed with what a person reads.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, Self, TextIO

PROGRESS_AFTER: Final = 1.0  # seconds; what is shorter needs no bar
PROGRESS_EVERY: Final = 0.1
_BAR: Final = 24


class ResultsLost(OSError):
    """Raised when stdout takes no more, and its reader has not left: the disk is full, say."""


class _Stdout(io.FileIO):
    def write(self, some: Any) -> int:
        try:
            return super().write(some)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ResultsLost(error.errno, error.strerror) from error


class Console:
    def __init__(
        self,
        stdin: BinaryIO,
        out: BinaryIO,
        err: TextIO,
        environ: Mapping[str, str],
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.stdin, self.out, self.err = stdin, out, err
        self.environ = environ
        self.now, self.sleep = now, sleep

    @classmethod
    def of_the_process(cls) -> Console:
        _open_what_is_closed()
        # Buffered also if Python was told not to: a part write would lose the rest.
        out = io.BufferedWriter(_Stdout(sys.stdout.fileno(), "wb", closefd=False))
        return cls(sys.stdin.buffer, out, sys.stderr, os.environ)

    @property
    def terminal(self) -> bool:
        """Whether a person sees the results."""
        return self.out.isatty()

    @property
    def is_pipe(self) -> bool:
        """Whether another program reads the results, and may leave."""
        try:
            return stat.S_ISFIFO(os.fstat(self.out.fileno()).st_mode)
        except (OSError, ValueError):  # not a file at all
            return False

    @property
    def interactive(self) -> bool:
        """Whether a person types the input."""
        return self.stdin.isatty()

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        told = self.environ.get("COLUMNS", "")
        if told.isdecimal() and int(told) > 0:
            return int(told)
        try:
            return os.get_terminal_size(self.out.fileno()).columns
        except (OSError, ValueError):  # not a terminal, or not a file at all
            return 80

    def print(self, text: str = "") -> None:
        """A line of results."""
        self.out.write(f"{text}\n".encode())

    def say(self, text: str) -> None:
        """A line of talk."""
        print(text, file=self.err, flush=True)

    def progress(
        self, verb: str, total: int | None = None, *, beside_results: bool = False
    ) -> Progress:
        """With `beside_results`, results are written meanwhile: a person who sees them needs no bar
        between them.
        """
        quiet = not self.err.isatty() or (beside_results and self.terminal)
        return Progress(self, verb, total, quiet=quiet)


class Progress:
    """A line on a terminal's stderr that tells how far something is, once it has taken a second.

    produced 1,240,000 of 2,000,000  [===============         ]  62 %  410,000/s
    """

    def __init__(self, console: Console, verb: str, total: int | None, *, quiet: bool) -> None:
        self._console, self._verb, self.total = console, verb, total
        self._began = self._shown = console.now()
        self._drawn = False
        self._quiet = quiet
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
        now = self._console.now()
        waited = now - self._shown >= (PROGRESS_EVERY if self._drawn else PROGRESS_AFTER)
        if waited and not self._quiet:
            self._shown, self._drawn = now, True
            line = progress_line(self._verb, self.done, self.total, now - self._began)
            self._console.err.write(f"\r\033[K{line[: self._console.width - 1]}")
            self._console.err.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._console.err.write("\r\033[K")
            self._console.err.flush()


def progress_line(verb: str, done: int, total: int | None, seconds: float) -> str:
    rate = f"{done / seconds:,.0f}/s" if seconds > 0 else ""
    if not total:
        return f"{verb} {done:,}  {rate}"
    part = min(done / total, 1.0)
    bar = ("=" * round(part * _BAR)).ljust(_BAR)
    return f"{verb} {done:,} of {total:,}  [{bar}]  {part:4.0%}  {rate}"


def _open_what_is_closed() -> None:
    """Whoever started us may have closed stdin, stdout or stderr.  Without this the next file or socket
    would get its number, and what is printed, by whatever part of the program, would go there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace"))
