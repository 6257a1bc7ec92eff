"""`duckrow backup`: copies a node, while it runs or not, to a folder from which it can be restored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from .command import DONE, Args, Command, option
from .configfiles import OPTIONS, loaded
from .console import Console
from .output import output_of

if TYPE_CHECKING:
    from .backups import Manifest

FIELDS: Final = ("backup", "made", "files", "bytes")
DATA: Final = option(
    "--data", metavar="DIR", said="the folder of the node; else the configured one"
)
MORE: Final = """\
It is run on the machine of the node, by the user of the node, and asks nothing of it: files are
linked as they are at one moment, copied, hashed and synced; the manifest comes last.  Everything
that was answered before the command began is in the backup.  --check reads a backup and makes none."""


def run(args: Args, console: Console) -> int:
    from . import backups
    from .cli import version

    target = Path(args.target)
    if args.check:
        size = backups.manifest_of(target).size
        with console.progress("checked", size) as progress:
            made = backups.check(target, tell=lambda more: progress.add(more))
    else:
        data = data_of(args, console)
        with console.progress("copied", backups.size_of(data)) as progress:
            made = backups.backup(
                data, target, version=version(), tell=lambda more: progress.add(more)
            )
    told(args, console, target, made)
    return DONE


def data_of(args: Args, console: Console) -> Path:
    """
    Raises:
        Refused: the configuration is wrong; says all of it.
    """
    flags = {"node.data": (args.data, "--data")} if args.data else {}
    return Path(loaded(args, console.environ, flags).checked().node.data).expanduser()


def told(args: Args, console: Console, folder: Path, made: Manifest) -> None:
    output = output_of(console, args.output, FIELDS)
    output.put(
        [{"backup": str(folder), "made": made.made, "files": len(made.files), "bytes": made.size}]
    )
    output.close()


COMMANDS: Final = (
    Command(
        "backup",
        "Copy a node, while it runs or not, to a folder from which it can be restored",
        run,
        (
            option("target", said="a new folder; with --check, the backup"),
            DATA,
            option("--check", switch=True, said="only read a backup, all of it"),
            *OPTIONS,
        ),
        (
            "duckrow backup --data ./data ./tuesday",
            "duckrow backup --check ./monday",
        ),
        rows=True,
        more=MORE,
    ),
)
