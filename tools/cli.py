"""The command line `duckrow`: finds the command, runs it, and turns what goes wrong into a sentence.

    duckrow NOUN [VERB] ...        each noun, or verb without one, is a file cli_<word>.py

`duckrow --help` must be quick, so this table stands here and no command is imported for it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Final

from .command import (
    DONE,
    FAILED,
    INTERRUPTED,
    NO_QUORUM,
    NOT_FOUND,
    TIMED_OUT,
    USAGE,
    Command,
    UsageError,
    help_of,
    parse,
)
from .console import Console, ResultsLost

INDEX: Final = {
    "Entries": {
        "produce": "Put entries into a topic",
        "pull": "Show the entries of a topic from a place on",
        "follow": "Show the entries of a topic as they come",
        "receipt": "Tell what became of an accepted entry",
        "trace": "Tell the life of one entry",
    },
    "Topics": {
        "topic": "Make, change, list, look at, prune and remove topics",
        "export": "Write a topic, as it is now, to a file of JSON lines or Parquet",
        "import": "Produce the entries of a file of JSON lines or Parquet",
        "archive": "Write what is pruned to Parquet files; list, check, copy and query them",
    },
    "Nodes": {
        "node": "Run a node",
        "bridge": "Run the bridge of a machine without its node",
        "config": "Write, show and check the configuration of a node",
        "status": "Show how a node is",
        "client": "Show who talks to a node",
        "cluster": "Start clusters on this machine, and hurt them",
        "member": "Show and change who votes in a cluster",
        "link": "Show the links of a machine with others",
        "verify": "Compare the rows of all nodes that can be reached",
        "backup": "Copy a node, while it runs or not, to a folder from which it can be restored",
        "restore": "Make the folder of a node from a backup",
        "bench": "Measure what a node does here",
        "chaos": "Hurt a cluster under load, and check what is left",
        "pipeline": "Audits and reports of topics, on Spark",
        "rtt": "Time entries from a client at one machine to one at another and back",
    },
    "Help": {
        "why": "Say why something stands still, and what to run next",
        "doctor": "Look at the program, the machine, the configuration and the node",
        "explain": "What an error, a result or a reason means, and what to do",
        "completion": "Completion of these commands for bash, zsh or fish",
    },
}
WORDS: Final = {word: said for part in INDEX.values() for word, said in part.items()}
_EXIT_CODES: Final = {
    "not-found": NOT_FOUND,
    "timeout": TIMED_OUT,
    "no-quorum": NO_QUORUM,
}
_LEADING: Final = ("--url", "--timeout", "-o", "--output")  # options that may stand before the word


def main() -> int:
    """The entry point of the program."""
    return run(sys.argv[1:], Console.of_the_process())


def run(argv: Sequence[str], console: Console) -> int:
    """One command, from its words to its exit code."""
    code = DONE
    try:
        code = _run(argv, console)
        console.out.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        _forget(console)
        return DONE
    except OSError as error:  # a full disk, with some of the results still to be written
        _forget(console)
        if code == DONE:
            console.say(f"duckrow: not all results could be written: {_said(error)}")
        return code or FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def commands(word: str) -> tuple[Command, ...]:
    """The commands of a noun, or the one of a verb that has none."""
    found: tuple[Command, ...] = import_module(f".cli_{word}", __package__).COMMANDS
    return found


def _run(argv: Sequence[str], console: Console) -> int:
    try:
        command, rest = _found(argv, console)
        if command is None:
            return DONE
        args = parse(command, rest)
        if args is None:
            console.out.write(help_of(command).encode())
            return DONE
        return command.run(args, console)
    except UsageError as error:
        console.say(f"duckrow: {error}")
        return USAGE
    except (BrokenPipeError, ResultsLost, KeyboardInterrupt):
        raise
    except Exception as error:  # noqa: BLE001 - the boundary: nobody above could say more
        return _failed(error, console, debug="--debug" in argv)


def _said(error: Exception) -> str:
    """The system's own errors without their numbers."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _failed(error: Exception, console: Console, *, debug: bool) -> int:
    from duckrow.node.errors import DiskFailed, DuckrowError, UnknownVersion

    if debug:
        console.say("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, DuckrowError | OSError | DiskFailed | UnknownVersion):
        console.say(f"duckrow: {_said(error)}")
        if isinstance(error, FileNotFoundError | NotADirectoryError) and error.filename:
            return NOT_FOUND
        return _EXIT_CODES.get(getattr(error, "code", ""), FAILED)
    if not debug:
        console.say(
            f"duckrow: a mistake of ours: {type(error).__name__}: {error} "
            "(the same again with --debug shows where)"
        )
    return FAILED


def _found(argv: Sequence[str], console: Console) -> tuple[Command | None, list[str]]:
    """The command, and the words behind it; None: all was said.

    Raises:
        UsageError: there is no such command.
    """
    rest, leading = list(argv), []
    while rest and rest[0].startswith("-"):
        if rest[0] in ("-h", "--help"):
            console.out.write(overview().encode())
            return None, []
        if rest[0] == "--version":
            console.print(f"duckrow {version()}")
            return None, []
        name, _, value = rest[0].partition("=")
        width = 1 if value or name == "--debug" else 2
        if name not in (*_LEADING, "--debug"):
            raise UsageError(f"there is no option {name} (see duckrow --help)")
        leading += rest[:width]
        rest = rest[width:]
    if not rest:
        if leading:
            raise UsageError("no command was given (see duckrow --help)")
        console.out.write(overview().encode())
        return None, []
    word = rest[0]
    if word == "help":
        return _found([*rest[1:], "--help"], console)
    if word not in WORDS:
        raise UsageError(f"there is no command {word!r}{_meant(word, WORDS)}")
    verbs = {command.words.partition(" ")[2]: command for command in commands(word)}
    if "" in verbs:
        return verbs[""], [*leading, *rest[1:]]
    if len(rest) < 2 or rest[1] in ("-h", "--help"):
        console.out.write(noun(word).encode())
        return None, []
    if rest[1] not in verbs:
        raise UsageError(f"there is no command {word + ' ' + rest[1]!r}{_meant(rest[1], verbs)}")
    return verbs[rest[1]], [*leading, *rest[2:]]


def _meant(word: str, known: dict[str, str] | dict[str, Command]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f": there are {', '.join(known)}"


def overview() -> str:
    """What `duckrow --help` says."""
    lines = ["usage: duckrow COMMAND ...", "", "The same row of entries on every machine."]
    for part, words in INDEX.items():
        lines += ["", f"{part}:", *(f"  {word:<12}{said}" for word, said in words.items())]
    lines += [
        "",
        "duckrow COMMAND --help has the options and examples of a command.",
        "DUCKROW_URL, or --url, says where the node is: duck://host:port, duck+unix:///path.",
    ]
    return "\n".join(lines) + "\n"


def noun(word: str) -> str:
    """What `duckrow topic` says."""
    there = commands(word)
    wide = max(len(command.words) for command in there)
    lines = [f"usage: duckrow {word} VERB ...", "", f"{WORDS[word]}.", ""]
    lines += [f"  {command.words:<{wide}}  {command.sentence}" for command in there]
    return "\n".join(lines) + "\n"


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    try:
        return of("duckrow")
    except PackageNotFoundError:
        return "(from a source tree)"


def _forget(console: Console) -> None:
    """Lets the interpreter close a stdout that nobody reads without a word."""
    try:
        out = console.out.fileno()
    except OSError:
        return  # it is no file
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
