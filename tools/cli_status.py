"""`duckrow status`: how a node is."""

from __future__ import annotations

from typing import Any, Final

from .clients import client_of
from .command import DONE, Args, Command
from .console import Console
from .output import for_people, output_of
from .rows import Row

FIELDS: Final = (
    "node",
    "version",
    "view",
    "members",
    "position",
    "state_hash",
    "ready",
    "active",
    "links",
    "waiting_for",
    "disk",
)
PEOPLE: Final = (
    "node",
    "version",
    "ready",
    "active",
    "why",
    "position",
    "durable",
    "level",
    "topics",
    "clients",
    "disk",
    "archive",
    "view",
    "lineage",
    "state_hash",
    "members",
    "links",
    "waiting_for",
    "backlog",
    "staged",
    "damaged",
)


def run(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        status = client.status()
    fields = [*FIELDS, *(name for name in status if name not in FIELDS)]
    output = output_of(console, args.output, fields, columns=PEOPLE, one=True)
    output.put([told(status) if for_people(console, args.output) else status])
    output.close()
    return DONE


def told(status: dict[str, Any]) -> Row:
    """For people: sizes with units, and nothing that is empty."""
    disk = status.get("disk", {})
    free, whole = (_rounded(disk.get(name, 0)) for name in ("free", "size"))
    row = status | {"disk": f"{disk.get('state', '')}, {free} free of {whole}"}
    row["archive"] = of_archive(status.get("archive", {}))
    row["damaged"] = "; ".join(status.get("damaged", ()))
    row["waiting_for"] = ", ".join(status.get("waiting_for", ()))
    row["members"] = ", ".join(
        f"{member.get('name', member['id'])} ({member['weight']})"
        for member in status.get("members", ())
    )
    row["links"] = ", ".join(
        f"{link['peer']} {'up' if link['up'] else 'down'}" for link in status.get("links", ())
    )
    return {name: value for name, value in row.items() if value != ""}


def of_archive(archive: dict[str, Any]) -> str:
    """In a sentence; empty if no archiver is there, and none is missed."""
    place, pinned, trouble = (archive.get(name) for name in ("place", "pinned", "trouble"))
    if not place and not pinned:
        return ""
    said = f"{pinned or 0:,} pruned entries are kept here for {place or 'an archiver'}"
    return f"{said}: {trouble or 'none has come yet'}" if trouble or not place else said


def _rounded(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"


COMMANDS: Final = (
    Command(
        "status",
        "Show how a node is",
        run,
        (),
        ("duckrow status", "duckrow status -o json"),
        more="`duckrow why` says in a sentence what stands still, and what to do.",
        url=True,
        rows=True,
    ),
)
