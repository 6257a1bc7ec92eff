"""`duckrow explain`: what an error, a result, a reason or an exit code means, and what to do."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

from .command import DONE, NOT_FOUND, Args, Command, option
from .console import Console

ADVICE: Final = {
    "not-found": "`duckrow topic ls` shows the topics there are.",
    "exists": "Go on with the one there is, or take another name.",
    "full": "Prune the topic (`duckrow topic prune`), raise its limits (`duckrow topic set`), or make "
    "room on the disk; `duckrow why` tells which.  The same again may succeed later.",
    "refused": "Change the request: the same again is refused again.",
    "limit": "Make it smaller: docs/reference/limits.md has all limits.",
    "conflict": "Look again at what is there (`duckrow topic info`), then decide anew.",
    "timeout": "It may or may not have happened.  Produced with an id, or by the same client, it can "
    "be sent again: it is stored once.  `duckrow receipt` asks later.",
    "no-quorum": "Certainly not written: try again in a moment.  `duckrow why` tells what it waits for.",
    "disconnected": "See whether a node runs there (`duckrow status`); start one with `duckrow node`.",
    "damaged": "To go on without them, pull after the last number it names.  `duckrow doctor` tells "
    "what else is damaged.",
    "corrupt": "Entries on the disk are damaged.  `duckrow doctor` tells which; the rest is served.",
}
EXITS: Final = {
    "0": "It was done.",
    "1": "It failed; stderr says why.",
    "2": "The command was not understood; its --help has examples.",
    "3": "What was named is not there.",
    "4": "No answer came in time; whether it happened is not known.",
    "5": "Nothing could be ordered now; certainly nothing was written.",
    "130": "It was interrupted.",
}


def meanings() -> dict[str, list[str]]:
    """By name: what it can mean, in sentences."""
    from duckrow.node import errors
    from duckrow.node.effects import Code, Reason, wording

    found: dict[str, list[str]] = {}
    for kind in vars(errors).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, errors.DuckrowError)
            and "code" in vars(kind)
        ):
            said = " ".join(str(kind.__doc__).split()).removeprefix("Raised when ")
            if kind is not errors.DuckrowError:
                advice = ADVICE.get(kind.code, "")
                found[kind.code] = [f"An error: {said}", *([advice] if advice else [])]
    for each in (*Code, *Reason):
        if words := wording(each):
            what = "A result" if isinstance(each, Code) else "A reason"
            name = each.name.lower().replace("_", "-")
            found.setdefault(name, []).append(f"{what}: {_with_names(words)}.")
    return found | {code: [f"An exit code: {said}"] for code, said in EXITS.items()}


def _with_names(words: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), words)


def run(args: Args, console: Console) -> int:
    known = meanings()
    if args.code is None:
        for name, said in known.items():
            console.print(f"{name:<20}{said[0]}")
        return DONE
    name = args.code.lower().replace("_", "-")
    if name not in known:
        near = get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}?" if near else "`duckrow explain` alone has them all"
        console.say(f"duckrow: {args.code!r} is no code: {meant}")
        return NOT_FOUND
    console.print("\n".join(known[name]))
    return DONE


COMMANDS: Final = (
    Command(
        "explain",
        "What an error, a result, a reason or an exit code means, and what to do",
        run,
        (option("code", said="its name or number; none: all of them", many="?"),),
        ("duckrow explain no-quorum", "duckrow explain 4", "duckrow explain"),
    ),
)
