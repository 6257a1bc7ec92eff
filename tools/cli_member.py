"""`duckrow member`: who votes in a cluster, and changing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .clients import client_of
from .command import DONE, Args, Command, UsageError, option, whole
from .command import seconds as duration
from .console import Console
from .output import for_people, output_of
from .rows import Row

FIELDS: Final = ("id", "name", "weight", "witness", "state", "listed", "listed_witness", "uuid")
SHOWN: Final = ("id", "name", "weight", "state", "in the file")
WAIT_SECONDS: Final = 15.0


def ls(args: Args, console: Console) -> int:
    with client_of(args, console) as client:
        _show(client.members(), args, console)
    return DONE


def add(args: Args, console: Console) -> int:
    return _change(
        args, console, "add", node=args.name, weight=args.weight, witness=bool(args.witness)
    )


def retire(args: Args, console: Console) -> int:
    return _change(args, console, "retire", node=args.name)


def weight(args: Args, console: Console) -> int:
    return _change(args, console, "weight", node=args.name, weight=args.weight)


def replace(args: Args, console: Console) -> int:
    return _change(args, console, "replace", node=args.new, instead_of=args.old)


def set_(args: Args, console: Console) -> int:
    asked: dict[str, Any] = {}
    if args.min_copies is not None:
        asked["min_copies"] = args.min_copies
    if args.durability is not None:
        asked["durability"] = args.durability
    if not asked:
        raise UsageError("member set without a setting changes nothing (see member set --help)")
    return _change(args, console, "set", **asked)


def force_view(args: Args, console: Console) -> int:
    from duckrow.node.errors import Refused

    with client_of(args, console) as client:
        found = client.members()
        _check_known(found, args.name)
        if against := refusal(found, args.name):
            raise Refused(against)
        for line in warning(found, args.name):
            console.say(line)
        if not args.yes:
            if not console.interactive:
                raise UsageError("nobody is there to be asked: --yes goes on without")
            console.say(f"Type {args.name} to go on:")
            if console.stdin.readline().decode(errors="replace").strip() != args.name:
                raise Refused("not confirmed: nothing was changed")
        asked = {"node": args.name, "view": found["view"], "seconds": float(args.wait)}
        found = client.members("force-view", **asked)
        _show(found, args, console)
        console.say(f"The cluster has a new id: {found['cluster']}")
    return DONE


def refusal(found: dict[str, Any], name: str) -> str:
    """Why it cannot be that, before it is told what may be lost, which would be of another machine; empty:
    as far as can be seen here it can.
    """
    names = {node["name"] for node in found["nodes"]}
    by_id = {str(node["id"]): node["name"] for node in found["nodes"]}
    asked = name if name in names else by_id.get(name, name)
    if asked != found.get("name", asked):
        return f"this is {found['name']}: ask {asked}, if that shall go on"
    if found["active"] and len(found["nodes"]) > 1:  # a node alone says so itself
        return (
            f"this machine acts in view {found['view']}: nothing has to be forced; `member retire` takes "
            "the vote of a machine that is gone"
        )
    acting = [node["name"] for node in found["nodes"] if node["state"] == "acts"]
    if acting and not found["active"]:
        return (
            f"{', '.join(acting)} {'acts' if len(acting) == 1 else 'act'} in view {found['view']}, so "
            f"nothing has to be forced: {asked} follows"
        )
    return ""


def warning(found: dict[str, Any], name: str) -> list[str]:
    """What may be lost, before somebody goes on."""
    position, furthest = found["position"], found["furthest"]
    lost = "what the others have ordered and this machine has not is lost"
    if found["exact"]:
        lost = "it acted in the newest view that it knows, and has all that was ordered in it"
    if furthest > position:
        lost += f"; it knows of {furthest - position:,} items behind its row"
    return [
        f"{name} goes on alone from position {position:,}, as another cluster.",
        f"{lost[0].upper()}{lost[1:]}.",
        "All other machines are refused until their disks are wiped; make sure that none of them runs.",
    ]


def _change(args: Args, console: Console, what: str, **asked: Any) -> int:
    from duckrow.node.errors import Refused

    with client_of(args, console) as client:
        try:
            found = client.members(what, seconds=float(args.wait), **asked)
        except Refused:
            _check_known(client.members(), asked.get("node"), asked.get("instead_of"))
            raise
        _show(found, args, console)
    return DONE


def _check_known(found: dict[str, Any], *names: str | None) -> None:
    """
    Raises:
        NotFound: one of them is none of these machines.
    """
    from duckrow.node.errors import NotFound

    nodes = () if found.get("alone") else found["nodes"]
    known = {each for node in nodes for each in (node["name"], str(node["id"]))}
    if unknown := [name for name in names if name is not None and known and name not in known]:
        raise NotFound(
            f"{found.get('name', 'this machine')} knows of no machine {unknown[0]!r}: there are "
            f"{', '.join(node['name'] for node in nodes)}; one that is new has to be in the cluster file of "
            "every machine first"
        )


def _show(found: dict[str, Any], args: Args, console: Console) -> None:
    people = for_people(console, args.output)
    output = output_of(console, args.output, SHOWN if people else FIELDS)
    output.put([for_eyes(node) for node in found["nodes"]] if people else found["nodes"])
    output.close()
    if people:
        console.say(
            f"view {found['view']}: {found['durability']}, at least {found['min_copies']} "
            f"{'copy' if found['min_copies'] == 1 else 'copies'}, position {found['position']:,}"
        )
        if found["waits"]:
            console.say(f"nothing is ordered: {found['waits']}")
        for line in () if found.get("alone") else differences(found["nodes"]):
            console.say(line)


def for_eyes(node: Row) -> Row:
    return {
        "id": node["id"],
        "name": node["name"],
        "weight": _vote(node["weight"], witness=node["witness"]),
        "state": node["state"],
        "in the file": "-"
        if node["listed"] is None
        else _vote(node["listed"], witness=node["listed_witness"]),
    }


def _vote(count: int, *, witness: bool) -> str:
    return f"{count}{', witness' if witness else ''}"


def differences(nodes: Sequence[Row]) -> list[str]:
    """Where the cluster file says something else than the view, which is no error: the view rules."""
    said = []
    for node in nodes:
        name, votes, listed = node["name"], node["weight"], node["listed"]
        if listed is None:
            said.append(f"{name} is not in the cluster file of this machine")
        elif listed != votes:
            said.append(f"{name} has {votes} votes, and the cluster file says {listed}")
        elif votes and node["listed_witness"] != node["witness"]:
            is_one = "a" if node["witness"] else "no"
            said.append(f"{name} is {is_one} witness, and the cluster file says otherwise")
    return said


_NAME: Final = option("name", said="its name in the cluster file, or its id")
_WAIT: Final = option(
    "--wait", metavar="S", kind=duration, default=WAIT_SECONDS, said="how long to wait for it (15)"
)
_MORE: Final = (
    "Any node of the cluster may be asked; it answers when the next view has it.  The machine has\n"
    "to be in the cluster file of all of them.  Refused is what would leave no majority of those\n"
    "that run and have caught up; one machine is changed at a time."
)

COMMANDS: Final = (
    Command(
        "member ls",
        "List who votes, and what the cluster file says of it",
        ls,
        (),
        ("duckrow member ls", "duckrow member ls -o json"),
        more="state: acts (it acknowledges all that is ordered), suspected, waits (for the others, to act\n"
        "again: this very machine), catches up, held off (it was too slow, and has to wait), votes (a\n"
        "witness), follows (without a vote), away (no way there).",
        url=True,
        rows=True,
    ),
    Command(
        "member add",
        "Give a machine a vote",
        add,
        (
            _NAME,
            option("--weight", metavar="N", kind=whole(1, 1000), default=1, said="its weight (1)"),
            option("--witness", switch=True, said="it votes, and keeps no row"),
            _WAIT,
        ),
        ("duckrow member add m4",),
        more=_MORE + "\nIt follows the row first: far behind it cannot be added yet.",
        url=True,
        rows=True,
    ),
    Command(
        "member retire",
        "Take the vote of a machine away, for good",
        retire,
        (_NAME, _WAIT),
        ("duckrow member retire m3",),
        more=_MORE + "\nIt need not run.  If it does, it goes on following the row.",
        url=True,
        rows=True,
    ),
    Command(
        "member weight",
        "Give a vote another weight",
        weight,
        (_NAME, option("weight", said="1 or more", kind=whole(1, 1000)), _WAIT),
        ("duckrow member weight m1 2",),
        more=_MORE,
        url=True,
        rows=True,
    ),
    Command(
        "member replace",
        "Let one machine take the place of another, in one step",
        replace,
        (
            option("old", said="the one that goes; it need not run"),
            option("new", said="the one that comes, with the weight of the other"),
            _WAIT,
        ),
        ("duckrow member replace m3 m4",),
        more=_MORE
        + "\nA machine whose disk was lost needs no command: started with an empty disk, under its name,\n"
        "it catches up and votes again.",
        url=True,
        rows=True,
    ),
    Command(
        "member force-view",
        "Go on from one machine when the others are gone for good",
        force_view,
        (
            option(
                "name", said="the machine that is asked and goes on: the one with the longest row"
            ),
            option("--yes", switch=True, said="do not ask; entries may be lost"),
            _WAIT,
        ),
        ("duckrow member force-view m2 --yes",),
        more="For disasters alone: when most of the voters, or all that were up to date, will never come\n"
        "back.  What this machine does not have is lost, acknowledged or not.  It becomes a cluster of\n"
        "its own, with a new id; a machine of the old one is refused until its disk is wiped, and is then\n"
        "added with `member add`.  Is there a majority, use `member retire` instead.",
        url=True,
        rows=True,
    ),
    Command(
        "member set",
        "Change what holds for the cluster, while it runs",
        set_,
        (
            option(
                "--min-copies",
                metavar="N",
                kind=whole(1, 1000),
                said="with fewer members that are there nothing is ordered",
            ),
            option(
                "--durability",
                choices=("fsync", "write", "memory"),
                said="when a member acknowledges",
            ),
            _WAIT,
        ),
        ("duckrow member set --min-copies 2", "duckrow member set --durability write"),
        more="It holds from the next view on.  More copies than members run are refused.",
        url=True,
        rows=True,
    ),
)
