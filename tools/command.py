"""Commands as data: words, options, examples and the function that does it.

From this one description come the parser, `--help`, the reference page and the completion of shells.
A command is a function of its arguments and a console that gives an exit code:

    0 done   1 failed   2 usage   3 not found   4 timed out   5 no quorum   130 interrupted

Nothing here or in a command's module imports more than it needs to say `--help`: what a command
works with is imported where it runs.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from .console import Console

DONE, FAILED, USAGE, NOT_FOUND, TIMED_OUT, NO_QUORUM, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

_WHOLE_MOST: Final = (1 << 63) - 1
_PLACE: Final = "\0"  # marks a word behind --, which is no option whatever it looks like

Args = argparse.Namespace
Run = Callable[[Args, Console], int]


class UsageError(Exception):
    """Raised when what was typed cannot be meant; it says what to type."""


class Option(NamedTuple):
    """An argument; one without a dash is known by its place."""

    names: tuple[str, ...]
    said: str
    kind: Callable[[str], Any] = str
    metavar: str | None = None
    default: Any = None
    choices: tuple[str, ...] = ()
    many: str = ""  # "*" or "?" or "+" of a place; "repeat" of an option that may come again
    switch: bool = False  # takes no value

    @property
    def by_place(self) -> bool:
        return not self.names[0].startswith("-")

    @property
    def dest(self) -> str:
        return max(self.names, key=len).lstrip("-").replace("-", "_")

    @property
    def form(self) -> str:
        """As it is written in a usage line."""
        shown = self.metavar or ("|".join(self.choices) or self.dest.upper())
        if self.by_place:
            return {"?": f"[{shown}]", "*": f"[{shown}...]", "+": f"{shown}..."}.get(
                self.many, shown
            )
        name = max(self.names, key=len)
        return name if self.switch else f"{name} {shown}"


class Command(NamedTuple):
    words: str  # "topic new"
    sentence: str
    run: Run
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    more: str = ""  # what a user may want to know beyond the sentence
    url: bool = False  # it talks to a node
    rows: bool = False  # it has results

    @property
    def all_options(self) -> tuple[Option, ...]:
        return (
            *self.options,
            *(NODE_OPTIONS if self.url else ()),
            *(ROW_OPTIONS if self.rows else ()),
            *COMMON_OPTIONS,
        )


NODE_OPTIONS: Final = (
    Option(("--url",), "the node; else DUCKROW_URL, else your own socket"),
    Option(("--timeout",), "how long to wait for the node (10)", kind=lambda text: seconds(text)),
)
ROW_OPTIONS: Final = (
    Option(
        ("-o", "--output"),
        "the form of the results; a table on a terminal, else jsonl",
        choices=("table", "json", "jsonl", "csv"),
    ),
)
COMMON_OPTIONS: Final = (Option(("--debug",), "if it fails, show where in the code", switch=True),)


def option(*names: str, said: str, **rest: Any) -> Option:
    return Option(names, said, **rest)


def usage(command: Command) -> str:
    places = [each.form for each in command.options if each.by_place]
    flags = [f"[{each.form}]" for each in command.options if not each.by_place]
    return " ".join(["duckrow", command.words, *places, *flags])


def help_of(command: Command) -> str:
    """What `--help` says."""
    parts = [_wrapped(usage(command), "usage: ", " " * 11), command.sentence + "."]
    if command.more:
        parts.append(command.more)
    for head, options in (
        ("arguments", [each for each in command.options if each.by_place]),
        ("options", [each for each in command.all_options if not each.by_place]),
    ):
        if options:
            parts.append("\n".join([f"{head}:", *_lines(options)]))
    if command.examples:
        parts.append("\n".join(["examples:", *(f"  {each}" for each in command.examples)]))
    return "\n\n".join(parts) + "\n"


def parse(command: Command, words: Sequence[str]) -> Args | None:
    """The arguments; None: help was asked for.

    Raises:
        UsageError: they do not fit the command.
    """
    parser = _Parser(prog=f"duckrow {command.words}", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    if {"-h", "--help"} & set(_before_dashes(words)):
        return None  # even if a place is missing
    for each in command.all_options:
        given: dict[str, Any] = {"default": each.default}
        if each.switch:
            given = {"action": "store_true"}
        else:
            given |= {"type": _checked(each.kind), "metavar": each.metavar or each.dest.upper()}
            if each.choices:
                given["choices"] = each.choices
            if each.many == "repeat":
                given["action"] = "append"
            elif each.many:
                given["nargs"] = each.many
        parser.add_argument(*each.names, **given)
    head = _before_dashes(words)
    tail = [_PLACE + word for word in words[len(head) + 1 :]]
    return parser.parse_intermixed_args([*_joined(command, head), *tail])


def whole(least: int, most: int = _WHOLE_MOST) -> Callable[[str], int]:
    """A kind of option: a whole number."""

    bounds = f"from {least:,} on" if most == _WHOLE_MOST else f"from {least:,} to {most:,}"

    def read(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {bounds}")
        return int(text)

    return read


def duration_us(text: str) -> int:
    """A kind of option: microseconds, as in 10m."""
    from duckrow.node.units import read_duration

    return read_duration(text)


def seconds(text: str) -> float:
    """A kind of option: seconds, as in 3, 0.5 or 500ms."""
    return duration_us(text) / 1e6


def size(text: str) -> int:
    """A kind of option: bytes, as in 64MiB."""
    from duckrow.node.units import read_size

    return read_size(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _checked(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        from duckrow.node.errors import Refused

        try:
            return kind(text.removeprefix(_PLACE))
        except Refused as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _joined(command: Command, words: Sequence[str]) -> Iterator[str]:
    """`--after -2` as `--after=-2`: what stands behind an option is its value, however it looks."""
    names = {
        name: max(each.names, key=len)
        for each in command.all_options
        for name in each.names
        if not (each.by_place or each.switch)
    }
    left = iter(words)
    for word in left:
        value = next(left, None) if word in names else None
        yield word if value is None else f"{names[word]}={value}"


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _lines(options: Sequence[Option]) -> Iterator[str]:
    for each in options:
        names = (
            each.form
            if each.by_place
            else ", ".join([*sorted(each.names, key=len)[:-1], each.form])
        )
        said = textwrap.wrap(each.said, 62)
        if len(names) > 20:
            yield f"  {names}"
            names = ""
        for line in said:
            yield f"  {names:<22}{line}"
            names = ""


def _wrapped(text: str, first: str, rest: str) -> str:
    return textwrap.fill(
        text, 96, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
