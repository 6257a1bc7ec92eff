"""`duckrow config`: writes a file with every setting, shows what counts, says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .command import DONE, FAILED, Args, Command, option
from .configfiles import NAME, OPTIONS, found, loaded
from .console import Console

WHERE: Final = (
    "Without --config the file is the one that DUCKROW_CONFIG names, else the first there is of\n"
    "duckrow.toml here, ~/.config/duckrow/duckrow.toml and /etc/duckrow/duckrow.toml, else none.\n"
    "Stronger than the file is the environment (DUCKROW__NODE__NAME), and flags are strongest."
)


def init(args: Args, console: Console) -> int:
    from duckrow.node.configtext import sample

    if args.file == "-":
        console.out.write(sample().encode())
        return DONE
    path = Path(args.file)
    try:
        with path.open("w" if args.force else "x", encoding="utf-8") as file:
            file.write(sample())
    except FileExistsError:
        console.say(f"duckrow: {path} is there already: --force replaces it, - prints it instead")
        return FAILED
    console.say(f"wrote {path}, which changes nothing as it is; edit it, then duckrow config check")
    return DONE


def show(args: Args, console: Console) -> int:
    from duckrow.node.configtext import shown

    state = loaded(args, console.environ)
    section = ""
    for setting, text, origin in shown(state):
        if setting.section != section:
            section = setting.section
            console.print(f"[{section}]")
        line = f"{setting.name} = {text}"
        console.print(f"{line:<48}  # {origin}" if args.origin else line)
    return _told(state.problems, console)


def check(args: Args, console: Console) -> int:
    state = loaded(args, console.environ)
    if state.problems:
        return _told(state.problems, console)
    path = found(args.config, console.environ)
    console.say(f"{path or 'no file'}: nothing is wrong")
    return DONE


def _told(problems: tuple[str, ...], console: Console) -> int:
    for problem in problems:
        console.say(f"duckrow: {problem}")
    return FAILED if problems else DONE


COMMANDS: Final = (
    Command(
        "config init",
        "Write a file with every setting, its default and what it means",
        init,
        (
            option("file", said=f"the file ({NAME}); - prints it", many="?", default=NAME),
            option("--force", said="replace a file that is there", switch=True),
        ),
        ("duckrow config init", "duckrow config init - | less"),
    ),
    Command(
        "config show",
        "Show the settings that count",
        show,
        (option("--origin", said="and where each comes from", switch=True), *OPTIONS),
        (
            "duckrow config show --origin",
            "DUCKROW__STORE__DURABILITY=write duckrow config show --origin",
        ),
        more=WHERE,
    ),
    Command(
        "config check",
        "Say what is wrong with the configuration",
        check,
        OPTIONS,
        ("duckrow config check", "duckrow config check --set store.sync=20ms"),
        more=WHERE,
    ),
)
